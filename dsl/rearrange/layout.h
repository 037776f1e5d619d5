// SPDX-License-Identifier: Apache-2.0
//
// Strided layouts, the algebra CuTe (https://github.com/NVIDIA/cutlass) is built on: a function from an index
// to an offset, given as size:stride modes. Here the first mode is the outermost, as in a pattern:
//
//     (4,2):(1,4)      index  0 1 2 3 4 5 6 7
//                      offset 0 4 1 5 2 6 3 7     index i has digits (i/2 % 4, i % 2); offset = Σ
//                      digit·stride
//
// A rearrangement of 2²⁰ ranks is a handful of modes, and so are the groups it makes: nothing in this file
// costs more than the number of modes (squared, at worst).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paratope {

struct Mode {
  int64_t size = 1;   // ≥ 0
  int64_t stride = 1; // ≥ 0
  bool operator==(const Mode &) const = default;
};

struct StridedLayout {
  std::vector<Mode> modes; // outermost first; none: the single index 0 maps to 0

  // The offset of an index in 0 … size − 1.
  int64_t operator()(int64_t index) const;
  bool operator==(const StridedLayout &) const = default;
};

// Number of indices. The layouts of this folder are built from shapes whose product is known to fit.
int64_t size(const StridedLayout &layout);

// One past the largest offset (0 when there are no indices).
int64_t cosize(const StridedLayout &layout);

// The same function in the fewest modes: modes of size 1 go, neighbours that continue each other merge.
StridedLayout coalesce(const StridedLayout &layout);

// outer ∘ inner: index → outer(inner(index)), as modes that refine inner's, so that a prefix of inner's modes
// is a prefix of the result's. Nothing where no such layout exists: a mode of `inner` crosses a boundary of
// `outer` at a place that does not divide it, digits of `inner` carry into each other, or an offset of
// `inner` lies outside `outer`.
std::optional<StridedLayout> compose(const StridedLayout &outer, const StridedLayout &inner);

// "(4,2):(1,4)"
std::string to_string(const StridedLayout &layout);

} // namespace paratope
