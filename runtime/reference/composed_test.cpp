// SPDX-License-Identifier: Apache-2.0
//
// The kernels composed into whole steps, as a one-rank plan would run them, against the reference that shares
// no code with them: every attention kind, compression ratios, hyper-connections, Engram, groups of experts,
// an exchange over four expert ranks, and several steps with a cache that grows.
#include "kernels/attention/op.h"
#include "kernels/engram/op.h"
#include "kernels/linear/op.h"
#include "kernels/moe/op.h"
#include "kernels/norm/op.h"
#include "runtime/reference/reference.h"
#include "runtime/weights/model_weights.h"
#include "runtime/weights/routing.h"
#include "runtime/weights/shard.h"
#include "runtime/weights/state.h"

#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace paratope {
namespace {

struct Buffer {
  std::vector<float> data;
  Rows rows;
  Buffer(Buffer &&) = default; // a view follows a moved vector, not a copied one
  Buffer(int64_t num_rows, int64_t row_size)
      : data(static_cast<size_t>(num_rows * row_size), std::numeric_limits<float>::quiet_NaN()),
        rows{data.data(), num_rows, row_size} {}
};

// One rank, all sequences, by kernels; experts on four ranks of one slot table with replicas.
struct KernelModel {
  const plan::Model &m;
  const plan::Workload &workload;
  int64_t t; // tokens
  std::map<std::string, std::vector<float>> weights;
  KvCache cache;
  TokenHistory history;
  std::vector<EngramHash> hashes;
  std::vector<int32_t> ids, positions;
  RoutingChoices choices;
  std::vector<float> hidden, logits; // of the last step

  KernelModel(const plan::Model &model, const plan::Workload &w, int64_t sequences)
      : m(model), workload(w), t(sequences), history(sequences, std::max<int64_t>(1, model.engram_ngram)) {
    for (const plan::Weight &weight : model_weights(m)) {
      std::vector<float> &data = weights[weight.name];
      data.resize(static_cast<size_t>(num_elements(weight.shape)));
      fill_shard(weight, WeightStore(m.seed), {}, {}, data.data());
    }
    KvCacheOptions shape{t, w.context + 8, 5, {}, 0};
    const int64_t entry = m.attention == "latent" ? m.head_dim
                          : m.attention == "mla"  ? m.kv_lora + m.rope_dim
                                                  : 2 * m.kv_heads * m.head_dim;
    for (int64_t l = 0; l < m.layers; ++l)
      shape.layers.push_back({entry, ratio(l)});
    cache = KvCache(shape);
    for (int64_t s = 0; s < t; ++s) {
      cache.reserve(s, w.context);
      for (int64_t l = 0; l < m.layers; ++l)
        fill_context(l, s, entry);
      for (int64_t p = std::max<int64_t>(0, w.context - m.engram_ngram); p < w.context; ++p)
        history.record(s, p, context_token_id(m.seed, s, p, m.vocab));
      ids.push_back(first_token_id(m.seed, s, m.vocab));
    }
    positions.assign(static_cast<size_t>(t), static_cast<int32_t>(w.context));
    if (!m.engram_layers.empty())
      hashes = engram_hashes(
          m.engram_layers, m.engram_ngram, m.engram_heads, m.engram_vocab_per_head,
          drawn_multipliers(m.seed, static_cast<int64_t>(m.engram_layers.size()), m.engram_ngram, m.vocab));
  }

  int64_t ratio(int64_t l) const { return m.compress_ratios.empty() ? 0 : m.compress_ratios[l]; }
  bool has(const std::string &name) const { return weights.count(name) > 0; }
  const float *w(const std::string &name) const { return weights.at(name).data(); }

  void fill_context(int64_t l, int64_t s, int64_t entry) {
    auto fill = [&](StateTensor tensor, int64_t place, float *dst) {
      fill_state_row(state_key(m.seed, tensor, l), s, place, entry, 0, entry, dst);
    };
    for (int64_t p = 0; p < workload.context; ++p)
      fill(StateTensor::kv, p, cache.token(l, s, p));
    const int64_t r = ratio(l);
    for (int64_t j = 0; r > 0 && j < workload.context / r; ++j)
      fill(StateTensor::kv_compressed, j, cache.compressed(l, s, j));
    for (int64_t p = r > 1 ? workload.context / r * r : workload.context; p < workload.context; ++p) {
      fill(StateTensor::kv_open, p, cache.open_candidate(l, s, p % r));
      fill(StateTensor::kv_open_gate, p, cache.open_gate(l, s, p % r));
    }
  }

