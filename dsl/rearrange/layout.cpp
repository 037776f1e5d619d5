// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/layout.h"

#include <algorithm>
#include <fmt/format.h>

namespace paratope {

int64_t StridedLayout::operator()(int64_t index) const {
  int64_t offset = 0;
  for (auto mode = modes.rbegin(); mode != modes.rend() && index > 0; ++mode) {
    offset += index % mode->size * mode->stride;
    index /= mode->size;
  }
  return offset;
}

int64_t size(const StridedLayout &layout) {
  if (std::any_of(layout.modes.begin(), layout.modes.end(), [](const Mode &mode) { return mode.size == 0; }))
    return 0; // whatever the other sizes multiply to
  int64_t indices = 1;
  for (const Mode &mode : layout.modes)
    indices *= mode.size;
  return indices;
}

int64_t cosize(const StridedLayout &layout) {
  int64_t last = 0;
  for (const Mode &mode : layout.modes) {
    if (mode.size == 0)
      return 0;
    last += (mode.size - 1) * mode.stride;
  }
  return last + 1;
}

StridedLayout coalesce(const StridedLayout &layout) {
  StridedLayout merged;
  for (const Mode &mode : layout.modes) {
    if (mode.size == 1)
      continue;
    if (!merged.modes.empty() && merged.modes.back().stride == mode.size * mode.stride)
      merged.modes.back() = {merged.modes.back().size * mode.size, mode.stride};
    else
      merged.modes.push_back(mode);
  }
  return merged;
}

// With P_j the product of outer's sizes inside mode j, outer reads an offset x as the digits x/P_j % size_j.
// Modes of inner are cut at each P_j; the composition is a layout when, for each P_j, all that lies below it
// sums to less than P_j and all that lies above is a multiple of it: then no digit of x depends on two parts.
std::optional<StridedLayout> compose(const StridedLayout &outer, const StridedLayout &inner) {
  if (size(inner) == 0)
    return inner;
  if (cosize(inner) > size(outer))
    return std::nullopt;
  const StridedLayout reader = coalesce(outer);
  struct Boundary {
    int64_t place;  // P_j
    int64_t stride; // of outer's mode j
  };
  std::vector<Boundary> boundaries; // innermost first
  int64_t place = 1;
  for (auto mode = reader.modes.rbegin(); mode != reader.modes.rend(); ++mode) {
    boundaries.push_back({place, mode->stride});
    place *= mode->size;
  }
  std::vector<Mode> parts;
  for (Mode mode : inner.modes) {
    for (auto boundary = boundaries.rbegin(); boundary != boundaries.rend() && mode.stride > 0; ++boundary) {
      if (mode.stride >= boundary->place || (mode.size - 1) * mode.stride < boundary->place)
        continue; // wholly on one side
      const int64_t below = boundary->place / mode.stride;
      if (boundary->place % mode.stride != 0 || mode.size % below != 0)
        return std::nullopt;
      parts.push_back({mode.size / below, boundary->place});
      mode.size = below;
    }
    if (mode.size > 1)
      parts.push_back(mode);
  }
  for (const Boundary &boundary : boundaries) {
    int64_t below = 0;
    for (const Mode &part : parts) {
      if (part.stride < boundary.place)
        below += (part.size - 1) * part.stride;
      else if (part.stride % boundary.place != 0)
        return std::nullopt;
    }
    if (below >= boundary.place)
      return std::nullopt;
  }
  for (Mode &part : parts) {
    if (part.stride == 0)
      continue;
    auto boundary = std::find_if(boundaries.rbegin(), boundaries.rend(),
                                 [&](const Boundary &b) { return b.place <= part.stride; });
    part.stride = part.stride / boundary->place * boundary->stride;
  }
  return StridedLayout{std::move(parts)};
}

std::string to_string(const StridedLayout &layout) {
  std::vector<int64_t> sizes, strides;
  for (const Mode &mode : layout.modes) {
    sizes.push_back(mode.size);
    strides.push_back(mode.stride);
  }
  return fmt::format("({}):({})", fmt::join(sizes, ","), fmt::join(strides, ","));
}

} // namespace paratope
