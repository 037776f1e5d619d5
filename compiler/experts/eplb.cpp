// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/eplb.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>
#include <queue>

namespace paratope {
namespace {

// Items dealt to bins of equal size: result[bin] lists its items in the order they were put there.
using Bins = std::vector<std::vector<size_t>>;

// Heaviest item first, each into the lightest bin with room. The lowest index wins a tie, of items and of
// bins.
Bins pack(const std::vector<double> &weights, size_t num_bins) {
  const size_t room = weights.size() / num_bins;
  Bins bins(num_bins);
  if (room == 1) { // every bin holds one: nothing to balance, and nothing moves
    for (size_t i = 0; i < num_bins; ++i)
      bins[i].push_back(i);
    return bins;
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; });
  using Bin = std::pair<double, size_t>; // weight so far, index
  std::priority_queue<Bin, std::vector<Bin>, std::greater<>> open;
  for (size_t i = 0; i < num_bins; ++i)
    open.emplace(0.0, i);
  for (size_t item : order) {
    auto [weight, bin] = open.top();
    open.pop();
    bins[bin].push_back(item);
    if (bins[bin].size() < room)
      open.emplace(weight + weights[item], bin);
  }
  return bins;
}

// The expert of each of `num_slots` slots: first all experts in order, then, again and again, the one whose
// replicas carry most.
std::vector<size_t> replicate(const std::vector<double> &loads, size_t num_slots) {
  std::vector<size_t> slots(loads.size());
  std::iota(slots.begin(), slots.end(), size_t{0});
  std::vector<double> replicas(loads.size(), 1.0);
  using Expert = std::pair<double, size_t>; // load of one replica, index
  auto later = [](const Expert &a, const Expert &b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::priority_queue<Expert, std::vector<Expert>, decltype(later)> heaviest(later);
  for (size_t expert = 0; expert < loads.size(); ++expert)
    heaviest.emplace(loads[expert], expert);
  while (slots.size() < num_slots) {
    const size_t expert = heaviest.top().second;
    heaviest.pop();
    slots.push_back(expert);
    replicas[expert] += 1;
    heaviest.emplace(loads[expert] / replicas[expert], expert);
  }
  return slots;
}

// Replicates the experts of one node (or of all) into `num_slots` slots and packs them onto `num_ranks`
// ranks. Result: the expert, as an index into `loads`, of each slot in rank order.
std::vector<size_t> replicate_and_pack(const std::vector<double> &loads, size_t num_slots, size_t num_ranks) {
  const std::vector<size_t> replicas = replicate(loads, num_slots);
  std::vector<double> count(loads.size(), 0.0), weights;
  for (size_t expert : replicas)
    count[expert] += 1;
  for (size_t expert : replicas)
    weights.push_back(loads[expert] / count[expert]);
  std::vector<size_t> placed;
  for (const std::vector<size_t> &rank : pack(weights, num_ranks))
    for (size_t slot : rank)
      placed.push_back(replicas[slot]);
  return placed;
}

bool check(std::span<const double> loads, const EplbRequest &request, ExpertsErrors &errors) {
  const size_t before = errors.size();
  auto add = [&](const char *code, std::string message, const char *key) {
    errors.push_back({.code = code, .message = std::move(message), .key = key, .fix = ""});
  };
  const auto experts = static_cast<int64_t>(loads.size());
  if (loads.empty())
    add("eplb-no-loads", "eplb needs the load of each expert, got none", "moe.loads");
  for (size_t i = 0; i < loads.size(); ++i)
    if (!std::isfinite(loads[i]) || loads[i] < 0) {
      add("eplb-load", fmt::format("load of expert {} is a finite number of at least 0, got {}", i, loads[i]),
          "moe.loads");
      break; // one is enough: a file of them goes wrong as a whole
    }
  if (request.slots < experts)
    add("eplb-slots",
        fmt::format("every expert needs a slot: expected at least {}, got {}", experts, request.slots),
        "moe.min_redundant_experts");
  check_slots(request.slots, errors);
  if (request.ranks < 1 || request.slots % request.ranks != 0)
    add("eplb-ranks",
        fmt::format("ranks do not divide the slots: {} slots, got {} ranks", request.slots, request.ranks),
        "axes.ep");
  if (request.nodes < 1 || request.ranks % request.nodes != 0)
    add("eplb-nodes",
        fmt::format("nodes do not divide the ranks: {} ranks, got {} nodes", request.ranks, request.nodes),
        "machine.nodes");
  if (request.groups < 1 || experts % request.groups != 0)
    add("eplb-groups",
        fmt::format("expert groups do not divide the experts: {} experts, got {} groups", experts,
                    request.groups),
        "model.moe.groups");
  return errors.size() == before;
}

} // namespace

std::optional<std::vector<int64_t>> place_by_load(std::span<const double> loads, const EplbRequest &request,
                                                  ExpertsErrors &errors) {
  if (!check(loads, request, errors))
    return std::nullopt;
  const bool by_node = request.groups % request.nodes == 0;
  const size_t groups = by_node ? static_cast<size_t>(request.groups) : 1;
  const size_t nodes = by_node ? static_cast<size_t>(request.nodes) : 1;
  const size_t group_size = loads.size() / groups;
  std::vector<double> group_loads(groups, 0.0);
  for (size_t expert = 0; expert < loads.size(); ++expert)
    group_loads[expert / group_size] += loads[expert];

  std::vector<int64_t> slots;
  for (const std::vector<size_t> &node : pack(group_loads, nodes)) {
    std::vector<size_t> experts; // of this node, group after group
    std::vector<double> node_loads;
    for (size_t group : node)
      for (size_t i = 0; i < group_size; ++i) {
        experts.push_back(group * group_size + i);
        node_loads.push_back(loads[experts.back()]);
      }
    for (size_t placed : replicate_and_pack(node_loads, static_cast<size_t>(request.slots) / nodes,
                                            static_cast<size_t>(request.ranks) / nodes))
      slots.push_back(static_cast<int64_t>(experts[placed]));
  }
  return slots;
}

} // namespace paratope
