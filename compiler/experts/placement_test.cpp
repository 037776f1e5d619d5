// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/placement.h"

#include <gtest/gtest.h>

namespace paratope {
namespace {

std::vector<int64_t> contiguous(int64_t logical, int64_t least, int64_t ep) {
  ExpertsErrors errors;
  return place_contiguous(count_experts(logical, least, ep, errors).value(), errors).value();
}

TEST(Placement, ContiguousGivesExtraSlotsInTurn) {
  EXPECT_EQ(contiguous(4, 2, 2), (std::vector<int64_t>{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(contiguous(3, 0, 8),
            (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1})); // more extra slots than experts
  EXPECT_EQ(contiguous(384, 1, 64)[384], 0);
  EXPECT_EQ(contiguous(384, 1, 64)[447], 63);
}

TEST(Placement, ReplicasAreTheInverse) {
  EXPECT_EQ(replicas_of(contiguous(4, 2, 2), 4),
            (std::vector<std::vector<int64_t>>{{0, 4}, {1, 5}, {2}, {3}}));
}

TEST(Placement, LoadIsSharedByReplicas) {
  // ranks hold 0 1 2 | 3 0 1; experts 0 and 1 halve theirs
  const std::vector<double> loads = {8, 4, 2, 6};
  EXPECT_EQ(rank_loads(contiguous(4, 2, 2), loads, 2), (std::vector<double>{8, 12}));
  EXPECT_DOUBLE_EQ(imbalance(contiguous(4, 2, 2), loads, 2), 1.2);
  EXPECT_DOUBLE_EQ(imbalance(contiguous(4, 2, 2), loads, 1), 1);
  EXPECT_DOUBLE_EQ(imbalance(contiguous(4, 0, 4), std::vector<double>{0, 0, 5, 0}, 4),
                   4); // all on one of four
  EXPECT_DOUBLE_EQ(imbalance(contiguous(4, 0, 4), std::vector<double>{0, 0, 0, 0}, 4), 1);
}

TEST(Placement, RefusesMoreSlotsThanATableShouldHave) {
  ExpertsErrors errors;
  const auto counts = count_experts(max_slots, 1, 1, errors);
  ASSERT_TRUE(counts);
  EXPECT_FALSE(place_contiguous(*counts, errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].code, "experts-too-many");
  EXPECT_EQ(errors[0].message, "at most 16777216 physical experts can be placed, got 16777217");
}

} // namespace
} // namespace paratope
