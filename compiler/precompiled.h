// SPDX-License-Identifier: Apache-2.0
//
// The large headers that every file of the compiler reads anyway, read once. Nothing may rely on them being
// here: each file includes what it uses.
#pragma once

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
