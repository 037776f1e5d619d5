// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot.h"

#include <cstring>

namespace paratope {
namespace {

using Float4 = float __attribute__((vector_size(16)));
using Lanes = double __attribute__((vector_size(32))); // element k is added in lane k mod 4

inline Lanes load(const float *p) {
  Float4 four;
  std::memcpy(&four, p, sizeof four);
  return __builtin_convertvector(four, Lanes);
}

// The last n mod 4 elements, with zeros in the lanes that have none (adding 0·0 changes no sum).
inline Lanes load_tail(const float *p, int64_t count) {
  Lanes lanes{};
  for (int64_t k = 0; k < count; ++k)
    lanes[k] = p[k];
  return lanes;
}

inline double sum(Lanes s) { return (s[0] + s[1]) + (s[2] + s[3]); }

// An A × B block of dot products: each loaded vector of a serves B of them, and of b serves A.
template <int A, int B, typename Out>
inline void block(const float *a, int64_t a_stride, const float *b, int64_t b_stride, int64_t n, Out *y,
                  int64_t y_stride) {
  Lanes s[A][B] = {};
  const int64_t whole = n & ~int64_t{3};
  for (int64_t k = 0; k < whole; k += 4) {
    Lanes va[A];
    for (int i = 0; i < A; ++i)
      va[i] = load(a + i * a_stride + k);
    for (int j = 0; j < B; ++j) {
      const Lanes vb = load(b + j * b_stride + k);
      for (int i = 0; i < A; ++i)
        s[i][j] += va[i] * vb;
    }
  }
  if (whole < n) {
    for (int j = 0; j < B; ++j) {
      const Lanes vb = load_tail(b + j * b_stride + whole, n - whole);
      for (int i = 0; i < A; ++i)
        s[i][j] += load_tail(a + i * a_stride + whole, n - whole) * vb;
    }
  }
  for (int i = 0; i < A; ++i)
    for (int j = 0; j < B; ++j)
      y[i * y_stride + j] = static_cast<Out>(sum(s[i][j]));
}

template <typename Out>
inline void all_blocks(const float *a, int64_t a_stride, int64_t num_a, const float *b, int64_t b_stride,
                       int64_t num_b, int64_t n, Out *y, int64_t y_stride) {
  // Columns outside, so that a few rows of b stay in the first cache while every row of a passes.
  int64_t j = 0;
  for (; j + 2 <= num_b; j += 2) {
    const float *bj = b + j * b_stride;
    int64_t i = 0;
    for (; i + 2 <= num_a; i += 2)
      block<2, 2>(a + i * a_stride, a_stride, bj, b_stride, n, y + i * y_stride + j, y_stride);
    if (i < num_a)
      block<1, 2>(a + i * a_stride, a_stride, bj, b_stride, n, y + i * y_stride + j, y_stride);
  }
  if (j < num_b)
    for (int64_t i = 0; i < num_a; ++i)
      block<1, 1>(a + i * a_stride, a_stride, b + j * b_stride, b_stride, n, y + i * y_stride + j, y_stride);
}

// A rows of w over all of v, four columns at a time so that their sums stay in registers.
template <int A>
inline void weigh(const double *w, int64_t w_stride, const float *v, int64_t v_stride, int64_t rows,
                  int64_t n, double *y, int64_t y_stride) {
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) {
    Lanes s[A] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const Lanes columns = load(v + r * v_stride + c);
      for (int i = 0; i < A; ++i)
        s[i] += w[i * w_stride + r] * columns;
    }
    for (int i = 0; i < A; ++i)
      for (int lane = 0; lane < 4; ++lane)
        y[i * y_stride + c + lane] += s[i][lane];
  }
  for (; c < n; ++c)
    for (int i = 0; i < A; ++i) {
      double s = 0;
      for (int64_t r = 0; r < rows; ++r)
        s += w[i * w_stride + r] * v[r * v_stride + c];
      y[i * y_stride + c] += s;
    }
}

} // namespace

double dot(const float *a, const float *b, int64_t n) {
  double y = 0;
  block<1, 1>(a, 0, b, 0, n, &y, 0);
  return y;
}

void dot_block(const float *a, int64_t a_stride, int64_t num_a, const float *b, int64_t b_stride,
               int64_t num_b, int64_t n, float *y, int64_t y_stride) {
  all_blocks(a, a_stride, num_a, b, b_stride, num_b, n, y, y_stride);
}

void dot_block(const float *a, int64_t a_stride, int64_t num_a, const float *b, int64_t b_stride,
               int64_t num_b, int64_t n, double *y, int64_t y_stride) {
  all_blocks(a, a_stride, num_a, b, b_stride, num_b, n, y, y_stride);
}

void weighted_rows(const double *w, int64_t w_stride, int64_t num_w, const float *v, int64_t v_stride,
                   int64_t rows, int64_t n, double *y, int64_t y_stride) {
  int64_t i = 0;
  for (; i + 4 <= num_w; i += 4)
    weigh<4>(w + i * w_stride, w_stride, v, v_stride, rows, n, y + i * y_stride, y_stride);
  for (; i < num_w; ++i)
    weigh<1>(w + i * w_stride, w_stride, v, v_stride, rows, n, y + i * y_stride, y_stride);
}

} // namespace paratope
