// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/experts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paratope::reference {
namespace {

Vector scores(const plan::Model &m, const FeedForwardWeights &w, const double *x) {
  Vector s(static_cast<size_t>(m.routed));
  matvec(w.gate.data(), m.routed, m.hidden, x, s.data());
  if (m.score == "softmax") {
    const double largest = *std::max_element(s.begin(), s.end());
    double total = 0;
    for (double &value : s)
      total += value = std::exp(value - largest);
    for (double &value : s)
      value /= total;
  } else {
    for (double &value : s)
      value =
          m.score == "sigmoid" ? sigmoid(value) : std::sqrt(value > 30 ? value : std::log1p(std::exp(value)));
  }
  return s;
}

// A drawn choice has no scores to tie by: it is the run's, or a mismatch.
ExpertChoice judge_drawn(const ExpertDraw &draw, int64_t token, int64_t position,
                         std::span<const int32_t> observed) {
  ExpertChoice choice;
  choice.own.resize(static_cast<size_t>(draw.top_k));
  draw_experts(draw, token, position, choice.own);
  choice.experts = choice.own;
  if (!observed.empty() &&
      !std::is_permutation(observed.begin(), observed.end(), choice.own.begin(), choice.own.end())) {
    choice.verdict = Verdict::mismatch;
    choice.gap = INFINITY;
  }
  return choice;
}

} // namespace

FeedForwardWeights::FeedForwardWeights(const WeightSource &source, int64_t layer) {
  const std::string p = fmt::format("layers.{}.", layer);
  auto get = [&](const char *name) { return source.get_if_any(p + name); };
  mlp_w13 = get("mlp.w13"), mlp_w2 = get("mlp.w2"), gate = get("moe.gate"), bias = get("moe.bias");
  w13 = get("moe.w13"), w2 = get("moe.w2");
  shared_w13 = get("moe.shared.w13"), shared_w2 = get("moe.shared.w2");
}

ExpertChoice feed_forward_token(const plan::Model &m, const FeedForwardWeights &w,
                                const std::optional<ExpertDraw> &draw, int64_t token, int64_t position,
                                std::span<const int32_t> observed, double tie, const double *x, double *out) {
  Vector scratch;
  if (w.dense()) {
    feed_forward(w.mlp_w13.data(), w.mlp_w2.data(), m.hidden, m.dense_width, m.swiglu_limit, x, out, scratch);
    return {};
  }
  const Vector s = scores(m, w, x);
  ExpertChoice choice;
  if (draw) {
    choice = judge_drawn(*draw, token, position, observed);
  } else {
    Vector choosing(s);
    for (int64_t e = 0; e < m.routed; ++e)
      choosing[e] += w.bias[e];
    choice = judge_experts(m, choosing, observed, tie);
  }
  double total = 0;
  for (int32_t e : choice.experts)
    total += s[e];
  Vector y(static_cast<size_t>(m.hidden));
  std::fill(out, out + m.hidden, 0.0);
  for (int32_t e : choice.experts) {
    const double weight = (m.normalise ? s[e] / (total + 1e-20) : s[e]) * m.scaling;
    const int64_t size = m.expert_width * m.hidden;
    feed_forward(w.w13.data() + e * 2 * size, w.w2.data() + e * size, m.hidden, m.expert_width,
                 m.swiglu_limit, x, y.data(), scratch);
    for (int64_t h = 0; h < m.hidden; ++h)
      out[h] += weight * y[h];
  }
  if (!w.shared_w13.empty()) {
    feed_forward(w.shared_w13.data(), w.shared_w2.data(), m.hidden, m.shared * m.expert_width, m.swiglu_limit,
                 x, y.data(), scratch);
    for (int64_t h = 0; h < m.hidden; ++h)
      out[h] += y[h];
  }
  return choice;
}

} // namespace paratope::reference
