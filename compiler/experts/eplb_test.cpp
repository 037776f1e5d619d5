// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/eplb.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace paratope {
namespace {

std::vector<int64_t> placed(const std::vector<double> &loads, const EplbRequest &request) {
  ExpertsErrors errors;
  const auto slots = place_by_load(loads, request, errors);
  EXPECT_TRUE(slots) << (errors.empty() ? "" : errors[0].message);
  return slots.value_or(std::vector<int64_t>{});
}

const std::vector<double> first_layer = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
const std::vector<double> second_layer = {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};

TEST(Eplb, PublishedExample) {
  // The example of https://github.com/deepseek-ai/EPLB: two layers of 12 experts in 4 groups, 16 slots on 2
  // nodes of 4 ranks.
  const EplbRequest request{.slots = 16, .groups = 4, .nodes = 2, .ranks = 8};
  EXPECT_EQ(placed(first_layer, request),
            (std::vector<int64_t>{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  EXPECT_EQ(placed(second_layer, request),
            (std::vector<int64_t>{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
}

TEST(Eplb, BalancesTheExample) {
  const EplbRequest request{.slots = 16, .groups = 4, .nodes = 2, .ranks = 8};
  const std::vector<int64_t> in_turn = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3};
  EXPECT_LT(imbalance(placed(first_layer, request), first_layer, 8), imbalance(in_turn, first_layer, 8));
  // Without the nodes' constraint it can only get better here.
  EXPECT_LE(
      imbalance(placed(first_layer, {.slots = 16, .groups = 1, .nodes = 1, .ranks = 8}), first_layer, 8),
      imbalance(placed(first_layer, request), first_layer, 8));
}

TEST(Eplb, TiesGoToTheLowestIndex) {
  EXPECT_EQ(placed({1, 1, 1, 1}, {.slots = 6, .groups = 1, .nodes = 1, .ranks = 2}),
            (std::vector<int64_t>{2, 0, 0, 3, 1, 1})); // 2 and 3 weigh 1, the four halves follow in turn
  EXPECT_EQ(placed({0, 0, 0, 0}, {.slots = 4, .groups = 1, .nodes = 1, .ranks = 4}),
            (std::vector<int64_t>{0, 1, 2, 3})); // every rank holds one: nothing moves
}

TEST(Eplb, GroupsThatNodesDoNotDivideUseOneGlobalPass) {
  EXPECT_EQ(placed(first_layer, {.slots = 16, .groups = 3, .nodes = 2, .ranks = 8}),
            placed(first_layer, {.slots = 16, .groups = 1, .nodes = 1, .ranks = 8}));
}

TEST(Eplb, LawsHoldForRandomLoads) {
  const uint64_t seed = 5;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 500; ++trial) {
    const int64_t nodes = int64_t{1} << random() % 3, ranks = nodes * (int64_t{1} << random() % 3);
    const int64_t groups = nodes * static_cast<int64_t>(random() % 2 + 1);
    const int64_t experts = groups * static_cast<int64_t>(random() % 4 + 1);
    const int64_t slots = (experts + static_cast<int64_t>(random() % 9) + ranks - 1) / ranks * ranks;
    std::vector<double> loads;
    for (int64_t i = 0; i < experts; ++i)
      loads.push_back(static_cast<double>(random() % 200));
    const std::vector<int64_t> place =
        placed(loads, {.slots = slots, .groups = groups, .nodes = nodes, .ranks = ranks});
    ASSERT_EQ(static_cast<int64_t>(place.size()), slots);
    // Every expert has a slot, a group's experts stay on one node, and no replica could be given better: the
    // heaviest share is not heavier than any other expert's would be with one replica fewer (inside a node).
    const auto replicas = replicas_of(place, experts);
    const int64_t node_slots = slots / nodes;
    std::vector<int64_t> node_of_group(static_cast<size_t>(groups), -1);
    for (int64_t expert = 0; expert < experts; ++expert) {
      const auto &slots_of = replicas[static_cast<size_t>(expert)];
      ASSERT_FALSE(slots_of.empty());
      for (int64_t slot : slots_of) {
        int64_t &node = node_of_group[static_cast<size_t>(expert / (experts / groups))];
        if (node < 0)
          node = slot / node_slots;
        ASSERT_EQ(slot / node_slots, node);
      }
    }
    for (int64_t a = 0; a < experts; ++a)
      for (int64_t b = 0; b < experts; ++b) {
        const auto &of_a = replicas[static_cast<size_t>(a)], &of_b = replicas[static_cast<size_t>(b)];
        if (of_a[0] / node_slots != of_b[0] / node_slots || of_b.size() == 1)
          continue;
        ASSERT_LE(loads[static_cast<size_t>(a)] / static_cast<double>(of_a.size()),
                  loads[static_cast<size_t>(b)] / static_cast<double>(of_b.size() - 1));
      }
  }
}

TEST(Eplb, RefusesWhatCannotBePlaced) {
  struct Slip {
    std::vector<double> loads;
    EplbRequest request;
    const char *code, *key, *message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Slip &slip : {
           Slip{{},
                {.slots = 4, .groups = 1, .nodes = 1, .ranks = 2},
                "eplb-no-loads",
                "moe.loads",
                "eplb needs the load of each expert, got none"},
           Slip{{1, -2, 3, -4},
                {.slots = 4, .groups = 1, .nodes = 1, .ranks = 2},
                "eplb-load",
                "moe.loads",
                "load of expert 1 is a finite number of at least 0, got -2"},
           Slip{{1, nan},
                {.slots = 4, .groups = 1, .nodes = 1, .ranks = 2},
                "eplb-load",
                "moe.loads",
                "load of expert 1 is a finite number of at least 0, got nan"},
           Slip{{1, 2, 3, 4},
                {.slots = 2, .groups = 1, .nodes = 1, .ranks = 2},
                "eplb-slots",
                "moe.min_redundant_experts",
                "every expert needs a slot: expected at least 4, got 2"},
           Slip{{1, 2, 3, 4},
                {.slots = 5, .groups = 1, .nodes = 1, .ranks = 2},
                "eplb-ranks",
                "axes.ep",
                "ranks do not divide the slots: 5 slots, got 2 ranks"},
           Slip{{1, 2, 3, 4},
                {.slots = 4, .groups = 1, .nodes = 1, .ranks = 0},
                "eplb-ranks",
                "axes.ep",
                "ranks do not divide the slots: 4 slots, got 0 ranks"},
           Slip{{1, 2, 3, 4},
                {.slots = 4, .groups = 1, .nodes = 3, .ranks = 2},
                "eplb-nodes",
                "machine.nodes",
                "nodes do not divide the ranks: 2 ranks, got 3 nodes"},
           Slip{{1, 2, 3, 4},
                {.slots = 4, .groups = 3, .nodes = 1, .ranks = 2},
                "eplb-groups",
                "model.moe.groups",
                "expert groups do not divide the experts: 4 experts, got 3 groups"},
           Slip{{1},
                {.slots = int64_t{1} << 40, .groups = 1, .nodes = 1, .ranks = 1},
                "experts-too-many",
                "moe.min_redundant_experts",
                "at most 16777216 physical experts can be placed, got 1099511627776"},
       }) {
    ExpertsErrors errors;
    EXPECT_FALSE(place_by_load(slip.loads, slip.request, errors));
    ASSERT_EQ(errors.size(), 1u) << slip.message;
    EXPECT_EQ(errors[0].code, slip.code);
    EXPECT_EQ(errors[0].key, slip.key);
    EXPECT_EQ(errors[0].message, slip.message);
  }
}

} // namespace
} // namespace paratope
