// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/reference.h"

#include "runtime/reference/attention.h"
#include "runtime/reference/engram.h"
#include "runtime/reference/experts.h"
#include "runtime/weights/state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace paratope {
namespace {

using namespace reference;

void check_model(const plan::Model &m, const plan::Workload &workload,
                 std::span<const plan::Sequence> sequences, int steps) {
  auto fail = [](const std::string &what) { throw ReferenceError("reference: " + what); };
  if (m.attention != "latent" && m.attention != "mla" && m.attention != "gqa")
    fail(fmt::format("got attention '{}', expected latent, mla or gqa", m.attention));
  if (workload.phase != "decode" && workload.phase != "prefill")
    fail(fmt::format("got phase '{}', expected decode or prefill", workload.phase));
  if (steps < 0)
    fail(fmt::format("got {} steps, expected 0 or more", steps));
  int64_t tokens = 0;
  for (const plan::Sequence &sequence : sequences) {
    if (sequence.history < 0 || sequence.length < 1 || sequence.first_token != tokens)
      fail(fmt::format(
          "got a sequence of {} tokens from {} after a history of {}, expected 1 or more from {} after "
          "0 or more",
          sequence.length, sequence.first_token, sequence.history, tokens));
    if (workload.phase == "decode" && sequence.length != 1)
      fail(fmt::format("got a sequence of {} tokens in a decode step, expected 1", sequence.length));
    tokens += sequence.length;
  }
  const int64_t head = m.attention == "mla" ? m.nope_dim + m.rope_dim : m.head_dim;
  if (m.rope_dim < 0 || m.rope_dim % 2 != 0 || m.rope_dim > head)
    fail(fmt::format("got rope_dim {}, expected an even number of at most {}", m.rope_dim, head));
  if (m.routed > 0 && m.dense_layers < m.layers) {
    if (m.score != "softmax" && m.score != "sigmoid" && m.score != "sqrtsoftplus")
      fail(fmt::format("got score '{}', expected softmax, sigmoid or sqrtsoftplus", m.score));
    if (m.gate_groups < 1 || m.routed % m.gate_groups != 0 || m.gate_top_groups < 1 ||
        m.gate_top_groups > m.gate_groups)
      fail(fmt::format("got {} of {} gate groups, expected a divisor of {} experts and at most that many",
                       m.gate_top_groups, m.gate_groups, m.routed));
    if (m.top_k < 1 || m.top_k > m.routed / m.gate_groups * m.gate_top_groups)
      fail(fmt::format("got top_k {}, expected 1 to {}", m.top_k,
                       m.routed / m.gate_groups * m.gate_top_groups));
  }
  for (int64_t layer : m.engram_layers)
    if (layer < 0 || layer >= m.layers)
      fail(fmt::format("got engram layer {}, expected 0 to {}", layer, m.layers - 1));
  if (!m.engram_multipliers.empty() && m.engram_multipliers.size() != m.engram_layers.size())
    fail(fmt::format("got {} rows of engram multipliers, expected {}", m.engram_multipliers.size(),
                     m.engram_layers.size()));
  for (const std::vector<int64_t> &row : m.engram_multipliers)
    if (static_cast<int64_t>(row.size()) < m.engram_ngram)
      fail(fmt::format("got {} engram multipliers, expected {}", row.size(), m.engram_ngram));
}

// One sublayer's hyper-connections: how a token's streams become its input, and its output returns to them.
struct Streams {
  const plan::Model &m;
  Weights norm, fn, scale, base;

  Streams(const plan::Model &model, const WeightSource &source, int64_t layer, const char *sublayer)
      : m(model), norm(source.get(fmt::format("layers.{}.{}_norm", layer, sublayer))) {
    const std::string p = fmt::format("layers.{}.hc_{}.", layer, sublayer);
    fn = source.get_if_any(p + "fn");
    scale = source.get_if_any(p + "scale");
    base = source.get_if_any(p + "base");
  }

