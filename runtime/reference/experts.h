// SPDX-License-Identifier: Apache-2.0
//
// The feed-forward half of a layer: a dense MLP, or gate, routed experts and shared expert.
#pragma once

#include "runtime/reference/choice.h"
#include "runtime/reference/weight_source.h"
#include "runtime/weights/routing.h"

#include <optional>

namespace paratope::reference {

struct FeedForwardWeights {
  Weights mlp_w13, mlp_w2, gate, bias, w13, w2, shared_w13, shared_w2;

  FeedForwardWeights(const WeightSource &source, int64_t layer);
  bool dense() const { return gate.empty(); }
};

// out [hidden] of one token, x [hidden] being normalised. The choice is `draw`'s where there is one, else the
// gate's, judged against `observed` (empty: none). Dense layers choose nothing.
ExpertChoice feed_forward_token(const plan::Model &model, const FeedForwardWeights &weights,
                                const std::optional<ExpertDraw> &draw, int64_t token, int64_t position,
                                std::span<const int32_t> observed, double tie, const double *x, double *out);

} // namespace paratope::reference
