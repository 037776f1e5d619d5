// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot.h"

#include "kernels/testing.h"

namespace paratope {
namespace {

using namespace testing_support;

TEST(Dot, EveryBlockingGivesTheBitsOfASingleDot) {
  for (int64_t n : {0, 1, 2, 3, 4, 5, 7, 8, 31, 64, 101})
    for (int64_t num_a : {0, 1, 2, 3, 5})
      for (int64_t num_b : {0, 1, 2, 3, 8, 9}) {
        const auto a = random_floats(num_a * (n + 3), 1), b = random_floats(num_b * (n + 1), 2);
        std::vector<double> y(static_cast<size_t>(num_a * num_b), NAN);
        std::vector<float> f = poisoned(num_a * num_b);
        dot_block(a.data(), n + 3, num_a, b.data(), n + 1, num_b, n, y.data(), num_b);
        dot_block(a.data(), n + 3, num_a, b.data(), n + 1, num_b, n, f.data(), num_b);
        for (int64_t i = 0; i < num_a; ++i)
          for (int64_t j = 0; j < num_b; ++j) {
            double naive = 0, magnitude = 0;
            for (int64_t k = 0; k < n; ++k) {
              naive += static_cast<double>(a[i * (n + 3) + k]) * b[j * (n + 1) + k];
              magnitude += std::abs(static_cast<double>(a[i * (n + 3) + k]) * b[j * (n + 1) + k]);
            }
            const double single = dot(a.data() + i * (n + 3), b.data() + j * (n + 1), n);
            EXPECT_EQ(y[i * num_b + j], single);
            EXPECT_EQ(f[i * num_b + j], static_cast<float>(single));
            EXPECT_NEAR(single, naive, magnitude * 1e-14);
          }
      }
}

TEST(Dot, OrderIsFourLanesThenPairs) {
  // 2⁵³ + 1 − 2⁵³ is 0 when 1 meets 2⁵³ first, and 1 when it waits in a lane of its own.
  const float big = 9007199254740992.0F;
  const std::vector<float> ones(8, 1.0F);
  EXPECT_EQ(dot(std::vector<float>{big, 0, 1, 0, -big, 0, 0, 0}.data(), ones.data(), 8), 1.0);
  EXPECT_EQ(dot(std::vector<float>{big, 1, 0, 0, 0, 0, -big, 0}.data(), ones.data(), 8), 0.0);
}

TEST(Dot, NanOfAnOperandArrives) {
  std::vector<float> a(7, 1.0F), b(7, 1.0F);
  a[6] = NAN;
  EXPECT_TRUE(std::isnan(dot(a.data(), b.data(), 7)));
}

TEST(WeightedRows, AddsRowsInOrderWhateverTheBlocking) {
  for (int64_t rows : {0, 1, 5})
    for (int64_t num_w : {1, 3, 4, 6})
      for (int64_t n : {1, 7, 8, 9, 16, 21}) {
        const auto v = random_floats(rows * (n + 2), 1), weights = random_floats(num_w * rows, 2);
        const std::vector<double> w(weights.begin(), weights.end());
        std::vector<double> y(static_cast<size_t>(num_w * n), 0.5), expected = y;
        weighted_rows(w.data(), rows, num_w, v.data(), n + 2, rows, n, y.data(), n);
        for (int64_t i = 0; i < num_w; ++i)
          for (int64_t c = 0; c < n; ++c) {
            double sum = 0;
            for (int64_t r = 0; r < rows; ++r)
              sum += w[i * rows + r] * v[r * (n + 2) + c];
            expected[i * n + c] += sum;
          }
        EXPECT_EQ(y, expected);
      }
}

TEST(Checks, SayWhatWasGotAndExpected) {
  EXPECT_EQ(message_of([] { check_equal("op", "rows of y", 3, 4); }), "op: got rows of y 3, expected 4");
  EXPECT_EQ(message_of([] { check_index("op", "token id", 9, 9, 2); }),
            "op: got token id 9 in row 2, expected 0 to 8");
  EXPECT_EQ(message_of([] { check_index("op", "token id", -1, 9, 2); }),
            "op: got token id -1 in row 2, expected 0 to 8");
  EXPECT_EQ(message_of([] { check_positive("op", "heads", 0); }), "op: got heads 0, expected 1 or more");
}

} // namespace
} // namespace paratope
