// SPDX-License-Identifier: Apache-2.0
//
// The part of a weight that one rank holds, made in place. A weight's shape is global; each split cuts one
// dim into equal blocks of an axis, or, for routed experts, picks the logical experts of the rank's slots:
//
//     [E, 2, I, H] by slots, block 1 of ep 2, experts.local 3      [out, in] split over dim 1, block 0 of 2
//       slots 3 4 5 hold experts 4 5 0 → [3, 2, I, H]                ██░░
//       in that order, a replica being a copy                        ██░░  runs of in/2 elements
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/weights/store.h"

#include <map>
#include <vector>

namespace paratope {

// Which block of an axis a rank holds (0 <= block < size): plan::Axis::block(rank) and its size.
struct AxisBlock {
  int64_t block = 0, size = 1;
};
using AxisBlocks = std::map<std::string, AxisBlock>;

// The local shape. Throws WeightError when a split names an unknown axis or dim, when the axis does not
// divide the dim, when slots and experts do not fit, or a size overflows.
std::vector<int64_t> shard_shape(const plan::Weight &weight, const AxisBlocks &blocks,
                                 const plan::Experts &experts);
int64_t num_elements(const std::vector<int64_t> &shape);

// dst [shard_shape] = the rank's part. Errors as shard_shape, those of init_named, and the store's.
void fill_shard(const plan::Weight &weight, const WeightStore &store, const AxisBlocks &blocks,
                const plan::Experts &experts, float *dst);

} // namespace paratope
