// SPDX-License-Identifier: Apache-2.0
//
// What a step may expect of its experts before any token exists: the share of the traffic each expert gets,
// the ranks a token visits, the experts a rank wakes. The same numbers on every machine, from a seed:
// generator and shuffle are spelled out in expected_load.cpp rather than left to a standard library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/experts/error.h"

namespace paratope {

struct RoutingDistribution {
  enum class Kind { uniform, zipf, dirichlet };
  Kind kind = Kind::uniform;
  double s = 1;     // zipf: share ∝ (position + 1)^−s, positions a permutation drawn from the seed
  double alpha = 1; // dirichlet: concentration, the same for every expert; small is uneven
  int64_t seed = 0;
};

// The share of all (token, choice) pairs each expert gets: `experts` numbers ≥ 0 that sum to 1. Errors:
// experts < 1 or beyond max_slots; s not finite or < 0; alpha not finite or < 10⁻⁶.
std::optional<std::vector<double>> expected_loads(const RoutingDistribution &routing, int64_t experts,
                                                  ExpertsErrors &errors);

// Expected number of distinct ranks a token visits when its `top_k` experts are drawn without replacement
// from `experts`, spread evenly over `ranks`: R·(1 − C(E − E/R, k) / C(E, k)). E/R need not be whole. Errors:
// ranks < 1 or > experts, top_k < 0 or > experts, more than max_slots experts.
std::optional<double> expected_distinct_ranks(int64_t experts, int64_t ranks, int64_t top_k,
                                              ExpertsErrors &errors);

// Expected number of a rank's `local` experts that at least one of `tokens` tokens chooses, each with
// probability top_k / experts: e·(1 − (1 − k/E)^T). Errors: a negative argument, top_k or local > experts.
std::optional<double> expected_active_experts(int64_t experts, int64_t local, int64_t top_k, int64_t tokens,
                                              ExpertsErrors &errors);

} // namespace paratope
