// SPDX-License-Identifier: Apache-2.0
//
// The memory bill: what one rank of the step holds, item by item, on the machine's GPU. Weights are counted
// from the step program itself, so what is billed is what is run.
//
//     rank bytes = attention + dense + shared + gate (whole) + physical/ep experts (split) + Engram rows /
//     enp
//                + scales + KV cache + activations + exchange buffers + communicators
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/mesh/view.h"
#include "compiler/step/dialect.h"
#include "dsl/spec/topology.h"

namespace paratope {

struct MemoryBill {
  std::vector<std::pair<std::string, int64_t>> rank_bytes; // item → bytes, in the order of the picture
  int64_t total = 0;
  int64_t capacity = 0; // the GPU's, bytes
  bool fits = false;
  // The most that would fit, everything else as it is; 0 when not even one does.
  int64_t largest_tokens_per_rank = 0;
  int64_t largest_context = 0;
  bool prefill = false;           // a batch of prompts: the two numbers above are of a decode step
  std::vector<std::string> notes; // at which byte sizes; what is held more than once
};

// Bytes of one NCCL communicator: 600 MB, in the middle of the 500–700 MB that users report.
// Tokens of one page of the KV cache.
inline constexpr int64_t kv_page_tokens = 64;

inline constexpr int64_t communicator_bytes = 600'000'000;

mlir::FailureOr<MemoryBill> memory_bill(mlir::ModuleOp module, const TopologySpec &spec,
                                        const MeshView &mesh);

} // namespace paratope