  Buffer project(ConstRows x, const std::string &name, int64_t n) {
    Buffer y(x.rows, n);
    linear(x, w(name), y.rows);
    return y;
  }

  Buffer query(ConstRows x, const std::string &p, int64_t size) {
    if (has(p + "wq"))
      return project(x, p + "wq", size);
    Buffer low = project(x, p + "wq_a", m.q_lora);
    rms_norm(low.rows, w(p + "q_norm"), m.rms_eps, low.rows);
    return project(low.rows, p + "wq_b", size);
  }

  Buffer attention_of(int64_t l, ConstRows x) {
    const std::string p = fmt::format("layers.{}.attn.", l);
    const double theta = ratio(l) > 0 ? m.compress_rope_theta : m.rope_theta;
    const int64_t window = m.window.empty() ? 0 : m.window[l];
    const float *sink = m.sink ? w(p + "sink") : nullptr;
    if (m.attention == "latent") {
      Buffer q = query(x, p, m.heads * m.head_dim);
      rope(q.rows, positions, {m.heads, m.head_dim, m.rope_dim, theta, false, true, m.rms_eps}, q.rows);
      Buffer kv = project(x, p + "wkv", m.head_dim);
      rms_norm(kv.rows, w(p + "kv_norm"), m.rms_eps, kv.rows);
      rope(kv.rows, positions, {1, m.head_dim, m.rope_dim, theta, false, false, 0}, kv.rows);
      kv_append(cache, l, kv.rows, positions);
      if (ratio(l) > 0) {
        Buffer c = project(x, p + "compress.wkv", m.head_dim);
        Buffer g = ratio(l) > 1 ? project(x, p + "compress.wgate", m.head_dim) : Buffer(0, 0);
        compress_append(cache, l, c.rows, g.rows, positions, w(p + "compress.norm"),
                        {m.rope_dim, theta, m.rms_eps});
      }
      Buffer o(t, m.heads * m.head_dim);
      attention(
          cache, l, q.rows, positions, sink,
          {m.heads, 1, m.head_dim, m.head_dim, 0, window, 1 / std::sqrt(static_cast<double>(m.head_dim))},
          o.rows);
      rope(o.rows, positions, {m.heads, m.head_dim, m.rope_dim, theta, true, false, 0}, o.rows);
      Buffer r(t, m.o_groups * m.o_lora);
      o_group_proj(o.rows, m.o_groups, w(p + "wo_a"), r.rows);
      return project(r.rows, p + "wo_b", m.hidden);
    }
    if (m.attention == "mla") {
      const int64_t head = m.nope_dim + m.rope_dim, wide = m.kv_lora + m.rope_dim;
      Buffer q = query(x, p, m.heads * head);
      rope(q.rows, positions, {m.heads, head, m.rope_dim, theta, false, false, 0}, q.rows);
      Buffer kv = project(x, p + "wkv", wide);
      rms_norm(kv.rows, w(p + "kv_norm"), m.rms_eps, kv.rows, m.kv_lora);
      rope(kv.rows, positions, {1, wide, m.rope_dim, theta, false, false, 0}, kv.rows);
      kv_append(cache, l, kv.rows, positions);
      Buffer nope(t, m.heads * m.kv_lora), absorbed(t, m.heads * wide), o(t, m.heads * m.kv_lora),
          v(t, m.heads * m.v_dim);
      head_linear(q.rows, m.heads, {head, 0, m.nope_dim}, w(p + "wk_b"), nope.rows);
      head_concat(nope.rows, q.rows, m.heads, {head, m.nope_dim, m.rope_dim}, absorbed.rows);
      attention(cache, l, absorbed.rows, positions, sink,
                {m.heads, 1, wide, m.kv_lora, 0, window, 1 / std::sqrt(static_cast<double>(head))}, o.rows);
      head_linear(o.rows, m.heads, {m.kv_lora, 0, m.kv_lora}, w(p + "wv_b"), v.rows);
      return project(v.rows, p + "wo", m.hidden);
    }
    Buffer q = query(x, p, m.heads * m.head_dim);
    Buffer k = project(x, p + "wk", m.kv_heads * m.head_dim),
           v = project(x, p + "wv", m.kv_heads * m.head_dim);
    rope(q.rows, positions, {m.heads, m.head_dim, m.rope_dim, theta, false, false, 0}, q.rows);
    rope(k.rows, positions, {m.kv_heads, m.head_dim, m.rope_dim, theta, false, false, 0}, k.rows);
    Buffer kv(t, 2 * m.kv_heads * m.head_dim), o(t, m.heads * m.head_dim);
    head_concat(k.rows, v.rows, m.kv_heads, {m.head_dim, 0, m.head_dim}, kv.rows);
    kv_append(cache, l, kv.rows, positions);
    attention(cache, l, q.rows, positions, sink,
              {m.heads, m.kv_heads, m.head_dim, m.head_dim, m.head_dim, window,
               1 / std::sqrt(static_cast<double>(m.head_dim))},
              o.rows);
    return project(o.rows, p + "wo", m.hidden);
  }

