// SPDX-License-Identifier: Apache-2.0
//
// What the kernels' tests share: random operands, outputs poisoned with NaN, and the distance from a float64
// result. A NaN anywhere counts as infinitely far, so an unwritten element cannot pass.
#pragma once

#include "kernels/error.h"
#include "kernels/tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace paratope::testing_support {

inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.7F, 1.7F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float &value : values)
    value = uniform(generator);
  return values;
}

inline std::vector<float> poisoned(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

// The largest difference over the largest magnitude expected.
inline double error_of(const std::vector<float> &got, const std::vector<double> &expected) {
  if (got.size() != expected.size())
    return INFINITY;
  double worst = 0, largest = 1e-300;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) || std::isnan(expected[i]))
      return INFINITY;
    worst = std::max(worst, std::abs(got[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}

constexpr double rounding = 1e-7; // a float's own rounding is 6·10⁻⁸

template <typename Call> std::string message_of(Call call) {
  try {
    call();
  } catch (const KernelError &e) {
    return e.what();
  }
  return "no error";
}

} // namespace paratope::testing_support
