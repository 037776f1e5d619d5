// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm/op.h"

#include "kernels/testing.h"

namespace paratope {
namespace {

using namespace testing_support;

TEST(RmsNorm, EqualsTheFormulaAndCopiesTheRest) {
  for (int64_t t : {0, 1, 4})
    for (int64_t n : {1, 7, 64})
      for (int64_t dims : {int64_t{0}, (n + 1) / 2}) {
        const auto x = random_floats(t * n, 1), gain = random_floats(n, 2);
        auto y = poisoned(t * n);
        rms_norm({x.data(), t, n}, gain.data(), 1e-6, {y.data(), t, n}, dims);
        const int64_t normed = dims == 0 ? n : dims;
        std::vector<double> expected(x.begin(), x.end());
        for (int64_t i = 0; i < t; ++i) {
          double square = 0;
          for (int64_t c = 0; c < normed; ++c)
            square += static_cast<double>(x[i * n + c]) * x[i * n + c];
          for (int64_t c = 0; c < normed; ++c)
            expected[i * n + c] *= gain[c] / std::sqrt(square / static_cast<double>(normed) + 1e-6);
        }
        EXPECT_LT(error_of(y, expected), rounding);
        auto in_place = x;
        rms_norm({in_place.data(), t, n}, gain.data(), 1e-6, {in_place.data(), t, n}, dims);
        EXPECT_EQ(in_place, y);
      }
  std::vector<float> x(6, 1.0F);
  EXPECT_EQ(message_of([&] { rms_norm({x.data(), 2, 3}, x.data(), 0, {x.data(), 2, 3}, 4); }),
            "rms_norm: got dims 4, expected 1 to 3");
}

TEST(Add, SumsLeftToRight) {
  const auto a = random_floats(6, 1), b = random_floats(6, 2), c = random_floats(6, 3);
  auto y = poisoned(6);
  const ConstRows operands[] = {{a.data(), 2, 3}, {b.data(), 2, 3}, {c.data(), 2, 3}};
  add(operands, {y.data(), 2, 3});
  std::vector<double> expected;
  for (size_t i = 0; i < 6; ++i)
    expected.push_back(static_cast<double>(a[i]) + b[i] + c[i]);
  EXPECT_LT(error_of(y, expected), rounding);
  const ConstRows uneven[] = {{a.data(), 2, 3}, {b.data(), 3, 2}};
  EXPECT_EQ(message_of([&] { add(uneven, {y.data(), 2, 3}); }), "add: got rows of an operand 3, expected 2");
  EXPECT_EQ(message_of([&] { add({}, {y.data(), 2, 3}); }), "add: got operands 0, expected 1 or more");
}

struct Mixed {
  std::vector<double> x, mix;
};

// The formulas of hyper-connections for one token, written out.
Mixed naive_hc_pre(const float *wide, int64_t n, int64_t hidden, const std::vector<float> &fn,
                   const std::vector<float> &scale, const std::vector<float> &base) {
  double square = 0;
  for (int64_t i = 0; i < n * hidden; ++i)
    square += static_cast<double>(wide[i]) * wide[i];
  const double factor = 1 / std::sqrt(square / static_cast<double>(n * hidden) + 1e-6);
  auto mix = [&](int64_t i, int part) {
    double total = 0;
    for (int64_t c = 0; c < n * hidden; ++c)
      total += static_cast<double>(wide[c]) * fn[i * n * hidden + c];
    return total * factor * scale[part] + base[i];
  };
  Mixed out{std::vector<double>(hidden, 0.0), {}};
  for (int64_t s = 0; s < n; ++s) {
    const double pre = 1 / (1 + std::exp(-mix(s, 0))) + 1e-6;
    for (int64_t h = 0; h < hidden; ++h)
      out.x[h] += pre * wide[s * hidden + h];
  }
  for (int64_t j = 0; j < n; ++j)
    out.mix.push_back(2 / (1 + std::exp(-mix(n + j, 1))));
  std::vector<std::vector<double>> comb(n, std::vector<double>(n));
  for (int64_t m = 0; m < n; ++m) {
    double total = 0;
    for (int64_t j = 0; j < n; ++j)
      total += std::exp(mix(2 * n + m * n + j, 2));
    for (int64_t j = 0; j < n; ++j)
      comb[m][j] = std::exp(mix(2 * n + m * n + j, 2)) / total + 1e-6;
  }
  for (int i = 0; i < 20; ++i) {
    for (auto &row : comb) {
      double total = 1e-6;
      for (double value : row)
        total += value;
      for (double &value : row)
        value /= total;
    }
    for (int64_t j = 0; j < n; ++j) {
      double total = 1e-6;
      for (auto &row : comb)
        total += row[j];
      for (auto &row : comb)
        row[j] /= total;
    }
  }
  for (auto &row : comb)
    out.mix.insert(out.mix.end(), row.begin(), row.end());
  return out;
}

TEST(HyperConnections, EqualTheFormulas) {
  for (int64_t t : {0, 1, 3})
    for (int64_t n : {1, 2, 4})
      for (int64_t hidden : {1, 9, 32}) {
        const int64_t mixes = n * n + 2 * n;
        const auto wide = random_floats(t * n * hidden, 1), fn = random_floats(mixes * n * hidden, 2);
        const auto scale = random_floats(3, 3), base = random_floats(mixes, 4),
                   f = random_floats(t * hidden, 5);
        auto x = poisoned(t * hidden), mix = poisoned(t * (n + n * n)), out = poisoned(t * n * hidden);
        hc_pre({wide.data(), t, n * hidden}, n, fn.data(), scale.data(), base.data(), {x.data(), t, hidden},
               {mix.data(), t, n + n * n});
        hc_post({wide.data(), t, n * hidden}, {f.data(), t, hidden}, {mix.data(), t, n + n * n}, n,
                {out.data(), t, n * hidden});
        std::vector<double> x_expected, mix_expected, out_expected;
        for (int64_t i = 0; i < t; ++i) {
          const float *row = wide.data() + i * n * hidden;
          const Mixed naive = naive_hc_pre(row, n, hidden, fn, scale, base);
          x_expected.insert(x_expected.end(), naive.x.begin(), naive.x.end());
          mix_expected.insert(mix_expected.end(), naive.mix.begin(), naive.mix.end());
          for (int64_t j = 0; j < n; ++j)
            for (int64_t h = 0; h < hidden; ++h) {
              double total = naive.mix[j] * f[i * hidden + h];
              for (int64_t m = 0; m < n; ++m)
                total += naive.mix[n + m * n + j] * row[m * hidden + h];
              out_expected.push_back(total);
            }
        }
        EXPECT_LT(error_of(x, x_expected), rounding);
        EXPECT_LT(error_of(mix, mix_expected), rounding);
        EXPECT_LT(error_of(out, out_expected), 2 * rounding);
        auto in_place = wide;
        hc_post({in_place.data(), t, n * hidden}, {f.data(), t, hidden}, {mix.data(), t, n + n * n}, n,
                {in_place.data(), t, n * hidden});
        EXPECT_EQ(in_place, out);
      }
}

TEST(HyperConnections, CombIsDoublyStochastic) {
  const int64_t n = 4, hidden = 8, mixes = n * n + 2 * n;
  const auto wide = random_floats(n * hidden, 1), fn = random_floats(mixes * n * hidden, 2);
  const std::vector<float> scale(3, 0.1F), base(mixes, 0.0F);
  auto x = poisoned(hidden), mix = poisoned(n + n * n);
  hc_pre({wide.data(), 1, n * hidden}, n, fn.data(), scale.data(), base.data(), {x.data(), 1, hidden},
         {mix.data(), 1, n + n * n});
  for (int64_t i = 0; i < n; ++i) {
    double row = 0, column = 0;
    for (int64_t j = 0; j < n; ++j) {
      row += mix[n + i * n + j];
      column += mix[n + j * n + i];
    }
    EXPECT_NEAR(row, 1, 1e-5);
    EXPECT_NEAR(column, 1, 1e-5);
  }
}

TEST(HyperConnections, ExpandAndSum) {
  const auto x = random_floats(2 * 3, 1);
  auto wide = poisoned(2 * 12), sum = poisoned(2 * 3);
  hc_expand({x.data(), 2, 3}, 4, {wide.data(), 2, 12});
  hc_sum({wide.data(), 2, 12}, 4, {sum.data(), 2, 3});
  std::vector<double> expected;
  for (float value : x)
    expected.push_back(4.0 * value);
  EXPECT_LT(error_of(sum, expected), rounding);
}

TEST(HyperConnections, RefuseOtherShapes) {
  std::vector<float> d(100);
  EXPECT_EQ(message_of([&] { hc_expand({d.data(), 2, 3}, 4, {d.data(), 2, 9}); }),
            "hc_expand: got row size of X 9, expected 12");
  EXPECT_EQ(message_of([&] { hc_sum({d.data(), 2, 9}, 4, {d.data(), 2, 3}); }),
            "hc_sum: got row size of X 9, expected 12");
  EXPECT_EQ(message_of([&] {
              hc_pre({d.data(), 2, 6}, 2, d.data(), d.data(), d.data(), {d.data(), 2, 3}, {d.data(), 2, 5});
            }),
            "hc_pre: got row size of mix 5, expected 6");
  EXPECT_EQ(
      message_of([&] { hc_post({d.data(), 2, 6}, {d.data(), 1, 3}, {d.data(), 2, 6}, 2, {d.data(), 2, 6}); }),
      "hc_post: got rows of F 1, expected 2");
}

} // namespace
} // namespace paratope
