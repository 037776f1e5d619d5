// SPDX-License-Identifier: Apache-2.0
//
// The work of one rank in one step, read off the step program like the ledger: operations by the part of the
// model they belong to, kernels launched, and activations moved through device memory, with every op a kernel
// of its own and as stage "fuse" made them.
//
//     one op     reads its operands, writes its results                     rms_norm ▸ memory ▸ linear
//     a kernel   reads what comes from outside, writes what leaves it      [rms_norm ─ linear]
//
// Rows that depend on routing are taken at their expectation under even routing: tokens · top_k a rank.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/mesh/view.h"
#include "compiler/step/dialect.h"
#include "dsl/spec/topology.h"

namespace paratope {

// What the kernels of one fusion (or of several joined in the same kernels: "qkv+norm-linear") save.
struct FusionSaving {
  std::string fusion;
  int64_t kernels = 0;
  int64_t launches = 0; // fewer
  int64_t bytes = 0;    // of activations that are neither written nor read again
};

struct StepWork {
  std::vector<std::pair<std::string, double>> flops; // part of the model → operations; a multiply-add is two
  int64_t launches = 0, launches_unfused = 0;
  int64_t bytes = 0, bytes_unfused = 0; // activations read and written; weights and KV are the bill's
  std::vector<FusionSaving> savings;

  double total_flops() const;
};

// Of a rank that serves, with as many tokens as an engine has at most.
StepWork work_of(mlir::ModuleOp module, const TopologySpec &spec, const MeshView &mesh);

// Σ over the n tokens that follow `history` of the keys each sees: its window (0: all before it), itself
// included, and one compressed key a complete block of `ratio` (0: none).
double keys_seen(int64_t history, int64_t n, int64_t window, int64_t ratio);

} // namespace paratope
