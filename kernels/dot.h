// SPDX-License-Identifier: Apache-2.0
//
// The dot product under every kernel: float32 operands, float64 accumulation, one fixed order. Element k is
// added in lane k mod 4, and the lanes are added as (0+1)+(2+3) at the end:
//
//     a[0]b[0] a[1]b[1] a[2]b[2] a[3]b[3]     so a machine with 2, 4 or 8 doubles a register gives the
//     a[4]b[4] a[5]b[5] …                     same bits, and so does any blocking over rows and columns
//        │        │        │        │
//      lane 0   lane 1   lane 2   lane 3      (compiled without contraction into fused multiply-adds)
//
// Eigen's matrix product is not used for this: it blocks K by the cache sizes it finds, so its sums would
// differ between machines.
#pragma once

#include <cstdint>

namespace paratope {

// Σ a[k]·b[k] over k < n.
double dot(const float *a, const float *b, int64_t n);

// y[i·y_stride + j] = a_i · b_j for i < num_a and j < num_b; rows of a and b are a_stride, b_stride apart and
// n long. The float form rounds each sum once; the double form keeps it (scores on their way into a softmax).
void dot_block(const float *a, int64_t a_stride, int64_t num_a, const float *b, int64_t b_stride,
               int64_t num_b, int64_t n, float *y, int64_t y_stride);
void dot_block(const float *a, int64_t a_stride, int64_t num_a, const float *b, int64_t b_stride,
               int64_t num_b, int64_t n, double *y, int64_t y_stride);

// y_i += Σ_r w_i[r]·v_r for i < num_w, the sum over rows in ascending r: values on their way out of a
// softmax. v_r is row r of v, n floats, v_stride apart; w_i and y_i are w_stride and y_stride apart.
void weighted_rows(const double *w, int64_t w_stride, int64_t num_w, const float *v, int64_t v_stride,
                   int64_t rows, int64_t n, double *y, int64_t y_stride);

} // namespace paratope
