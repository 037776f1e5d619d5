// SPDX-License-Identifier: Apache-2.0
//
// Creation and registration of the compiler's passes (Passes.td).
#pragma once

#include <memory>

#include "mlir/Pass/Pass.h"

#include "compiler/step/dialect.h"

namespace paratope {

#define GEN_PASS_DECL
#include "Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "Passes.h.inc"

} // namespace paratope
