// SPDX-License-Identifier: Apache-2.0
//
// Patterns as in einops, read into a value with the place of every part. Whoever knows einops' rearrange
// knows the grammar:
//
//     (replica dp cp) -> (replica cp) dp
//      └ one dim, three axes, outermost first
//
//     pattern = side "->" side
//     side    = { dim }
//     dim     = name | "1" | "..." | "(" { name | "1" | "..." } ")"
//
// A name is a letter followed by letters, digits and underscores (ASCII; no underscore at either end).
// `1` and `()` are dims of size one. `...` stands for all remaining dims, at most once on a side, and inside
// parentheses only on the right. Every axis stands exactly once on each side. Blanks, tabs and line breaks
// separate; einops takes blanks only.
#pragma once

#include <optional>
#include <string_view>

#include "dsl/rearrange/error.h"

namespace paratope {

// A pattern longer than this many bytes is an error, so that checks may be quadratic in the number of axes.
inline constexpr int64_t max_pattern_bytes = 4096;

struct PatternAxis {
  enum class Kind { named, one, ellipsis };
  Kind kind = Kind::named;
  std::string name; // as written: "dp", "1", "..."
  int64_t begin = 0, end = 0;
};

// One dim of a shape: a single axis, or the axes inside one pair of parentheses (none: size one).
struct PatternDim {
  std::vector<PatternAxis> axes;
  bool parenthesised = false;
  int64_t begin = 0, end = 0; // with the parentheses

  bool is_ellipsis() const {
    return !parenthesised && axes.size() == 1 && axes[0].kind == PatternAxis::Kind::ellipsis;
  }
};

struct PatternSide {
  std::vector<PatternDim> dims;
  int64_t begin = 0, end = 0; // without outer blanks
};

struct Pattern {
  std::string text;
  PatternSide left, right;
};

// Reads `text`. On failure appends every error found, with byte offsets into `text`, and returns nothing.
std::optional<Pattern> parse_pattern(std::string_view text, PatternErrors &errors);

// The pattern in one spelling: single blanks, the arrow set apart; `()` becomes `1`. Parses to an equal
// pattern.
std::string to_string(const Pattern &pattern);

// The pattern that undoes this one: its sides exchanged. Nothing where that is not a pattern (`... -> (...)`
// has no inverse: nothing says how the dim factors).
std::optional<Pattern> inverse(const Pattern &pattern);

} // namespace paratope
