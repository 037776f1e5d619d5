// SPDX-License-Identifier: Apache-2.0
//
// Expert-parallel load balancing, as DeepSeek published it (https://github.com/deepseek-ai/EPLB). Two moves:
//
//     replicate   give each extra slot to the expert with the largest load / replicas
//     pack        heaviest first, onto the lightest bin that still has room
//
//     hierarchical                                global
//     groups ──pack──▶ nodes                      experts ──replicate──▶ slots ──pack──▶ ranks
//       inside each node: replicate, pack
//
// Hierarchical packing keeps a group's experts on one node, which group-limited routing needs; it applies
// when the nodes divide the expert groups, else one global pass runs. Ties go to the lowest index throughout,
// so the answer is a function of its inputs.
#pragma once

#include <span>

#include "compiler/experts/placement.h"

namespace paratope {

struct EplbRequest {
  int64_t slots = 0;  // physical experts
  int64_t groups = 1; // expert groups of the gate (group-limited routing); 1: none
  int64_t nodes = 1;  // scale-up domains
  int64_t ranks = 1;  // ranks of the expert-parallel group
};

// Logical expert of each slot. Errors: an empty, negative or non-finite load; fewer slots than experts; more
// than max_slots; ranks that do not divide slots; nodes that do not divide ranks; groups that do not divide
// the experts.
std::optional<std::vector<int64_t>> place_by_load(std::span<const double> loads, const EplbRequest &request,
                                                  ExpertsErrors &errors);

} // namespace paratope
