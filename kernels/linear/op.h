// SPDX-License-Identifier: Apache-2.0
//
// Dense projections and the ends of the model: token ids in, token ids out.
//
// Bound by: reading W once a step (decode has few rows a weight), so N·K·4 bytes; on the host by float64
// multiply-adds at these small shapes.
#pragma once

#include "kernels/tensor.h"

namespace paratope {

// y = x·Wᵀ. x [T, K], W [N, K] row-major, y [T, N]; not in place. Also `lm_head`.
void linear(ConstRows x, const float *w, Rows y);

// y[t] = table[ids[t]]. table [vocab, H], y [T, H]. Throws on an id outside 0 … vocab−1.
void embed(std::span<const int32_t> ids, const float *table, int64_t vocab, Rows y);

// ids[t] = the index of the largest logit of row t, the lowest on ties. logits [T, V], V >= 1. Throws when a
// row holds a NaN: an unwritten row must not turn into a token.
void argmax(ConstRows logits, std::span<int32_t> ids);

// The rows block j of n holds of T: floor(T·j/n) … floor(T·(j+1)/n) − 1.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
RowRange slice_range(int64_t rows, int64_t block, int64_t num_blocks);

// y = rows slice_range(x.rows, block, num_blocks) of x. y [T', N] with T' that range's size.
void slice_rows(ConstRows x, int64_t block, int64_t num_blocks, Rows y);

} // namespace paratope
