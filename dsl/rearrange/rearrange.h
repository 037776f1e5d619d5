// SPDX-License-Identifier: Apache-2.0
//
// einops' rearrange (https://einops.rocks) on shapes: which dim is how large, what an unsized axis must be,
// and where every element goes. No data moves here; the answer is a shape and a strided layout.
//
//     (a b) -> b a   on [6] with a = 2        in   0 1 2 3 4 5       (2,3):(3,1)
//                                             out  0 3 1 4 2 5       (3,2):(1,3), shape [3, 2]
#pragma once

#include "dsl/rearrange/layout.h"
#include "dsl/rearrange/pattern.h"

namespace paratope {

// The size of a named axis, and where it was said, in words a user would know ("decode.toml:14",
// "default of layout deepinfer"), or empty.
struct SizedAxis {
  std::string name;
  int64_t size = 1;
  std::string origin;
};

// One elementary axis of the left side. Dims that `...` stands for have the name "...".
struct Factor {
  std::string name;
  int64_t size = 1;
  int64_t stride = 1; // in the flat, row-major input
  bool inferred = false;
};

struct Rearrangement {
  std::vector<int64_t> in_shape;
  std::vector<int64_t> out_shape;
  std::vector<Factor> factors; // as the left side lists them; units are left out
  std::vector<int64_t> order;  // indices into `factors`, as the right side lists them
  StridedLayout layout;        // flat output index → flat input index; one mode an entry of `order`
};

// Applies `pattern` to a shape. Errors: a size that is negative, given twice with different values or not
// used; a shape with another number of dims; a dim that its sized axes do not divide or multiply to; two
// unsized axes in one dim; an unsized axis beside a sized one of 0 (any size would do); more than 2⁶³ − 1
// elements.
std::optional<Rearrangement> rearrange(const Pattern &pattern, std::span<const int64_t> shape,
                                       std::span<const SizedAxis> sizes, PatternErrors &errors);

int64_t element_count(const Rearrangement &rearrangement);

// The flat output when the input holds 0, 1, 2, … Allocates 8 bytes an element; the caller bounds the shape.
std::vector<int64_t> values_on_iota(const Rearrangement &rearrangement);

} // namespace paratope
