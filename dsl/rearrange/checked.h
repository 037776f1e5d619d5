// SPDX-License-Identifier: Apache-2.0
//
// Products of sizes that users wrote, in 64 bits, where a wrapped product would be a wrong answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace paratope {

inline std::optional<int64_t> checked_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    return std::nullopt;
  return product;
}

// The product of all sizes (1 for none), or nothing when it, or a product on the way, exceeds 2⁶³ − 1.
inline std::optional<int64_t> checked_product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  return product;
}

} // namespace paratope
