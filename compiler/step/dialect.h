// SPDX-License-Identifier: Apache-2.0
//
// The `step` dialect's C++ face.
#pragma once

#include <optional>

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dsl/topo/dialect.h"

#include "StepDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "StepTypes.h.inc"

#define GET_OP_CLASSES
#include "StepOps.h.inc"

namespace paratope::step {

// An op that every rank of its group must reach.
inline bool is_collective(mlir::Operation *op) {
  return mlir::isa<VoteOp, AllReduceOp, AllGatherOp, ReduceScatterOp, AllToAllOp, DispatchOp, CombineOp,
                   FetchOp>(op);
}
// Where in the model an op stands ("layers.3.attn"): its attribute `at`, which builders leave to give_names.
inline std::string name_of(mlir::Operation *op) {
  auto at = op->getAttrOfType<mlir::StringAttr>("at");
  return at ? at.str() : "";
}
// Turns the names in the locations of freshly made ops into their attribute, which text keeps.
void give_names(ProgramOp program);

// The kernel an op is a part of, numbered in order of launch; nothing for an op that is a kernel of its own.
// Stage "fuse" decides it, and keeps the parts of a kernel side by side.
inline std::optional<int64_t> kernel_of(mlir::Operation *op) {
  auto kernel = op->getAttrOfType<mlir::IntegerAttr>("kernel");
  return kernel ? std::optional(kernel.getInt()) : std::nullopt;
}
// Whether a value never leaves the kernel that makes it: on a device it lies in registers and shared memory.
// What a collective writes always has memory of its own.
bool is_internal(mlir::Value value);

// The group a collective is over.
inline std::string group_of(mlir::Operation *collective) {
  return mlir::cast<mlir::FlatSymbolRefAttr>(collective->getAttr("group")).getValue().str();
}

} // namespace paratope::step