  void feed_forward(ConstRows x, const float *w13, const float *w2, int64_t width, Rows y) {
    Buffer h(x.rows, 2 * width), a(x.rows, width);
    gate_up(x, w13, h.rows);
    swiglu(h.rows, m.swiglu_limit, a.rows);
    linear(a.rows, w2, y);
  }

  // Dispatch to four expert ranks, by the pure functions, and back.
  Buffer experts_of(int64_t l, ConstRows x) {
    const std::string p = fmt::format("layers.{}.", l);
    Buffer y(t, m.hidden);
    if (!has(p + "moe.gate")) {
      feed_forward(x, w(p + "mlp.w13"), w(p + "mlp.w2"), m.dense_width, y.rows);
      choices.experts.back().emplace_back();
      return y;
    }
    std::vector<int32_t> idx(static_cast<size_t>(t * m.top_k)), drawn;
    if (workload.routing.kind != "gate") {
      const ExpertDraw draw = prepare_routing(workload.routing, m.routed, m.top_k);
      drawn.resize(idx.size());
      for (int64_t i = 0; i < t; ++i)
        draw_experts(draw, i, positions[i], std::span(drawn).subspan(i * m.top_k, m.top_k));
    }
    Buffer weight(t, m.top_k);
    gate(x, w(p + "moe.gate"), w(p + "moe.bias"),
         {m.routed, m.top_k, m.gate_groups, m.gate_top_groups, score_named(m.score), m.normalise, m.scaling},
         drawn, idx, weight.rows);
    choices.experts.back().push_back(idx);

    const int64_t ep = 4, physical = (m.routed + 3 + ep - 1) / ep * ep;
    plan::Experts experts{m.routed, physical, physical / ep, {}};
    for (int64_t s = 0; s < physical; ++s)
      experts.slots.push_back((s * 5) % m.routed); // 5 and the expert counts here have no common factor
    const SlotTable table = slot_table(experts.slots, m.routed, ep);
    std::vector<int64_t> numbers(static_cast<size_t>(t));
    for (int64_t i = 0; i < t; ++i)
      numbers[i] = i;
    std::vector<DispatchList> lists;
    pack_dispatch(idx, weight.rows, numbers, table, lists);
    std::vector<Buffer> returned;
    for (int64_t d = 0; d < ep; ++d) {
      Buffer sent(static_cast<int64_t>(lists[d].tokens.size()), m.hidden);
      pack_rows(x, lists[d], sent.rows);
      ExpertRows order;
      const DispatchList *const received[] = {&lists[d]};
      order_rows(received, table.local, order);
      Buffer in(order.rows(), m.hidden), out(order.rows(), m.hidden);
      const ConstRows sources[] = {sent.rows};
      expand_rows(sources, order, in.rows);
      const plan::Weight w13{0,        p + "moe.w13", {m.routed, 2, m.expert_width, m.hidden},
                             "normal", m.hidden,      {{0, "ep", true}}};
      const plan::Weight w2{0,        p + "moe.w2",   {m.routed, m.hidden, m.expert_width},
                            "normal", m.expert_width, {{0, "ep", true}}};
      std::vector<float> local13(static_cast<size_t>(table.local * 2 * m.expert_width * m.hidden)),
          local2(local13.size() / 2);
      fill_shard(w13, WeightStore(m.seed), {{"ep", {d, ep}}}, experts, local13.data());
      fill_shard(w2, WeightStore(m.seed), {{"ep", {d, ep}}}, experts, local2.data());
      Buffer h(order.rows(), 2 * m.expert_width), a(order.rows(), m.expert_width);
      expert_gate_up(in.rows, order.offsets, local13.data(), h.rows);
      swiglu(h.rows, m.swiglu_limit, a.rows);
      expert_down(a.rows, order.offsets, local2.data(), out.rows);
      Buffer sums(sent.rows.rows, m.hidden);
      combine_rows(out.rows, order, 0, sums.rows);
      returned.push_back(std::move(sums));
    }
    std::vector<ConstRows> returned_rows;
    for (Buffer &sums : returned)
      returned_rows.push_back({sums.data.data(), sums.rows.rows, m.hidden});
    Buffer shared(t, m.hidden);
    if (m.shared > 0)
      feed_forward(x, w(p + "moe.shared.w13"), w(p + "moe.shared.w2"), m.shared * m.expert_width,
                   shared.rows);
    combine_accumulate(lists, returned_rows, m.shared > 0 ? ConstRows(shared.rows) : ConstRows(), y.rows);
    return y;
  }

