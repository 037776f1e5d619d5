// SPDX-License-Identifier: Apache-2.0
//
// The reference's arithmetic: float64 vectors, float32 weights, plain loops.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace paratope::reference {

using Vector = std::vector<double>;
using Weights = std::vector<float>;

// y [rows] = W·x, W [rows, cols].
void matvec(const float *w, int64_t rows, int64_t cols, const double *x, double *y);
// Σ a·b.
double dot(const double *a, const double *b, int64_t n);

// x · rsqrt(mean(x²) + eps), times gain [n] when there is one. In place.
void rms_norm(double *x, int64_t n, const float *gain, double eps);

// cos and sin of position · theta^(−2i/dims), i < dims/2.
struct Angles {
  Vector cosine, sine;
  Angles(int64_t position, double theta, int64_t dims);
};
// Rotates x's pairs (2i, 2i+1) by the angles; back when inverse.
void rotate(double *x, const Angles &angles, bool inverse = false);

double sigmoid(double x);

// y [hidden] = (silu(g)·u)·W2ᵀ, clamped by limit > 0. W13 [2, width, hidden], W2 [hidden, width]; scratch
// grows.
void feed_forward(const float *w13, const float *w2, int64_t hidden, int64_t width, double limit,
                  const double *x, double *y, Vector &scratch);

// work(begin, end) on disjoint ranges of 0 … count−1, one a thread; rethrows the first range's exception.
void for_ranges(int64_t count, int threads, const std::function<void(int64_t, int64_t)> &work);

} // namespace paratope::reference
