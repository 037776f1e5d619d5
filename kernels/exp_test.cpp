// SPDX-License-Identifier: Apache-2.0
#include "kernels/exp.h"

#include "kernels/testing.h"

namespace paratope {
namespace {

double exp_of(double x) {
  exp_each(&x, 1);
  return x;
}

TEST(Exp, IsWithinALastBitOrTwo) {
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = -707.9 + 1415.8 * i / 100000;
    const long double exact = std::exp(static_cast<long double>(x));
    worst = std::max(worst, static_cast<double>(std::abs((exp_of(x) - exact) / exact)));
  }
  EXPECT_LT(worst, 4e-16);
  EXPECT_EQ(exp_of(0), 1.0);
}

TEST(Exp, EveryLengthGivesTheBitsOfASingleOne) {
  for (int64_t n : {0, 1, 2, 3, 7, 8, 33}) {
    const auto x = testing_support::random_floats(n, 1);
    std::vector<double> many(x.begin(), x.end());
    exp_each(many.data(), n);
    for (int64_t i = 0; i < n; ++i)
      EXPECT_EQ(many[i], exp_of(x[i]));
  }
}

TEST(Exp, FarArgumentsAreClampedAndNanStays) {
  EXPECT_EQ(exp_of(-1e9), exp_of(-708));
  EXPECT_EQ(exp_of(-INFINITY), exp_of(-708));
  EXPECT_EQ(exp_of(INFINITY), exp_of(708));
  EXPECT_LT(exp_of(-708), 1e-300);
  EXPECT_GT(exp_of(708), 1e300);
  EXPECT_TRUE(std::isnan(exp_of(NAN)));
  EXPECT_TRUE(std::isnan(exp_of(-NAN)));
  EXPECT_TRUE(std::isnan(exp_of(static_cast<double>(std::numeric_limits<float>::quiet_NaN()))));
}

} // namespace
} // namespace paratope
