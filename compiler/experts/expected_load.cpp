// SPDX-License-Identifier: Apache-2.0
//
// The generator is splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), the
// shuffle is Fisher and Yates' from the last place down, and gamma variates are Marsaglia and Tsang's (A
// simple method for generating gamma variables, 2000): integers are the same everywhere, and real numbers are
// as far as the C library's log, cos and pow agree to the last place.
#include "compiler/experts/expected_load.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numbers>
#include <numeric>

#include "compiler/experts/placement.h"

namespace paratope {
namespace {

// Below this one expert gets everything, and further down the logarithms of all shares would overflow.
constexpr double least_alpha = 1e-6;

class Generator {
public:
  explicit Generator(int64_t seed) : state(static_cast<uint64_t>(seed)) {}

  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform in 0 … bound − 1, without bias: values that would favour the low numbers are drawn again.
  uint64_t below(uint64_t bound) {
    const uint64_t biased = -bound % bound; // 2⁶⁴ mod bound
    uint64_t value = next();
    while (value < biased)
      value = next();
    return value % bound;
  }

  // Uniform in (0, 1): the upper 53 bits, moved to the middle of their interval, so that log is finite.
  double unit() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

  // Standard normal, Box and Muller's: one of the pair is dropped, so that draws do not depend on history.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }

  // The logarithm of a gamma variate of shape `alpha` and scale 1: for small shapes the variate itself is
  // smaller than any double. A shape below 1 is drawn at alpha + 1 and scaled by u^(1/alpha).
  double log_gamma_variate(double alpha) {
    const double boost = alpha < 1 ? std::log(unit()) / alpha : 0;
    const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), root = 1 + c * x;
      const double u = unit();
      if (root <= 0)
        continue;
      const double v = root * root * root;
      if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v))
        return std::log(d * v) + boost;
    }
  }

private:
  uint64_t state;
};

// Logarithms of weights → shares that sum to 1. The largest weight becomes 1 first, so that none overflows
// and not all vanish.
std::vector<double> shares(std::vector<double> logs) {
  const double largest = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (double &value : logs)
    sum += value = std::exp(value - largest);
  for (double &value : logs)
    value /= sum;
  return logs;
}

void add(ExpertsErrors &errors, const char *code, std::string message, const char *key) {
  errors.push_back({.code = code, .message = std::move(message), .key = key, .fix = ""});
}

void check_top_k(int64_t top_k, int64_t experts, ExpertsErrors &errors) {
  if (top_k < 0 || top_k > experts)
    add(errors, "experts-top-k", fmt::format("top_k is 0 … {} experts, got {}", experts, top_k),
        "model.moe.top_k");
}

} // namespace

std::optional<std::vector<double>> expected_loads(const RoutingDistribution &routing, int64_t experts,
                                                  ExpertsErrors &errors) {
  using Kind = RoutingDistribution::Kind;
  const size_t before = errors.size();
  if (experts < 1)
    add(errors, "experts-logical", fmt::format("a model with experts has at least 1, got {}", experts),
        "model.moe.routed");
  check_slots(experts, errors);
  if (routing.kind == Kind::zipf && !(std::isfinite(routing.s) && routing.s >= 0))
    add(errors, "routing-zipf", fmt::format("s of zipf is a finite number of at least 0, got {}", routing.s),
        "workload.routing.s");
  if (routing.kind == Kind::dirichlet && !(std::isfinite(routing.alpha) && routing.alpha >= least_alpha))
    add(errors, "routing-dirichlet",
        fmt::format("alpha of dirichlet is a finite number of at least {}, got {}", least_alpha,
                    routing.alpha),
        "workload.routing.alpha");
  if (errors.size() != before)
    return std::nullopt;

  const auto count = static_cast<size_t>(experts);
  Generator generator(routing.seed);
  std::vector<double> logs(count, 0.0);
  if (routing.kind == Kind::zipf) {
    std::vector<size_t> expert_at(count); // position → expert
    std::iota(expert_at.begin(), expert_at.end(), size_t{0});
    for (size_t i = count; i-- > 1;)
      std::swap(expert_at[i], expert_at[generator.below(i + 1)]);
    for (size_t position = 0; position < count; ++position)
      logs[expert_at[position]] = -routing.s * std::log(static_cast<double>(position + 1));
  } else if (routing.kind == Kind::dirichlet) {
    for (double &value : logs)
      value = generator.log_gamma_variate(routing.alpha);
  }
  return shares(std::move(logs));
}

std::optional<double> expected_distinct_ranks(int64_t experts, int64_t ranks, int64_t top_k,
                                              ExpertsErrors &errors) {
  const size_t before = errors.size();
  if (ranks < 1 || ranks > experts)
    add(errors, "experts-ranks", fmt::format("experts lie on 1 … {} ranks, got {}", experts, ranks),
        "axes.ep");
  check_slots(experts, errors);
  check_top_k(top_k, experts, errors);
  if (errors.size() != before)
    return std::nullopt;
  if (top_k == 0)
    return 0.0;
  // C(E−m, k) / C(E, k) = Π (E−m−i) / (E−i) over i < k: the chance that none of k draws hits the m experts of
  // one rank. Summed as logarithms of 1 − m/(E−i), so that neither the binomials overflow nor a small chance
  // of a hit is lost in 1 − (1 − ε).
  const double e = static_cast<double>(experts), r = static_cast<double>(ranks), m = e / r;
  double log_miss = 0;
  for (int64_t i = 0; i < top_k; ++i) {
    const double left = e - static_cast<double>(i);
    if (left <= m)
      return r; // too few experts are left on the other ranks: every rank is hit
    log_miss += std::log1p(-m / left);
  }
  return -r * std::expm1(log_miss);
}

std::optional<double> expected_active_experts(int64_t experts, int64_t local, int64_t top_k, int64_t tokens,
                                              ExpertsErrors &errors) {
  const size_t before = errors.size();
  if (experts < 1)
    add(errors, "experts-logical", fmt::format("a model with experts has at least 1, got {}", experts),
        "model.moe.routed");
  if (local < 0 || local > experts)
    add(errors, "experts-local", fmt::format("a rank holds 0 … {} experts, got {}", experts, local),
        "axes.ep");
  if (tokens < 0)
    add(errors, "experts-tokens", fmt::format("tokens are at least 0, got {}", tokens),
        "workload.tokens_per_rank");
  check_top_k(top_k, experts, errors);
  if (errors.size() != before)
    return std::nullopt;
  if (tokens == 0 || top_k == 0)
    return 0.0; // at k = E the formula below has no value for no tokens: 0 · log 0
  const double chance = static_cast<double>(top_k) / static_cast<double>(experts);
  return -static_cast<double>(local) * std::expm1(static_cast<double>(tokens) * std::log1p(-chance));
}

} // namespace paratope
