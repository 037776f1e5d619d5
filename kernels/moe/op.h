// SPDX-License-Identifier: Apache-2.0
//
// Mixture-of-experts arithmetic: the gate, a feed-forward, and the experts' grouped form. Who sends which
// token where is dispatch.h.
//
// Bound by: reading the weights of every expert that has a row (3·I·H·4 bytes each), since decode brings an
// expert few rows; on the host by float64 multiply-adds.
#pragma once

#include "kernels/moe/dispatch.h"
#include "kernels/tensor.h"

#include <string>

namespace paratope {

enum class Score { softmax, sigmoid, sqrtsoftplus };
// By its name in a plan; throws KernelError that lists the three.
Score score_named(const std::string &name);

struct GateOptions {
  int64_t experts = 0; // logical
  int64_t top_k = 0;
  int64_t groups = 1;     // group-limited choice: experts in `groups` equal groups …
  int64_t top_groups = 1; // … of which a token may use the top_groups best
  Score score = Score::softmax;
  bool normalise = true;
  double scaling = 1;
};

// s = score(x·Wgᵀ). chosen = the top_k largest of s + bias (lowest index on ties); with groups > 1 only among
// the top_groups groups whose two largest (s + bias) sum highest. w = s[chosen]; normalise: over (Σ + 1e-20);
// times scaling. idx in descending order of s + bias. With `drawn` [T·k] (other routings than the gate's own)
// the choice is that, in that order; the scores still weigh. x [T, H], Wg [E, H], bias [E] or null (none);
// idx [T·k], w [T, k]. Throws on a NaN score, a drawn index out of range or drawn twice for one token.
void gate(ConstRows x, const float *wg, const float *bias, const GateOptions &options,
          std::span<const int32_t> drawn, std::span<int32_t> idx, Rows w);

// A feed-forward in its three products, so that a schedule may put something between any two of them:
//
//     x ──gate_up──▶ h = [ g | u ] ──swiglu──▶ a = silu(g)·u ──linear with W2──▶ y
//
// h = [x·W13[0]ᵀ, x·W13[1]ᵀ]. x [T, H], W13 [2, I, H], h [T, 2I]. With a split I, y becomes a partial sum.
void gate_up(ConstRows x, const float *w13, Rows h);

// a = silu(g)·u; limit > 0: g = min(g, limit), u = clamp(u, ±limit). h [T, 2I], a [T, I].
void swiglu(ConstRows h, double limit, Rows a);

// gate_up and the product with W2, each row with its slot's expert: rows offsets[s] … offsets[s+1]−1 belong
// to local slot s. offsets [slots + 1], ascending from 0 to R. x [R, H], W13 [slots, 2, I, H], h [R, 2I];
// a [R, I], W2 [slots, H, I], y [R, H].
void expert_gate_up(ConstRows x, std::span<const int64_t> offsets, const float *w13, Rows h);
void expert_down(ConstRows a, std::span<const int64_t> offsets, const float *w2, Rows y);

// For exchange by all-gather: y[t] = Σ over chosen experts whose slot is on `block` of w·expert(x[t]), in
// slot order; 0 when there is none, and for padding. A partial sum. x, y [ΣT, H]; idx [ΣT·k], w [ΣT, k];
// token_numbers [ΣT] as in pack_dispatch; W13 [slots, 2, I, H], W2 [slots, H, I], by the block's slots.
void local_experts(ConstRows x, std::span<const int32_t> idx, ConstRows w,
                   std::span<const int64_t> token_numbers, const SlotTable &table, int64_t block,
                   const float *w13, const float *w2, int64_t width, double limit, Rows y);

} // namespace paratope