  // X of one token [n·hidden] ← sublayer(rms_norm(mix of X)) mixed back.
  template <typename Sublayer> void apply(double *wide, Sublayer sublayer) const {
    const int64_t n = m.hyper_connections, hidden = m.hidden;
    Vector x(wide, wide + hidden), f(static_cast<size_t>(hidden)), mix;
    if (n > 1) {
      mix = mixes(wide);
      for (int64_t h = 0; h < hidden; ++h) {
        x[h] = 0;
        for (int64_t s = 0; s < n; ++s)
          x[h] += mix[s] * wide[s * hidden + h];
      }
    }
    rms_norm(x.data(), hidden, norm.data(), m.rms_eps);
    sublayer(x.data(), f.data());
    if (n == 1) {
      for (int64_t h = 0; h < hidden; ++h)
        wide[h] += f[h];
      return;
    }
    const double *post = mix.data() + n, *comb = post + n;
    const Vector before(wide, wide + n * hidden);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t h = 0; h < hidden; ++h) {
        double total = post[j] * f[h];
        for (int64_t s = 0; s < n; ++s)
          total += comb[s * n + j] * before[s * hidden + h];
        wide[j * hidden + h] = total;
      }
  }

private:
  // pre [n], post [n], comb [n, n].
  Vector mixes(const double *wide) const {
    const int64_t n = m.hyper_connections, width = n * m.hidden, count = n * n + 2 * n;
    constexpr double eps = 1e-6;
    Vector mix(static_cast<size_t>(count));
    matvec(fn.data(), count, width, wide, mix.data());
    const double factor = 1 / std::sqrt(dot(wide, wide, width) / static_cast<double>(width) + eps);
    for (int64_t i = 0; i < count; ++i) {
      mix[i] = mix[i] * factor * scale[std::min<int64_t>(i / n, 2)] + base[i];
      if (i < n)
        mix[i] = sigmoid(mix[i]) + eps;
      else if (i < 2 * n)
        mix[i] = 2 * sigmoid(mix[i]);
      else
        mix[i] = std::exp(mix[i]);
    }
    double *comb = mix.data() + 2 * n;
    auto divide = [&](int64_t stride, int64_t step, double added, double after) { // each line by its sum
      for (int64_t line = 0; line < n; ++line) {
        double total = added;
        for (int64_t i = 0; i < n; ++i)
          total += comb[line * stride + i * step];
        for (int64_t i = 0; i < n; ++i)
          comb[line * stride + i * step] = comb[line * stride + i * step] / total + after;
      }
    };
    divide(n, 1, 0, eps); // softmax over the last dim, + eps
    for (int iteration = 0; iteration < 20; ++iteration) {
      divide(n, 1, eps, 0);
      divide(1, n, eps, 0);
    }
    return mix;
  }
};

struct Run {
  const plan::Model &model;
  const plan::Workload &workload;
  const ReferenceOptions &options;
  const RoutingChoices *observed;
  std::span<const plan::Sequence> sequences;
  int64_t tokens = 0; // a step
  WeightSource source;
  std::optional<ExpertDraw> draw;
  std::vector<AttentionLayer> attention;     // [layer]
  std::vector<std::vector<int32_t>> fed_ids; // [step][sequence], in decode
  ReferenceResult result;

  Run(const plan::Model &m, const plan::Workload &w, std::span<const plan::Sequence> all,
      const RoutingChoices *seen, const ReferenceOptions &o)
      : model(m), workload(w), options(o), observed(seen), sequences(all), source(m, o.base_dir) {
    for (const plan::Sequence &sequence : sequences)
      tokens += sequence.length;
    if (w.routing.kind != "gate" && m.routed > 0)
      draw = prepare_routing(w.routing, m.routed, m.top_k, o.base_dir);
    for (int64_t l = 0; l < m.layers; ++l)
      attention.emplace_back(m, l, sequences);
    fed_ids.emplace_back();
    for (int64_t s = 0; s < num_sequences(); ++s)
      fed_ids[0].push_back(first_token_id(m.seed, s, m.vocab));
  }

