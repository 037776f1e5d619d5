// SPDX-License-Identifier: Apache-2.0
//
// The `topo` dialect's C++ face: the generated classes and what they need.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"

#include "TopoDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "TopoAttrs.h.inc"

#define GET_OP_CLASSES
#include "TopoOps.h.inc"
