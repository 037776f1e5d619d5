// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/model_weights.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace paratope {
namespace {

void need(bool ok, const char *key, int64_t got, const std::string &expected) {
  if (!ok)
    throw WeightError(fmt::format("model: got {} = {}, expected {}", key, got, expected));
}

void need_positive(const char *key, int64_t got) { need(got >= 1, key, got, "1 or more"); }

struct Builder {
  const plan::Model &m;
  std::vector<plan::Weight> weights;

  void add(const std::string &name, std::vector<int64_t> shape, const char *init, int64_t fan_in = 1) {
    plan::Weight weight;
    weight.name = name;
    weight.shape = std::move(shape);
    weight.init = init;
    weight.fan_in = fan_in;
    weights.push_back(std::move(weight));
  }
  // A projection: its last dim is what it sums over.
  void project(const std::string &name, std::vector<int64_t> shape) {
    const int64_t fan_in = shape.back();
    add(name, std::move(shape), "normal", fan_in);
  }

  void hyper_connections(const std::string &name) {
    const int64_t n = m.hyper_connections;
    if (n == 1)
      return;
    project(name + ".fn", {n * n + 2 * n, n * m.hidden});
    add(name + ".scale", {3}, "hc_scale");
    add(name + ".base", {n * n + 2 * n}, "bias");
  }

  void query(const std::string &p, int64_t head_dim) {
    if (m.q_lora == 0) {
      project(p + "wq", {m.heads * head_dim, m.hidden});
      return;
    }
    project(p + "wq_a", {m.q_lora, m.hidden});
    add(p + "q_norm", {m.q_lora}, "gain");
    project(p + "wq_b", {m.heads * head_dim, m.q_lora});
  }

  void latent(const std::string &p, int64_t ratio) {
    query(p, m.head_dim);
    project(p + "wkv", {m.head_dim, m.hidden});
    add(p + "kv_norm", {m.head_dim}, "gain");
    if (m.o_groups > 0) {
      need(m.heads % m.o_groups == 0, "o_groups", m.o_groups, fmt::format("a divisor of {} heads", m.heads));
      need_positive("o_lora", m.o_lora);
      project(p + "wo_a", {m.o_groups, m.o_lora, m.heads / m.o_groups * m.head_dim});
      project(p + "wo_b", {m.hidden, m.o_groups * m.o_lora});
    } else {
      project(p + "wo", {m.hidden, m.heads * m.head_dim});
    }
    if (ratio > 0) {
      project(p + "compress.wkv", {m.head_dim, m.hidden});
      add(p + "compress.norm", {m.head_dim}, "gain");
    }
    if (ratio > 1)
      project(p + "compress.wgate", {m.head_dim, m.hidden});
  }

  void mla(const std::string &p) {
    need_positive("kv_lora", m.kv_lora);
    need_positive("nope_dim", m.nope_dim);
    need_positive("v_dim", m.v_dim);
    query(p, m.nope_dim + m.rope_dim);
    project(p + "wkv", {m.kv_lora + m.rope_dim, m.hidden});
    add(p + "kv_norm", {m.kv_lora}, "gain");
    project(p + "wk_b", {m.heads, m.kv_lora, m.nope_dim});
    project(p + "wv_b", {m.heads, m.v_dim, m.kv_lora});
    project(p + "wo", {m.hidden, m.heads * m.v_dim});
  }

  void gqa(const std::string &p) {
    need_positive("kv_heads", m.kv_heads);
    need(m.heads % m.kv_heads == 0, "kv_heads", m.kv_heads, fmt::format("a divisor of {} heads", m.heads));
    project(p + "wq", {m.heads * m.head_dim, m.hidden});
    project(p + "wk", {m.kv_heads * m.head_dim, m.hidden});
    project(p + "wv", {m.kv_heads * m.head_dim, m.hidden});
    project(p + "wo", {m.hidden, m.heads * m.head_dim});
  }

  void attention(const std::string &p, int64_t ratio) {
    if (m.attention != "mla")
      need_positive("head_dim", m.head_dim);
    if (m.attention == "latent")
      latent(p, ratio);
    else if (m.attention == "mla")
      mla(p);
    else
      gqa(p);
    if (m.sink)
      add(p + "sink", {m.heads}, "bias");
  }