  int64_t num_sequences() const { return static_cast<int64_t>(sequences.size()); }

  // work(sequence, place, token) for every token, threads over sequences; a sequence's tokens in order.
  template <typename Work> void for_tokens(Work work) const {
    for_ranges(num_sequences(), options.threads, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        for (int64_t place = 0; place < sequences[s].length; ++place)
          work(s, place, sequences[s].first_token + place);
    });
  }

  std::span<const int32_t> observed_experts(int64_t step, int64_t layer) const {
    if (!observed || step >= static_cast<int64_t>(observed->experts.size()) ||
        layer >= static_cast<int64_t>(observed->experts[step].size()) ||
        observed->experts[step][layer].empty())
      return {};
    const std::vector<int32_t> &experts = observed->experts[step][layer];
    if (static_cast<int64_t>(experts.size()) != tokens * model.top_k)
      throw ReferenceError(
          fmt::format("reference: got {} observed experts in step {}, layer {}, expected {} tokens x {}",
                      experts.size(), step, layer, tokens, model.top_k));
    return experts;
  }

  std::span<const int32_t> of_token(std::span<const int32_t> experts, int64_t token) const {
    return experts.empty()
               ? experts
               : experts.subspan(static_cast<size_t>(token * model.top_k), static_cast<size_t>(model.top_k));
  }

  void report(const std::string &what) {
    if (result.mismatches.size() < 10)
      result.mismatches.push_back(what);
  }

  int32_t id_at(int64_t sequence, int64_t position) const {
    if (position < 0)
      return 0;
    const int64_t past = position - sequences[sequence].history;
    if (past < 0 || workload.phase == "prefill")
      return context_token_id(model.seed, sequence, position, model.vocab);
    return fed_ids[past][sequence];
  }

  // The last ngram ids of a sequence up to a position, latest first.
  std::vector<int32_t> recent_ids(int64_t sequence, int64_t position) const {
    std::vector<int32_t> recent;
    for (int64_t back = 0; back < model.engram_ngram; ++back)
      recent.push_back(id_at(sequence, position - back));
    return recent;
  }

  void engram(int64_t step, int64_t layer, Vector &wide) {
    const auto found = std::find(model.engram_layers.begin(), model.engram_layers.end(), layer);
    if (found == model.engram_layers.end())
      return;
    const EngramLayer weights(model, source, static_cast<size_t>(found - model.engram_layers.begin()));
    for_tokens([&](int64_t s, int64_t place, int64_t t) {
      apply_engram(weights, recent_ids(s, sequences[s].position(step, place)),
                   wide.data() + t * model.hyper_connections * model.hidden);
    });
  }

  void attention_half(int64_t layer, Vector &wide) {
    const Streams streams(model, source, layer, "attn");
    const AttentionWeights weights(source, layer);
    AttentionLayer &state = attention[layer];
    for_tokens([&](int64_t s, int64_t, int64_t t) {
      streams.apply(wide.data() + t * model.hyper_connections * model.hidden,
                    [&](const double *x, double *out) { attend(state, weights, s, x, out); });
    });
  }

  // Returns the experts used, [tokens·top_k].
  std::vector<int32_t> feed_forward_half(int64_t step, int64_t layer, Vector &wide) {
    const Streams streams(model, source, layer, "ffn");
    const FeedForwardWeights weights(source, layer);
    const std::span<const int32_t> seen =
        weights.dense() ? std::span<const int32_t>{} : observed_experts(step, layer);
    std::vector<ExpertChoice> choices(static_cast<size_t>(tokens));
    for_tokens([&](int64_t s, int64_t place, int64_t t) {
      streams.apply(
          wide.data() + t * model.hyper_connections * model.hidden, [&](const double *x, double *out) {
            choices[t] = feed_forward_token(model, weights, draw, t, sequences[s].position(step, place),
                                            of_token(seen, t), options.tie, x, out);
          });
    });
    std::vector<int32_t> used;
    for (int64_t t = 0; t < tokens; ++t) {
      const ExpertChoice &choice = choices[t];
      used.insert(used.end(), choice.experts.begin(), choice.experts.end());
      result.expert_ties += choice.verdict == Verdict::tie;
      if (choice.verdict == Verdict::mismatch) {
        ++result.expert_mismatches;
        report(fmt::format(
            "step {}, layer {}, token {}: the run chose experts {}, the reference {}, gap {:.3g} of the "
            "largest score",
            step, layer, t, fmt::join(of_token(seen, t), " "), fmt::join(choice.own, " "), choice.gap));
      }
    }
    return used;
  }

  void head(int64_t step, const Vector &wide, ReferenceStep &out) {
    const Weights norm = source.get("norm"), weights = source.get("head");
    const int64_t hidden = model.hidden, vocab = model.vocab, n = model.hyper_connections;
    out.hidden.assign(static_cast<size_t>(tokens * hidden), 0.0);
    out.logits.resize(static_cast<size_t>(num_sequences() * vocab));
    for_tokens([&](int64_t s, int64_t place, int64_t t) {
      double *x = out.hidden.data() + t * hidden;
      for (int64_t i = 0; i < n * hidden; ++i)
        x[i % hidden] += wide[t * n * hidden + i];
      rms_norm(x, hidden, norm.data(), model.rms_eps);
      if (place + 1 == sequences[s].length)
        matvec(weights.data(), vocab, hidden, x, out.logits.data() + s * vocab);
    });
    const std::vector<int32_t> *seen = nullptr;
    if (observed && step < static_cast<int64_t>(observed->next_ids.size()) &&
        !observed->next_ids[step].empty()) {
      seen = &observed->next_ids[step];
      if (seen->size() != sequences.size())
        throw ReferenceError(fmt::format("reference: got {} observed ids in step {}, expected {}",
                                         seen->size(), step, sequences.size()));
    }
    for (int64_t s = 0; s < num_sequences(); ++s) {
      const IdChoice choice =
          judge_id(out.logits.data() + s * vocab, vocab, seen ? std::max(0, (*seen)[s]) : -1, options.tie);
      out.next_ids.push_back(choice.id);
      result.id_ties += choice.verdict == Verdict::tie;
      if (choice.verdict == Verdict::mismatch) {
        ++result.id_mismatches;
        report(fmt::format(
            "step {}, sequence {}: the run's next id is {}, the reference's {}, gap {:.3g} of the largest "
            "logit",
            step, s, (*seen)[s], choice.own, choice.gap));
      }
    }
  }

  void run_step(int64_t step) {
    const int64_t width = model.hyper_connections * model.hidden;
    Vector wide(static_cast<size_t>(tokens * width));
    const Weights embedding = source.get("embed");
    for_tokens([&](int64_t s, int64_t place, int64_t t) {
      const int64_t id = id_at(s, sequences[s].position(step, place));
      for (int64_t i = 0; i < width; ++i)
        wide[t * width + i] = embedding[id * model.hidden + i % model.hidden];
    });
    ReferenceStep out;
    for (int64_t l = 0; l < model.layers; ++l) {
      engram(step, l, wide);
      attention_half(l, wide);
      out.experts.push_back(feed_forward_half(step, l, wide));
      if (options.keep_hidden)
        out.layers.push_back(wide);
    }
    head(step, wide, out);
    fed_ids.push_back(out.next_ids);
    result.steps.push_back(std::move(out));
  }
};

} // namespace

ReferenceResult run_reference(const plan::Model &model, const plan::Workload &workload,
                              std::span<const plan::Sequence> sequences, int steps,
                              const RoutingChoices *observed, const ReferenceOptions &options) {
  check_model(model, workload, sequences, steps);
  Run run(model, workload, sequences, observed, options);
  for (int step = 0; step < steps; ++step)
    run.run_step(step);
  return std::move(run.result);
}

} // namespace paratope