  template <typename Sublayer> void half(int64_t l, const char *name, Buffer &wide, Sublayer sublayer) {
    const std::string p = fmt::format("layers.{}.", l), hc = p + "hc_" + name + ".";
    const int64_t n = m.hyper_connections;
    Buffer x(t, m.hidden), mix(t, n + n * n);
    if (n > 1)
      hc_pre(wide.rows, n, w(hc + "fn"), w(hc + "scale"), w(hc + "base"), x.rows, mix.rows);
    rms_norm(n > 1 ? x.rows : wide.rows, w(p + name + "_norm"), m.rms_eps, x.rows);
    Buffer f = sublayer(x.rows);
    const ConstRows operands[] = {wide.rows, f.rows};
    if (n > 1)
      hc_post(wide.rows, f.rows, mix.rows, n, wide.rows);
    else
      add(operands, wide.rows);
  }

  void engram(int64_t l, Buffer &wide) {
    for (const EngramHash &hash : hashes) {
      if (hash.layer != l)
        continue;
      const std::string p = fmt::format("layers.{}.engram.", l);
      const int64_t width = (m.engram_ngram - 1) * m.engram_heads;
      std::vector<int64_t> rows(static_cast<size_t>(t * width));
      engram_hash(hash, ids, positions, history, rows);
      Buffer feats(t, width * m.engram_dim);
      const Rows each{feats.data.data(), t * width, m.engram_dim};
      engram_gather(w(p + "table"), 0, hash.rows, rows, each);
      engram_scale(rows, w(p + "scale"), hash.rows, each);
      engram_gate(wide.rows, m.hyper_connections, feats.rows, w(p + "wkv"), w(p + "h_norm"),
                  w(p + "key_norm"), m.rms_eps, wide.rows);
    }
  }

