// SPDX-License-Identifier: Apache-2.0
//
// Stage "plan": a placed step program as the plan that the runtime executes.
#pragma once

#include "compiler/step/dialect.h"
#include "runtime/plan/plan.h"

namespace paratope {

struct EmitOptions {
  std::string source;      // the topology file as the user named it
  std::string source_hash; // of its text and of all files it uses
};

// Needs a module with sizes, communicators and one placed program. Host arithmetic is 32-bit float: the
// plan's buffers are f32 where the step says bf16.
mlir::FailureOr<plan::Plan> emit_plan(mlir::ModuleOp module, const EmitOptions &options);

} // namespace paratope
