// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/placement.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>

namespace paratope {

bool check_slots(int64_t slots, ExpertsErrors &errors) {
  if (slots <= max_slots)
    return true;
  errors.push_back(
      {.code = "experts-too-many",
       .message = fmt::format("at most {} physical experts can be placed, got {}", max_slots, slots),
       .key = "moe.min_redundant_experts",
       .fix = ""});
  return false;
}

std::optional<std::vector<int64_t>> place_contiguous(const ExpertCounts &counts, ExpertsErrors &errors) {
  if (!check_slots(counts.physical, errors))
    return std::nullopt;
  std::vector<int64_t> slots(static_cast<size_t>(counts.physical));
  for (int64_t slot = 0; slot < counts.physical; ++slot)
    slots[static_cast<size_t>(slot)] = slot % counts.logical; // the extra ones start at expert 0 again
  return slots;
}

std::vector<std::vector<int64_t>> replicas_of(std::span<const int64_t> slots, int64_t logical) {
  std::vector<std::vector<int64_t>> replicas(static_cast<size_t>(logical));
  for (size_t slot = 0; slot < slots.size(); ++slot)
    replicas[static_cast<size_t>(slots[slot])].push_back(static_cast<int64_t>(slot));
  return replicas;
}

std::vector<double> rank_loads(std::span<const int64_t> slots, std::span<const double> loads, int64_t ranks) {
  const auto replicas = replicas_of(slots, static_cast<int64_t>(loads.size()));
  const size_t local = slots.size() / static_cast<size_t>(ranks);
  std::vector<double> sums(static_cast<size_t>(ranks), 0.0);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const auto expert = static_cast<size_t>(slots[slot]);
    sums[slot / local] += loads[expert] / static_cast<double>(replicas[expert].size());
  }
  return sums;
}

double imbalance(std::span<const int64_t> slots, std::span<const double> loads, int64_t ranks) {
  const std::vector<double> sums = rank_loads(slots, loads, ranks);
  const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  if (total <= 0)
    return 1;
  return *std::max_element(sums.begin(), sums.end()) * static_cast<double>(ranks) / total;
}

} // namespace paratope
