// SPDX-License-Identifier: Apache-2.0
#include "kernels/exp.h"

#include <cstring>

namespace paratope {
namespace {

constexpr double per_ln2 = 1.4426950408889634;
constexpr double ln2_high = 6.93147180369123816490e-01; // trailing bits zero, so that k·ln2_high is exact
constexpr double ln2_low = 1.90821492927058770002e-10;
constexpr double to_integer = 6755399441055744.0; // 1.5·2⁵²: adding it leaves round(x) in the low bits

using Two = double __attribute__((vector_size(16))); // what every 64-bit machine has a register for
using TwoBits = uint64_t __attribute__((vector_size(16)));

inline Two exp_two(Two x) {
  x = x < -708.0 ? Two{-708.0, -708.0} : x; // comparisons are false for NaN, which passes through
  x = x > 708.0 ? Two{708.0, 708.0} : x;
  const Two shifted = x * per_ln2 + to_integer;
  const Two k = shifted - to_integer;
  const Two r = (x - k * ln2_high) - k * ln2_low;
  Two p = 1.0 / 479001600.0 + Two{}; // 1/12!, then Horner down to 1
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return reinterpret_cast<Two>(reinterpret_cast<TwoBits>(p) +
                               (reinterpret_cast<TwoBits>(shifted) << 52)); // k joins the exponent field
}

} // namespace

void exp_each(double *x, int64_t n) {
  Two pair;
  int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    std::memcpy(&pair, x + i, sizeof pair);
    pair = exp_two(pair);
    std::memcpy(x + i, &pair, sizeof pair);
  }
  if (i < n)
    x[i] = exp_two(Two{x[i], 0})[0];
}

} // namespace paratope
