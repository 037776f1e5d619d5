// SPDX-License-Identifier: Apache-2.0
//
// Which logical expert each physical slot holds. Slot p lies on rank p / local of its expert-parallel group:
//
//     4 experts, 6 slots, ep 2, contiguous       slots  0 1 2 | 3 0 1
//                                                rank     0   |   1
#pragma once

#include <span>
#include <vector>

#include "compiler/experts/redundancy.h"

namespace paratope {

// Slots are tables in memory, and later in the plan: this many are more than any model has.
inline constexpr int64_t max_slots = int64_t{1} << 24;

// Reports more than max_slots slots; returns whether they are few enough.
bool check_slots(int64_t slots, ExpertsErrors &errors);

// Slot p < logical holds expert p; the extra slots hold experts 0, 1, 2, … in turn (and from 0 again, when
// there are more extra slots than experts). Ignores loads: what a run without measurements uses. `counts`
// comes from count_experts. Allocates 8 bytes a slot; more than max_slots is an error.
std::optional<std::vector<int64_t>> place_contiguous(const ExpertCounts &counts, ExpertsErrors &errors);

// Slots of each logical expert, in ascending order. `slots[p]` is in 0 … logical − 1.
std::vector<std::vector<int64_t>> replicas_of(std::span<const int64_t> slots, int64_t logical);

// Load of each rank when an expert's load is shared equally by its replicas. `loads` has one entry a logical
// expert, in any unit; `ranks` ≥ 1 divides slots.size().
std::vector<double> rank_loads(std::span<const int64_t> slots, std::span<const double> loads, int64_t ranks);

// max / mean of rank_loads: 1 is perfect, and what is returned when there is no load at all.
double imbalance(std::span<const int64_t> slots, std::span<const double> loads, int64_t ranks);

} // namespace paratope
