// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/op.h"

#include "kernels/testing.h"

namespace paratope {
namespace {

using namespace testing_support;

TEST(Linear, EqualsNaiveSums) {
  for (int64_t t : {0, 1, 3, 8})
    for (int64_t n : {1, 5, 64})
      for (int64_t k : {1, 6, 33, 64}) {
        const auto x = random_floats(t * k, 3), w = random_floats(n * k, 4);
        auto y = poisoned(t * n);
        linear({x.data(), t, k}, w.data(), {y.data(), t, n});
        std::vector<double> expected;
        for (int64_t i = 0; i < t; ++i)
          for (int64_t j = 0; j < n; ++j) {
            expected.push_back(0);
            for (int64_t c = 0; c < k; ++c)
              expected.back() += static_cast<double>(x[i * k + c]) * w[j * k + c];
          }
        EXPECT_LT(error_of(y, expected), rounding) << t << " " << n << " " << k;
      }
}

TEST(Linear, ATokensBitsDoNotDependOnItsBatch) {
  const auto x = random_floats(7 * 20, 3), w = random_floats(9 * 20, 4);
  auto all = poisoned(7 * 9);
  linear({x.data(), 7, 20}, w.data(), {all.data(), 7, 9});
  for (int64_t i = 0; i < 7; ++i) {
    auto one = poisoned(9);
    linear({x.data() + i * 20, 1, 20}, w.data(), {one.data(), 1, 9});
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + i * 9));
  }
}

TEST(Linear, RefusesOtherRowCounts) {
  std::vector<float> x(6), w(9), y(9);
  EXPECT_EQ(message_of([&] { linear({x.data(), 2, 3}, w.data(), {y.data(), 3, 3}); }),
            "linear: got rows of y 3, expected 2");
}

TEST(Embed, TakesRowsAndRefusesIdsOutsideTheVocabulary) {
  const auto table = random_floats(5 * 3, 1);
  auto y = poisoned(2 * 3);
  embed(std::vector<int32_t>{4, 0}, table.data(), 5, {y.data(), 2, 3});
  EXPECT_TRUE(std::equal(y.begin(), y.begin() + 3, table.begin() + 12));
  EXPECT_TRUE(std::equal(y.begin() + 3, y.end(), table.begin()));
  EXPECT_EQ(message_of([&] { embed(std::vector<int32_t>{1, 5}, table.data(), 5, {y.data(), 2, 3}); }),
            "embed: got token id 5 in row 1, expected 0 to 4");
  EXPECT_EQ(message_of([&] { embed(std::vector<int32_t>{-1}, table.data(), 5, {y.data(), 1, 3}); }),
            "embed: got token id -1 in row 0, expected 0 to 4");
}

TEST(Argmax, TakesTheLowestIndexOnTiesAndRefusesNan) {
  std::vector<float> logits{1, 3, 3, -1, -7, -7, -8, -9};
  std::vector<int32_t> ids{9, 9};
  argmax({logits.data(), 2, 4}, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 0}));
  logits[6] = NAN;
  EXPECT_EQ(message_of([&] { argmax({logits.data(), 2, 4}, ids); }),
            "argmax: got NaN as logit 2 of row 1, expected a number");
  EXPECT_EQ(message_of([&] { argmax({logits.data(), 2, 0}, ids); }),
            "argmax: got logits a row 0, expected 1 or more");
}

TEST(Slice, BlocksCoverEveryRowOnce) {
  for (int64_t rows : {0, 1, 5, 8, 13})
    for (int64_t n : {1, 2, 3, 7}) {
      int64_t next = 0;
      for (int64_t j = 0; j < n; ++j) {
        const RowRange range = slice_range(rows, j, n);
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.end, rows * (j + 1) / n);
        next = range.end;
      }
      EXPECT_EQ(next, rows);
    }
  const auto x = random_floats(5 * 2, 1);
  auto y = poisoned(2 * 2);
  slice_rows({x.data(), 5, 2}, 1, 3, {y.data(), 2, 2});
  EXPECT_TRUE(std::equal(y.begin(), y.end(), x.begin() + 2));
  EXPECT_EQ(message_of([&] { slice_rows({x.data(), 5, 2}, 3, 3, {y.data(), 2, 2}); }),
            "slice_rows: got block 3 in row 0, expected 0 to 2");
}

} // namespace
} // namespace paratope
