// SPDX-License-Identifier: Apache-2.0
//
// How large each axis of one dim is: look the sized ones up, infer the one that is left, and when the numbers
// do not fit, say which factors there are, where each came from, and what would fit.
//
//     (rest dp cp)   on 16 ranks, dp = 4, cp = 2          16 / (4·2) → rest = 2
//
// Internal to this folder: rearrange and groups share it.
#pragma once

#include "dsl/rearrange/rearrange.h"

namespace paratope {

// What the sizes of a dim's axes are held against, and how to speak of it.
struct SizeQuestion {
  std::span<const SizedAxis> sizes;
  std::string dim_name;   // "dim 0", "world"
  std::string dim_origin; // as SizedAxis::origin
  int64_t dim_size = 1;
  // The dim is the ranks of a world: sized axes that fall short leave ranks uncovered, and the fix says so.
  bool is_world = false;
  // Names that may not be inferred.
  std::span<const std::string> unsized_axes;
};

// Sizes of dim.axes in their order, units left out. On failure appends errors and returns nothing.
// `dim` holds no ellipsis; sizes are ≥ 0.
std::optional<std::vector<Factor>> infer_sizes(const PatternDim &dim, const SizeQuestion &question,
                                               PatternErrors &errors);

// Every size ≥ `least`, no name twice with different sizes. Returns whether that holds.
bool check_sizes(std::span<const SizedAxis> sizes, int64_t least, PatternErrors &errors);

} // namespace paratope
