// SPDX-License-Identifier: Apache-2.0
//
// What stands between the matrix products: RMS norms, the residual sum, and hyper-connections, which widen
// the residual to n streams X [T, n·H] (stream m of a token is elements m·H … m·H+H−1 of its row).
//
//     X ─┬─ hc_pre ─▶ x [T, H] ─▶ norm, sublayer ─▶ F ─┐
//        │     └──── mix [T, n + n²] ─────────────────┤
//        └─────────────────────────────────────── hc_post ─▶ X'
//
// Bound by: memory, one read and one write of each row; hc_pre by its (n² + 2n)·n·H multiply-adds a token.
#pragma once

#include "kernels/tensor.h"

namespace paratope {

// y = x · rsqrt(mean(x²) + eps) · gain. x, y [T, N], gain [dims]. Only the first `dims` elements of a row are
// averaged and scaled, the others are copied; 0 means all N. May run in place.
void rms_norm(ConstRows x, const float *gain, double eps, Rows y, int64_t dims = 0);

// y = the elementwise sum of the operands (one or more, equal shapes), left to right. May run in place.
void add(std::span<const ConstRows> operands, Rows y);

// X[t] = x[t] in each of `streams` streams. x [T, H], X [T, streams·H].
void hc_expand(ConstRows x, int64_t streams, Rows wide);

// Per token m = (flat(X)·fnᵀ)·rsqrt(mean(flat(X)²) + 1e-6): n pre, n post, n² comb values, row-major; each
// part times scale[part] plus base. pre = σ(·)+1e-6; post = 2σ(·); comb = softmax over the last dim + 1e-6,
// then 20 Sinkhorn iterations (rows, then columns, each divided by its sum + 1e-6). x = Σ_m pre_m·X_m; mix =
// post, comb. X [T, n·H], fn [n²+2n, n·H], scale [3], base [n²+2n]; x [T, H], mix [T, n + n²].
void hc_pre(ConstRows wide, int64_t streams, const float *fn, const float *scale, const float *base, Rows x,
            Rows mix);

// X'_j = post_j·F + Σ_m comb[m, j]·X_m. X, X' [T, n·H], F [T, H], mix [T, n + n²] of hc_pre. May run in
// place.
void hc_post(ConstRows wide, ConstRows f, ConstRows mix, int64_t streams, Rows out);

// x = Σ over streams. X [T, n·H], x [T, H].
void hc_sum(ConstRows wide, int64_t streams, Rows x);

} // namespace paratope
