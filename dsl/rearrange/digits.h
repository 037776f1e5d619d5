// SPDX-License-Identifier: Apache-2.0
//
// The closed form of "which group is rank r in" and "which member is it": a sum of digits of r,
//
//     Σ ((r / div) % mod) · mul          color of (replica dp cp) -> (replica cp) dp, with dp = 4, cp = 2:
//                                        r / 8 % replica · 2  +  r % 2 · 1
//
// It is what an affine map (floordiv, mod) or a plan can carry, and it costs the same for 8 ranks as for 2⁴⁰.
// In canonical form two sums are the same function of the world's ranks exactly when they are the same value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsl/rearrange/layout.h"

namespace paratope {

struct Digit {
  int64_t div = 1, mod = 1, mul = 1;
  bool operator==(const Digit &) const = default;
};

struct DigitSum {
  std::vector<Digit> digits;  // none: the constant 0
  std::vector<int64_t> table; // instead of digits, where no closed form exists: one value a rank

  // The value at `rank`, 0 … world − 1.
  int64_t operator()(int64_t rank) const;
  bool closed_form() const { return table.empty(); }
  bool operator==(const DigitSum &) const = default;
};

// Drops digits that are always 0, sorts by div with the largest first, and merges neighbours that continue
// each other. The digits must not overlap: each [div, div·mod) is its own. Tables stay as they are.
DigitSum canonical(DigitSum sum);

// The canonical sum with these values at 0, 1, 2, …, if one exists with digits that do not overlap.
std::optional<DigitSum> digits_of(const std::vector<int64_t> &values);

// A sum of digits whose muls and mods continue each other numbers the ranks that share all its other digits;
// this is the layout number → rank it inverts: one size:stride mode a digit, largest mul first.
StridedLayout inverse_layout(const DigitSum &sum);

// "r / 8 % 2 * 4 + r % 2", "0", or "table of 6"
std::string to_string(const DigitSum &sum);

} // namespace paratope
