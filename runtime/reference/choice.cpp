// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace paratope::reference {
namespace {

// Indices 0 … n−1 by descending value, the lower index first on ties.
std::vector<int32_t> ranked(const Vector &values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return values[a] > values[b] || (values[a] == values[b] && a < b); });
  return order;
}

Vector group_values(const plan::Model &m, const Vector &choosing) {
  const int64_t size = m.routed / m.gate_groups;
  Vector values;
  for (int64_t g = 0; g < m.gate_groups; ++g) {
    Vector members(choosing.begin() + g * size, choosing.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    values.push_back(size > 1 ? members[0] + members[1] : members[0]);
  }
  return values;
}

std::vector<int32_t> best_groups(const plan::Model &m, const Vector &choosing) {
  std::vector<int32_t> groups = ranked(group_values(m, choosing));
  groups.resize(static_cast<size_t>(m.gate_top_groups));
  return groups;
}

bool holds(std::span<const int32_t> list, int32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::vector<int32_t> best_within(const plan::Model &m, const Vector &choosing,
                                 std::span<const int32_t> groups) {
  const int64_t size = m.routed / m.gate_groups;
  std::vector<int32_t> chosen;
  for (int32_t e : ranked(choosing))
    if (static_cast<int64_t>(chosen.size()) < m.top_k && holds(groups, static_cast<int32_t>(e / size)))
      chosen.push_back(e);
  return chosen;
}

// By how much the best thing only `own` has beats the worst thing only `other` has; 0 when they are the same
// set.
double boundary_gap(const Vector &values, std::span<const int32_t> own, std::span<const int32_t> other) {
  double best = -INFINITY, worst = INFINITY;
  for (int32_t i : own)
    if (!holds(other, i))
      best = std::max(best, values[i]);
  for (int32_t i : other)
    if (!holds(own, i))
      worst = std::min(worst, values[i]);
  return std::isinf(best) ? 0 : best - worst;
}

// The groups a run must have used: those of its experts, filled up with the best others.
std::vector<int32_t> observed_groups(const plan::Model &m, const Vector &choosing,
                                     std::span<const int32_t> observed) {
  std::vector<int32_t> groups;
  for (int32_t e : observed)
    if (const auto g = static_cast<int32_t>(e / (m.routed / m.gate_groups)); !holds(groups, g))
      groups.push_back(g);
  for (int32_t g : ranked(group_values(m, choosing)))
    if (static_cast<int64_t>(groups.size()) < m.gate_top_groups && !holds(groups, g))
      groups.push_back(g);
  return groups;
}

bool valid(const plan::Model &m, std::span<const int32_t> observed) {
  for (size_t i = 0; i < observed.size(); ++i)
    if (observed[i] < 0 || observed[i] >= m.routed || holds(observed.first(i), observed[i]))
      return false;
  return static_cast<int64_t>(observed.size()) == m.top_k;
}

} // namespace

std::vector<int32_t> best_experts(const plan::Model &m, const Vector &choosing) {
  return best_within(m, choosing, best_groups(m, choosing));
}

ExpertChoice judge_experts(const plan::Model &m, const Vector &choosing, std::span<const int32_t> observed,
                           double tie) {
  ExpertChoice choice;
  choice.own = choice.experts = best_experts(m, choosing);
  if (observed.empty())
    return choice;
  choice.verdict = Verdict::mismatch;
  choice.gap = INFINITY;
  if (!valid(m, observed))
    return choice;
  const std::vector<int32_t> groups = observed_groups(m, choosing, observed);
  if (static_cast<int64_t>(groups.size()) > m.gate_top_groups)
    return choice;
  double largest = 0;
  for (double value : choosing)
    largest = std::max(largest, std::abs(value));
  // Two boundaries can tie: that of the groups, and that of the experts inside the observed groups.
  choice.gap = boundary_gap(choosing, best_within(m, choosing, groups), observed);
  if (m.gate_groups > 1)
    choice.gap =
        std::max(choice.gap, boundary_gap(group_values(m, choosing), best_groups(m, choosing), groups));
  choice.gap = largest > 0 ? choice.gap / largest : choice.gap;
  if (std::is_permutation(observed.begin(), observed.end(), choice.own.begin(), choice.own.end()))
    choice.verdict = Verdict::agrees;
  else if (choice.gap <= tie) {
    choice.verdict = Verdict::tie;
    choice.experts.assign(observed.begin(), observed.end());
  }
  return choice;
}

IdChoice judge_id(const double *logits, int64_t vocab, int32_t observed, double tie) {
  IdChoice choice;
  double largest = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    largest = std::max(largest, std::abs(logits[v]));
    if (logits[v] > logits[choice.own])
      choice.own = static_cast<int32_t>(v);
  }
  choice.id = choice.own;
  if (observed < 0 || observed == choice.own)
    return choice;
  choice.gap =
      observed < vocab ? (logits[choice.own] - logits[observed]) / std::max(largest, 1e-300) : INFINITY;
  choice.verdict = choice.gap <= tie ? Verdict::tie : Verdict::mismatch;
  if (choice.verdict == Verdict::tie)
    choice.id = observed;
  return choice;
}

} // namespace paratope::reference
