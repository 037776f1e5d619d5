// SPDX-License-Identifier: Apache-2.0
//
// Where a fusion stands in a step program: the ops that would be one kernel, or the reason why they cannot
// be.
#pragma once

#include "compiler/mesh/view.h"
#include "compiler/step/dialect.h"
#include "dsl/spec/topology.h"

namespace paratope {

struct Site {
  llvm::SmallVector<mlir::Operation *> parts; // in program order
  std::string obstacle;                       // why not; empty when the parts may be one kernel
};

struct FusionContext {
  const TopologySpec &spec;
  const MeshView &mesh;
  bool tiny; // widths are shrunk: tile sizes say nothing
};

// Every place in the program where fusion `name` comes into question, first to last. Ops that are parts of a
// kernel already are not taken again, except by norm-linear, which joins one.
std::vector<Site> sites(const std::string &name, step::ProgramOp program, const FusionContext &context);

// Why the exchange cannot be one kernel by its group and types; empty when it can.
std::string mega_moe_obstacle(const TopologySpec &spec, const MeshView &mesh, bool tiny);

} // namespace paratope
