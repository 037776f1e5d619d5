// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/layout.h"

#include <gtest/gtest.h>
#include <random>

namespace paratope {
namespace {

std::vector<int64_t> values(const StridedLayout &layout) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size(layout); ++i)
    all.push_back(layout(i));
  return all;
}

TEST(StridedLayout, OuterModeFirst) {
  const StridedLayout layout{{{4, 1}, {2, 4}}};
  EXPECT_EQ(to_string(layout), "(4,2):(1,4)");
  EXPECT_EQ(values(layout), (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(size(layout), 8);
  EXPECT_EQ(cosize(layout), 8);
  EXPECT_EQ(values(StridedLayout{}), (std::vector<int64_t>{0}));
  EXPECT_EQ(size(StridedLayout{{{int64_t{1} << 40, 1}, {int64_t{1} << 40, 1}, {0, 1}}}), 0);
  EXPECT_EQ(cosize(StridedLayout{{{3, 5}, {0, 1}}}), 0);
}

TEST(StridedLayout, CoalesceKeepsTheFunction) {
  EXPECT_EQ(coalesce({{{2, 4}, {2, 2}, {2, 1}}}), (StridedLayout{{{8, 1}}}));
  EXPECT_EQ(coalesce({{{2, 8}, {1, 99}, {2, 2}, {2, 1}}}), (StridedLayout{{{2, 8}, {4, 1}}}));
  EXPECT_EQ(coalesce({{{2, 1}, {2, 2}}}), (StridedLayout{{{2, 1}, {2, 2}}}));
}

TEST(StridedLayout, ComposeByHand) {
  const StridedLayout column{{{4, 1}, {2, 4}}}; // 0 4 1 5 2 6 3 7
  EXPECT_EQ(compose(column, {{{2, 4}, {4, 1}}}), (StridedLayout{{{2, 2}, {2, 1}, {2, 4}}}));
  EXPECT_EQ(compose(column, {{{4, 2}}}), (StridedLayout{{{4, 1}}}));
  EXPECT_EQ(compose(column, {{{3, 0}}}), (StridedLayout{{{3, 0}}}));
}

TEST(StridedLayout, ComposeRefusesWhatIsNoLayout) {
  const StridedLayout column{{{2, 1}, {3, 2}}};                  // 0 2 4 1 3 5
  EXPECT_FALSE(compose(column, {{{3, 2}, {2, 1}}}));             // 2 does not divide the boundary at 3
  EXPECT_FALSE(compose({{{4, 1}, {2, 4}}}, {{{4, 1}, {2, 1}}})); // digits carry: 1 + 1
  EXPECT_FALSE(compose(column, {{{7, 1}}}));                     // offset 6 is outside
  EXPECT_FALSE(compose({{{0, 1}}}, {{{2, 1}}}));
  EXPECT_EQ(compose(column, {{{0, 1}}}), (StridedLayout{{{0, 1}}})); // nothing to look up
}

TEST(StridedLayout, ComposeIsComposition) {
  // Random pairs: wherever a composition is given it is the composition, its modes refine inner's, and for
  // power-of-two sizes of equal extent it always exists.
  const uint64_t seed = 20;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const int64_t factors[] = {1, 2, 3, 4};
  int composed = 0, refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const bool twos = trial % 2 == 0;
    // A shuffled mixed-radix numbering of the same number of indices on both sides.
    auto draw = [&](int64_t extent) {
      std::vector<Mode> modes;
      int64_t stride = 1;
      while (stride < extent) {
        int64_t part = twos ? int64_t{1} << random() % 3 : factors[random() % 4];
        if (extent / stride % part != 0)
          part = extent / stride;
        modes.push_back({part, stride});
        stride *= part;
      }
      std::shuffle(modes.begin(), modes.end(), random);
      return StridedLayout{modes};
    };
    const int64_t extent =
        twos ? int64_t{1} << random() % 7 : std::array<int64_t, 5>{6, 12, 24, 36, 72}[random() % 5];
    const StridedLayout outer = draw(extent), inner = draw(extent);
    const auto both = compose(outer, inner);
    EXPECT_TRUE(both || !twos) << to_string(outer) << " o " << to_string(inner);
    if (!both) {
      ++refused;
      continue;
    }
    ++composed;
    ASSERT_EQ(size(*both), size(inner));
    for (int64_t i = 0; i < size(inner); ++i)
      ASSERT_EQ((*both)(i), outer(inner(i))) << to_string(outer) << " o " << to_string(inner);
    size_t part = 0;
    for (const Mode &mode : inner.modes) {
      int64_t covered = 1;
      while (covered < mode.size)
        covered *= both->modes.at(part++).size;
      ASSERT_EQ(covered, mode.size);
    }
    ASSERT_EQ(values(coalesce(*both)), values(*both));
  }
  EXPECT_GT(composed, 10000);
  EXPECT_GT(refused, 100);
}

} // namespace
} // namespace paratope
