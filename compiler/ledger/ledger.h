// SPDX-License-Identifier: Apache-2.0
//
// The ledger: every collective of one step, read off the step program that is run. Bytes are what one rank
// sends, at the topology's wire types; times are a step; prices are latency and bandwidth of the link the
// group lies on.
#pragma once

#include <string>
#include <vector>

#include "compiler/mesh/view.h"
#include "compiler/step/dialect.h"
#include "dsl/spec/topology.h"

namespace paratope {

struct LedgerLine {
  std::string op; // dispatch, combine, all_reduce, …
  std::string group;
  int64_t ranks = 1;
  int64_t bytes_per_rank = 0; // sent, each time
  int64_t times = 1;
  bool blocking = true;    // nothing runs between its issue and its await
  std::string where;       // "MoE exchange", "after attention", "liveness", …
  std::string category;    // dense | exchange | control | fetch | context | load
  double predicted_us = 0; // each time
  std::string price;       // "3.0 µs + 1.2 MB / 50 GB/s (ib400)"
};

struct Ledger {
  std::vector<LedgerLine> lines; // of a step
  std::vector<LedgerLine> load;  // once, before the first
  int64_t per_layer_dense =
      0; // collectives of the dense path (attention, dense MLP, shared expert) of all layers
  int64_t exchange = 0, control = 0, fetch = 0, context = 0, count = 0;
  int64_t bytes_per_rank = 0;
};

Ledger ledger_of(mlir::ModuleOp module, const TopologySpec &spec, const MeshView &mesh);

// One collective's line, times 1.
LedgerLine ledger_line(mlir::Operation *collective, const TopologySpec &spec, const MeshView &mesh,
                       int64_t physical_experts);

} // namespace paratope