  void feed_forward(const std::string &p, int64_t layer) {
    if (m.routed == 0 || layer < m.dense_layers) {
      need_positive("dense_width", m.dense_width);
      project(p + "mlp.w13", {2, m.dense_width, m.hidden});
      project(p + "mlp.w2", {m.hidden, m.dense_width});
      return;
    }
    need_positive("expert_width", m.expert_width);
    project(p + "moe.gate", {m.routed, m.hidden});
    add(p + "moe.bias", {m.routed}, "bias");
    project(p + "moe.w13", {m.routed, 2, m.expert_width, m.hidden});
    project(p + "moe.w2", {m.routed, m.hidden, m.expert_width});
    if (m.shared > 0) {
      project(p + "moe.shared.w13", {2, m.shared * m.expert_width, m.hidden});
      project(p + "moe.shared.w2", {m.hidden, m.shared * m.expert_width});
    }
  }

  void engram(const std::string &p, const std::vector<int64_t> &primes) {
    const int64_t n = m.hyper_connections;
    need_positive("engram_dim", m.engram_dim);
    add(p + "engram.table", {std::accumulate(primes.begin(), primes.end(), int64_t{0}), m.engram_dim},
        "normal");
    add(p + "engram.scale",
        {std::accumulate(primes.begin(), primes.end(), int64_t{0}), (m.engram_dim + 31) / 32}, "gain");
    project(p + "engram.wkv", {(n + 1) * m.hidden, (m.engram_ngram - 1) * m.engram_heads * m.engram_dim});
    add(p + "engram.h_norm", {n * m.hidden}, "gain");
    add(p + "engram.key_norm", {n * m.hidden}, "gain");
  }
};

bool is_prime(int64_t n) {
  for (int64_t d = 2; d <= n / d; ++d)
    if (n % d == 0)
      return false;
  return n > 1;
}

int64_t of_layer(const char *key, const std::vector<int64_t> &values, int64_t layer, int64_t layers) {
  need(values.empty() || static_cast<int64_t>(values.size()) == layers, key,
       static_cast<int64_t>(values.size()), fmt::format("{} entries, one a layer", layers));
  return values.empty() ? 0 : values[layer];
}

} // namespace

std::vector<std::vector<int64_t>> engram_primes(const plan::Model &model) {
  std::vector<std::vector<int64_t>> primes;
  if (model.engram_layers.empty())
    return primes;
  need(model.engram_ngram >= 2, "engram_ngram", model.engram_ngram, "2 or more");
  need_positive("engram_heads", model.engram_heads);
  need(model.engram_vocab_per_head >= 2, "engram_vocab_per_head", model.engram_vocab_per_head, "2 or more");
  int64_t last = model.engram_vocab_per_head - 1;
  for (size_t l = 0; l < model.engram_layers.size(); ++l) {
    primes.emplace_back();
    for (int64_t i = 0; i < (model.engram_ngram - 1) * model.engram_heads; ++i) {
      do
        ++last;
      while (!is_prime(last));
      primes.back().push_back(last);
    }
  }
  return primes;
}

std::vector<plan::Weight> model_weights(const plan::Model &model) {
  need_positive("hidden", model.hidden);
  need_positive("layers", model.layers);
  need_positive("vocab", model.vocab);
  need_positive("hyper_connections", model.hyper_connections);
  need_positive("heads", model.heads);
  need(model.q_lora >= 0, "q_lora", model.q_lora, "0 or more");
  if (model.attention != "latent" && model.attention != "mla" && model.attention != "gqa")
    throw WeightError(
        fmt::format("model: got attention = '{}', expected latent, mla or gqa", model.attention));
  const std::vector<std::vector<int64_t>> primes = engram_primes(model);

  Builder builder{model, {}};
  builder.add("embed", {model.vocab, model.hidden}, "normal");
  for (int64_t l = 0; l < model.layers; ++l) {
    const std::string p = fmt::format("layers.{}.", l);
    const auto engram = std::find(model.engram_layers.begin(), model.engram_layers.end(), l);
    if (engram != model.engram_layers.end())
      builder.engram(p, primes[engram - model.engram_layers.begin()]);
    const int64_t ratio = of_layer("compress_ratios", model.compress_ratios, l, model.layers);
    need(ratio >= 0 && (ratio == 0 || model.attention == "latent"), "compress_ratios", ratio,
         "0, or a ratio of a latent model");
    const int64_t window = of_layer("window", model.window, l, model.layers);
    need(window >= 0, "window", window, "0 or more");
    builder.add(p + "attn_norm", {model.hidden}, "gain");
    builder.hyper_connections(p + "hc_attn");
    builder.attention(p + "attn.", ratio);
    builder.add(p + "ffn_norm", {model.hidden}, "gain");
    builder.hyper_connections(p + "hc_ffn");
    builder.feed_forward(p, l);
  }
  builder.add("norm", {model.hidden}, "gain");
  builder.project("head", {model.vocab, model.hidden});
  return std::move(builder.weights);
}

} // namespace paratope