  void step() {
    Buffer x(t, m.hidden), wide(t, m.hyper_connections * m.hidden), last(t, m.hidden), out(t, m.vocab);
    choices.experts.emplace_back();
    embed(ids, w("embed"), m.vocab, x.rows);
    hc_expand(x.rows, m.hyper_connections, wide.rows);
    for (int64_t l = 0; l < m.layers; ++l) {
      engram(l, wide);
      half(l, "attn", wide, [&](ConstRows in) { return attention_of(l, in); });
      half(l, "ffn", wide, [&](ConstRows in) { return experts_of(l, in); });
    }
    hc_sum(wide.rows, m.hyper_connections, last.rows);
    rms_norm(last.rows, w("norm"), m.rms_eps, last.rows);
    linear(last.rows, w("head"), out.rows);
    argmax(out.rows, ids);
    choices.next_ids.push_back(ids);
    for (int32_t &position : positions)
      ++position;
    hidden = last.data;
    logits = out.data;
  }
};

double relative_error(const std::vector<float> &got, const std::vector<double> &expected) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]))
      return INFINITY;
    worst = std::max(worst, std::abs(got[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}

plan::Model base_model() {
  plan::Model m;
  m.hidden = 24, m.layers = 5, m.vocab = 61, m.seed = 11, m.rms_eps = 1e-20;
  m.attention = "latent", m.heads = 8, m.head_dim = 12, m.rope_dim = 4, m.q_lora = 10, m.o_groups = 4,
  m.o_lora = 6;
  m.rope_theta = 10000, m.compress_rope_theta = 160000;
  m.window = {6, 6, 6, 6, 6}, m.compress_ratios = {0, 0, 2, 1, 3}, m.sink = true;
  m.routed = 16, m.top_k = 3, m.shared = 1, m.expert_width = 14, m.score = "sqrtsoftplus", m.scaling = 1.5;
  m.swiglu_limit = 1;
  return m;
}

struct Case {
  const char *name;
  plan::Model model;
  std::string routing = "gate";
  int64_t context = 13;
};

std::vector<Case> cases() {
  std::vector<Case> all{{"latent", base_model()}};
  plan::Model m = base_model();
  m.hyper_connections = 4, m.engram_layers = {1, 3}, m.engram_ngram = 4, m.engram_heads = 2, m.engram_dim = 5;
  m.engram_vocab_per_head = 50;
  all.push_back({"latent_streams_engram", m});
  all.push_back({"empty_context", m, "gate", 0});
  all.push_back({"drawn_zipf", m, "zipf"});
  m = base_model();
  m.attention = "mla", m.kv_lora = 9, m.nope_dim = 6, m.v_dim = 5, m.rms_eps = 1e-6, m.window.clear(),
  m.sink = false;
  m.compress_ratios.clear();
  m.dense_layers = 2, m.dense_width = 20, m.score = "sigmoid", m.gate_groups = 4, m.gate_top_groups = 2,
  m.scaling = 2.5;
  all.push_back({"mla_grouped_gate", m});
  m = base_model();
  m.attention = "gqa", m.kv_heads = 2, m.rope_dim = 12, m.rms_eps = 1e-6, m.score = "softmax", m.shared = 0;
  m.compress_ratios.clear(), m.window = {0, 4, 0, 4, 0}, m.swiglu_limit = 0, m.scaling = 1;
  all.push_back({"gqa", m});
  m.routed = 0, m.dense_width = 30, m.sink = false;
  all.push_back({"gqa_dense", m});
  m = base_model();
  m.hidden = 64, m.layers = 40, m.vocab = 512, m.heads = 64, m.head_dim = 16, m.q_lora = 32, m.o_groups = 8,
  m.o_lora = 16;
  m.routed = 96, m.top_k = 6, m.expert_width = 32, m.swiglu_limit = 10, m.window.assign(40, 128);
  m.compress_ratios.assign(40, 1);
  std::fill_n(m.compress_ratios.begin(), 20, 2);
  std::fill_n(m.compress_ratios.begin(), 2, 0);
  all.push_back({"forty_layers", m, "gate", 48});
  return all;
}

class Composed : public testing::TestWithParam<Case> {};

TEST_P(Composed, EqualsTheReferenceOverSteps) {
  const Case &c = GetParam();
  plan::Workload workload;
  workload.context = c.context;
  workload.routing.kind = c.routing;
  const int64_t tokens = 9;
  const int steps = 4;
  KernelModel kernels(c.model, workload, tokens);
  for (int s = 0; s < steps; ++s)
    kernels.step();
  workload.engine_tokens = {tokens};
  const ReferenceResult reference =
      run_reference(c.model, workload, plan::batch_of(workload, 1).sequences, steps, &kernels.choices);
  EXPECT_EQ(reference.expert_mismatches, 0);
  EXPECT_EQ(reference.id_mismatches, 0);
  EXPECT_EQ(reference.steps.back().next_ids, kernels.ids);
  const double hidden_error = relative_error(kernels.hidden, reference.steps.back().hidden);
  const double logits_error = relative_error(kernels.logits, reference.steps.back().logits);
  RecordProperty("hidden_error", fmt::format("{:.2e}", hidden_error));
  EXPECT_LT(hidden_error, 2e-6);
  EXPECT_LT(logits_error, 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, Composed, testing::ValuesIn(cases()),
                         [](const auto &model) { return std::string(model.param.name); });

} // namespace
} // namespace paratope
