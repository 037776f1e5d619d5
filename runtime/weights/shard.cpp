// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/shard.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace paratope {
namespace {

// What a rank holds of one dim: a range of indices, or (experts by slots) a list of them.
struct Part {
  int64_t begin = 0, size = 0;
  std::vector<int64_t> picks;

  bool whole(int64_t extent) const { return picks.empty() && size == extent; }
};

[[noreturn]] void fail(const plan::Weight &weight, const std::string &what) {
  throw WeightError(fmt::format("weight '{}' [{}]: {}", weight.name, fmt::join(weight.shape, ", "), what));
}

Part expert_part(const plan::Weight &weight, int64_t extent, AxisBlock axis, const plan::Experts &experts) {
  if (extent != experts.logical)
    fail(weight, fmt::format("got {} experts, expected the plan's {}", extent, experts.logical));
  const auto slots = static_cast<int64_t>(experts.slots.size());
  if (experts.local < 1 || slots != experts.local * axis.size)
    fail(weight, fmt::format("got {} slots of {} a rank on {} ranks, expected their product", slots,
                             experts.local, axis.size));
  const auto first = experts.slots.begin() + axis.block * experts.local;
  Part part{0, experts.local, {first, first + experts.local}};
  for (int64_t expert : part.picks)
    if (expert < 0 || expert >= extent)
      fail(weight, fmt::format("got expert {} in the slot table, expected 0 to {}", expert, extent - 1));
  return part;
}

std::vector<Part> parts_of(const plan::Weight &weight, const AxisBlocks &blocks,
                           const plan::Experts &experts) {
  std::vector<Part> parts;
  for (int64_t extent : weight.shape) {
    if (extent < 0)
      fail(weight, fmt::format("got size {}, expected 0 or more", extent));
    parts.push_back({0, extent, {}});
  }
  for (const plan::WeightSplit &split : weight.splits) {
    if (split.dim < 0 || split.dim >= static_cast<int64_t>(parts.size()))
      fail(weight, fmt::format("got a split of dim {}, expected 0 to {}", split.dim,
                               static_cast<int64_t>(parts.size()) - 1));
    const auto found = blocks.find(split.axis);
    if (found == blocks.end())
      fail(weight, fmt::format("got a split over axis '{}', which the plan does not have", split.axis));
    const AxisBlock axis = found->second;
    if (axis.size < 1 || axis.block < 0 || axis.block >= axis.size)
      fail(weight,
           fmt::format("got block {} of axis '{}', expected 0 to {}", axis.block, split.axis, axis.size - 1));
    Part &part = parts[split.dim];
    if (!part.whole(weight.shape[split.dim]))
      fail(weight, fmt::format("got two splits of dim {}, expected one", split.dim));
    if (split.by_slots) {
      if (split.dim != 0)
        fail(weight, fmt::format("got a split by slots of dim {}, expected dim 0", split.dim));
      part = expert_part(weight, weight.shape[0], axis, experts);
      continue;
    }
    if (part.size % axis.size != 0)
      fail(weight, fmt::format("got size {} of dim {} over axis '{}', expected a multiple of {}", part.size,
                               split.dim, split.axis, axis.size));
    part.size /= axis.size;
    part.begin = axis.block * part.size;
  }
  return parts;
}

// Walks the held indices of dims 0 … dim, outermost first; everything inside a dim after which nothing is
// split is one run.
struct Filler {
  const std::vector<int64_t> &shape;
  const std::vector<Part> &parts;
  size_t last_split; // the innermost dim that is not whole
  const WeightStore &store;
  const std::string &name;
  Init init;
  float *dst;

  void fill(size_t dim, int64_t first) {
    int64_t inner = 1;
    for (size_t d = dim + 1; d < shape.size(); ++d)
      inner *= shape[d];
    const Part &part = parts[dim];
    if (dim >= last_split && part.picks.empty()) {
      const int64_t count = part.size * inner;
      store.fill(name, init, first + part.begin * inner, count, dst);
      dst += count;
      return;
    }
    for (int64_t i = 0; i < part.size; ++i) {
      const int64_t idx = part.picks.empty() ? part.begin + i : part.picks[i];
      if (dim >= last_split) {
        store.fill(name, init, first + idx * inner, inner, dst);
        dst += inner;
      } else {
        fill(dim + 1, first + idx * inner);
      }
    }
  }
};

} // namespace

int64_t num_elements(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    if (__builtin_mul_overflow(count, extent, &count))
      throw WeightError(fmt::format("got shape [{}], whose size overflows 64 bits", fmt::join(shape, ", ")));
  return count;
}

std::vector<int64_t> shard_shape(const plan::Weight &weight, const AxisBlocks &blocks,
                                 const plan::Experts &experts) {
  num_elements(weight.shape);
  std::vector<int64_t> shape;
  for (const Part &part : parts_of(weight, blocks, experts))
    shape.push_back(part.size);
  return shape;
}

void fill_shard(const plan::Weight &weight, const WeightStore &store, const AxisBlocks &blocks,
                const plan::Experts &experts, float *dst) {
  num_elements(weight.shape);
  const std::vector<Part> parts = parts_of(weight, blocks, experts);
  const Init init = init_named(weight.init, weight.fan_in);
  if (parts.empty()) {
    store.fill(weight.name, init, 0, 1, dst);
    return;
  }
  size_t last_split = 0;
  for (size_t d = 0; d < parts.size(); ++d)
    if (!parts[d].whole(weight.shape[d]))
      last_split = d;
  Filler{weight.shape, parts, last_split, store, weight.name, init, dst}.fill(0, 0);
}

} // namespace paratope
