// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/digits.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace paratope {
namespace {

std::vector<int64_t> values(const DigitSum &sum, int64_t world) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < world; ++rank)
    all.push_back(sum(rank));
  return all;
}

TEST(DigitSum, Evaluates) {
  const DigitSum color{{{8, 2, 2}, {1, 2, 1}}, {}};
  EXPECT_EQ(to_string(color), "r / 8 % 2 * 2 + r % 2");
  EXPECT_EQ(values(color, 16), (std::vector<int64_t>{0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3}));
  EXPECT_EQ(to_string(DigitSum{}), "0");
  const DigitSum table{{}, {3, 1, 2}};
  EXPECT_EQ(table(2), 2);
  EXPECT_EQ(to_string(table), "table of 3");
}

TEST(DigitSum, CanonicalDropsAndMerges) {
  EXPECT_EQ(canonical({{{4, 2, 4}, {8, 1, 7}, {2, 2, 2}, {1, 2, 1}, {16, 2, 0}}, {}}),
            (DigitSum{{{1, 8, 1}}, {}}));
  EXPECT_EQ(canonical({{{1, 2, 2}, {2, 2, 1}}, {}}), (DigitSum{{{2, 2, 1}, {1, 2, 2}}, {}}));
}

TEST(DigitSum, EqualFunctionsAreEqualValues) {
  // All sums of digits over small worlds, by brute force: two canonical forms are equal exactly when the
  // functions are, and the function alone gives the canonical form back.
  const uint64_t seed = 7;
  std::mt19937_64 random(seed);
  SCOPED_TRACE(seed);
  for (int64_t world : {8, 12, 24, 30}) {
    std::map<std::vector<int64_t>, DigitSum> form_of;
    std::map<std::string, std::vector<int64_t>> values_of;
    for (int trial = 0; trial < 4000; ++trial) {
      // A random factorisation of the world, of which a random part is kept, with muls that number it in a
      // random order.
      std::vector<Digit> digits;
      int64_t place = 1;
      while (place < world) {
        int64_t mod = static_cast<int64_t>(random() % 4 + 1);
        if (world / place % mod != 0)
          mod = world / place;
        if (random() % 3 != 0)
          digits.push_back({place, mod, 0});
        place *= mod;
      }
      std::shuffle(digits.begin(), digits.end(), random);
      int64_t mul = 1;
      for (Digit &digit : digits) {
        digit.mul = mul;
        mul *= digit.mod;
      }
      const DigitSum given{digits, {}};
      const DigitSum form = canonical(given);
      const std::vector<int64_t> function = values(given, world);
      ASSERT_EQ(values(form, world), function);
      const auto recovered = digits_of(function);
      ASSERT_TRUE(recovered) << to_string(given);
      ASSERT_EQ(*recovered, form) << to_string(given);
      ASSERT_EQ(form_of.emplace(function, form).first->second, form);
      ASSERT_EQ(values_of.emplace(to_string(form), function).first->second, function);
      const StridedLayout back = inverse_layout(form);
      ASSERT_EQ(size(back), mul);
      for (int64_t i = 0; i < mul; ++i)
        ASSERT_EQ(form(back(i)), i) << to_string(form);
    }
    EXPECT_GT(form_of.size(), 8u);
  }
}

TEST(DigitSum, NoClosedFormWhereThereIsNone) {
  EXPECT_FALSE(digits_of({0, 1, 1, 0}));
  EXPECT_FALSE(digits_of({1, 0}));
  EXPECT_FALSE(digits_of({0, 0, 1})); // a digit that does not fill the world
  EXPECT_FALSE(digits_of({0, 3, 1, 2}));
  EXPECT_EQ(digits_of({0, 0, 0}), DigitSum{});
  EXPECT_EQ(digits_of({}), DigitSum{});
}

} // namespace
} // namespace paratope
