// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/redundancy.h"

#include <gtest/gtest.h>

namespace paratope {
namespace {

TEST(Redundancy, WorkedTable) {
  struct Row {
    int64_t logical, min_redundant, ep, extra, physical, local;
  };
  for (const Row &row :
       {Row{384, 1, 64, 64, 448, 7}, Row{384, 1, 8, 8, 392, 49}, Row{384, 0, 64, 0, 384, 6}}) {
    ExpertsErrors errors;
    const auto counts = count_experts(row.logical, row.min_redundant, row.ep, errors);
    ASSERT_TRUE(counts);
    EXPECT_EQ(counts->extra, row.extra);
    EXPECT_EQ(counts->physical, row.physical);
    EXPECT_EQ(counts->local, row.local);
  }
}

TEST(Redundancy, TheLeastTotalThatDivides) {
  for (int64_t logical = 1; logical < 40; ++logical)
    for (int64_t least = 0; least < 12; ++least)
      for (int64_t ep = 1; ep < 20; ++ep) {
        ExpertsErrors errors;
        const auto counts = count_experts(logical, least, ep, errors);
        ASSERT_TRUE(counts);
        EXPECT_EQ(counts->physical, counts->local * ep);
        EXPECT_EQ(counts->physical, logical + counts->extra);
        EXPECT_EQ(counts->extra, least + counts->padding);
        EXPECT_GE(counts->padding, 0);
        EXPECT_LT(counts->padding, ep);
      }
}

TEST(Redundancy, SaysWhichKeyIsWrong) {
  struct Slip {
    int64_t logical, min_redundant, ep;
    const char *code, *key, *message;
  };
  for (const Slip &slip : {
           Slip{0, 0, 1, "experts-logical", "model.moe.routed", "a model with experts has at least 1, got 0"},
           Slip{8, -1, 1, "experts-redundant", "moe.min_redundant_experts",
                "min_redundant_experts is at least 0, got -1"},
           Slip{8, 0, 0, "experts-ep", "axes.ep", "ep is at least 1, got 0"},
           Slip{
               INT64_MAX, 1, 2, "experts-overflow", "moe.min_redundant_experts",
               "physical experts are beyond 2^63 - 1: logical 9223372036854775807 + redundant 1, padded to a "
               "multiple of ep 2"},
           Slip{
               8, INT64_MAX - 8, 64, "experts-overflow", "moe.min_redundant_experts",
               "physical experts are beyond 2^63 - 1: logical 8 + redundant 9223372036854775799, padded to a "
               "multiple of ep 64"},
       }) {
    ExpertsErrors errors;
    EXPECT_FALSE(count_experts(slip.logical, slip.min_redundant, slip.ep, errors));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, slip.code);
    EXPECT_EQ(errors[0].key, slip.key);
    EXPECT_EQ(errors[0].message, slip.message);
  }
  ExpertsErrors errors;
  EXPECT_FALSE(count_experts(0, -1, 0, errors));
  EXPECT_EQ(errors.size(), 3u);
}

} // namespace
} // namespace paratope
