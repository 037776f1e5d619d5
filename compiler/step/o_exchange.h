// SPDX-License-Identifier: Apache-2.0
//
// How output groups that are cut over og come back to their tokens. Bytes a rank sends of each of its tokens
// beyond the heads, with p = og:
//
//     gather-inputs      (p−1)/p · groups · o_lora      the groups' low-rank outputs travel; Wo_b is whole
//     reduce-outputs     (p−1) · hidden                 partial sums travel; Wo_b is cut over og as well
#pragma once

#include <string>

#include "compiler/mesh/view.h"
#include "dsl/spec/topology.h"

namespace paratope::step {

struct OExchange {
  std::string name;                        // gather-inputs | reduce-outputs
  int64_t gather_bytes = 0, sum_bytes = 0; // a token and layer, in bf16
  bool chosen = false;                     // by `auto`
};

// The topology's own, or under `auto` the one that sends less.
OExchange choose_o_exchange(const TopologySpec &spec, const MeshView &mesh);

} // namespace paratope::step
