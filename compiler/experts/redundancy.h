// SPDX-License-Identifier: Apache-2.0
//
// How many expert slots there are. The routed experts and the least number of redundant ones rarely divide by
// the ranks that share them, so the total is padded up:
//
//     padding  = (−(logical + min_redundant)) mod ep
//     extra    = min_redundant + padding
//     physical = logical + extra                        384 experts, 1 redundant, ep 64 → 448 slots, 7 a rank
//     local    = physical / ep
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/experts/error.h"

namespace paratope {

struct ExpertCounts {
  int64_t logical = 0;  // routed experts the gate chooses from
  int64_t padding = 0;  // slots added so that ep divides
  int64_t extra = 0;    // redundant slots, padding included
  int64_t physical = 0; // slots of all ranks
  int64_t local = 0;    // slots of one rank
  bool operator==(const ExpertCounts &) const = default;
};

// Errors: logical < 1, min_redundant < 0, ep < 1, a total beyond 2⁶³ − 1.
std::optional<ExpertCounts> count_experts(int64_t logical, int64_t min_redundant, int64_t ep,
                                          ExpertsErrors &errors);

} // namespace paratope
