// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/attention.h"

#include "runtime/weights/state.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paratope::reference {
namespace {

// Where key and value of a kv head lie in an entry, and the widths of the attention proper.
struct Shape {
  int64_t kv_heads, key_dim, value_dim, value_offset;
  double scale;
};

Shape shape_of(const plan::Model &m) {
  if (m.attention == "latent")
    return {1, m.head_dim, m.head_dim, 0, 1 / std::sqrt(static_cast<double>(m.head_dim))};
  if (m.attention == "mla")
    return {1, m.kv_lora + m.rope_dim, m.kv_lora, 0,
            1 / std::sqrt(static_cast<double>(m.nope_dim + m.rope_dim))};
  return {m.kv_heads, m.head_dim, m.head_dim, m.head_dim, 1 / std::sqrt(static_cast<double>(m.head_dim))};
}

void synthetic_row(const AttentionLayer &a, StateTensor tensor, int64_t sequence, int64_t place,
                   double *row) {
  Weights values(static_cast<size_t>(a.entry_size));
  fill_state_row(state_key(a.model->seed, tensor, a.layer), sequence, place, a.entry_size, 0, a.entry_size,
                 values.data());
  std::copy(values.begin(), values.end(), row);
}

// Row `position` of a per-token tensor: of the synthetic history, or as appended.
void token_row(const AttentionLayer &a, StateTensor tensor, const Vector &appended, int64_t sequence,
               int64_t position, double *row) {
  const int64_t history = a.sequences[sequence].history;
  if (position < history)
    synthetic_row(a, tensor, sequence, position, row);
  else
    std::copy_n(appended.data() + (position - history) * a.entry_size, a.entry_size, row);
}

// q [heads, key_dim] of the token: low-rank where the model has it, normalised where latent, rotated, and for
// mla taken to the latent.
Vector queries(const AttentionLayer &a, const AttentionWeights &w, const Angles &angles, const double *x) {
  const plan::Model &m = *a.model;
  const int64_t head = m.attention == "mla" ? m.nope_dim + m.rope_dim : m.head_dim;
  Vector q(static_cast<size_t>(m.heads * head));
  if (w.wq.empty()) {
    Vector low(static_cast<size_t>(m.q_lora));
    matvec(w.wq_a.data(), m.q_lora, m.hidden, x, low.data());
    rms_norm(low.data(), m.q_lora, w.q_norm.data(), m.rms_eps);
    matvec(w.wq_b.data(), m.heads * head, m.q_lora, low.data(), q.data());
  } else {
    matvec(w.wq.data(), m.heads * head, m.hidden, x, q.data());
  }
  for (int64_t h = 0; h < m.heads; ++h) {
    if (m.attention == "latent")
      rms_norm(q.data() + h * head, head, nullptr, m.rms_eps);
    rotate(q.data() + (h + 1) * head - m.rope_dim, angles);
  }
  if (m.attention != "mla")
    return q;
  const int64_t wide = m.kv_lora + m.rope_dim;
  Vector absorbed(static_cast<size_t>(m.heads * wide));
  for (int64_t h = 0; h < m.heads; ++h) {
    double *to = absorbed.data() + h * wide;
    matvec(w.wk_b.data() + h * m.kv_lora * m.nope_dim, m.kv_lora, m.nope_dim, q.data() + h * head, to);
    std::copy_n(q.data() + h * head + m.nope_dim, m.rope_dim, to + m.kv_lora);
  }
  return absorbed;
}

// The token's cache entry.
void make_entry(const AttentionLayer &a, const AttentionWeights &w, const Angles &angles, const double *x,
                double *entry) {
  const plan::Model &m = *a.model;
  if (m.attention == "gqa") {
    Vector k(static_cast<size_t>(m.kv_heads * m.head_dim)), v(k.size());
    matvec(w.wk.data(), m.kv_heads * m.head_dim, m.hidden, x, k.data());
    matvec(w.wv.data(), m.kv_heads * m.head_dim, m.hidden, x, v.data());
    for (int64_t g = 0; g < m.kv_heads; ++g) {
      rotate(k.data() + (g + 1) * m.head_dim - m.rope_dim, angles);
      entry = std::copy_n(k.data() + g * m.head_dim, m.head_dim, entry);
      entry = std::copy_n(v.data() + g * m.head_dim, m.head_dim, entry);
    }
    return;
  }
  matvec(w.wkv.data(), a.entry_size, m.hidden, x, entry);
  rms_norm(entry, m.attention == "mla" ? m.kv_lora : m.head_dim, w.kv_norm.data(), m.rms_eps);
  rotate(entry + a.entry_size - m.rope_dim, angles);
}

double *new_row(Vector &rows, int64_t size) {
  rows.resize(rows.size() + static_cast<size_t>(size));
  return rows.data() + rows.size() - size;
}

// Adds the compressed entry that the token completes, if it does.
void compress(AttentionLayer &a, const AttentionWeights &w, int64_t sequence, int64_t position,
              const double *x) {
  const plan::Model &m = *a.model;
  const int64_t size = a.entry_size, first = position / a.ratio * a.ratio;
  SequenceEntries &entries = a.sequences[sequence];
  Vector entry(static_cast<size_t>(size), 0.0);
  if (a.ratio == 1) {
    matvec(w.compress_wkv.data(), size, m.hidden, x, entry.data());
  } else {
    matvec(w.compress_wkv.data(), size, m.hidden, x, new_row(entries.open_c, size));
    matvec(w.compress_wgate.data(), size, m.hidden, x, new_row(entries.open_g, size));
    if (position + 1 < first + a.ratio)
      return;
    Vector c(static_cast<size_t>(size)), g(c.size()), weight(c.size(), 0.0);
    for (int64_t p = first; p <= position; ++p) { // gates are of order 1: no maximum to subtract
      token_row(a, StateTensor::kv_open, entries.open_c, sequence, p, c.data());
      token_row(a, StateTensor::kv_open_gate, entries.open_g, sequence, p, g.data());
      for (int64_t d = 0; d < size; ++d) {
        entry[d] += std::exp(g[d]) * c[d];
        weight[d] += std::exp(g[d]);
      }
    }
    for (int64_t d = 0; d < size; ++d)
      entry[d] /= weight[d];
  }
  rms_norm(entry.data(), size, w.compress_norm.data(), m.rms_eps);
  rotate(entry.data() + size - m.rope_dim, Angles(first, a.theta, m.rope_dim));
  entries.compressed.push_back(std::move(entry));
}

// Everything the query sees, one entry a row: the window's tokens, then the compressed entries.
Vector visible_entries(const AttentionLayer &a, int64_t sequence, int64_t position) {
  const int64_t first = a.window > 0 ? std::max<int64_t>(0, position + 1 - a.window) : 0;
  const int64_t num_compressed = a.ratio > 0 ? (position + 1) / a.ratio : 0;
  Vector entries(static_cast<size_t>((position + 1 - first + num_compressed) * a.entry_size));
  const SequenceEntries &kept = a.sequences[sequence];
  double *row = entries.data();
  for (int64_t p = first; p <= position; ++p, row += a.entry_size)
    token_row(a, StateTensor::kv, kept.appended, sequence, p, row);
  const int64_t synthetic = a.ratio > 0 ? kept.history / a.ratio : 0;
  for (int64_t j = 0; j < num_compressed; ++j, row += a.entry_size) {
    if (j < synthetic)
      synthetic_row(a, StateTensor::kv_compressed, sequence, j, row);
    else
      std::copy_n(kept.compressed[j - synthetic].data(), a.entry_size, row);
  }
  return entries;
}

// o [heads, value_dim] = softmax(q·k·scale)·v, a sink logit joining the denominator only.
Vector weigh(const AttentionLayer &a, const AttentionWeights &w, const Vector &q, const Vector &entries) {
  const plan::Model &m = *a.model;
  const Shape shape = shape_of(m);
  const int64_t keys = static_cast<int64_t>(entries.size()) / a.entry_size,
                head_entry = a.entry_size / shape.kv_heads;
  Vector o(static_cast<size_t>(m.heads * shape.value_dim), 0.0), p(static_cast<size_t>(keys));
  for (int64_t h = 0; h < m.heads; ++h) {
    const double *key = entries.data() + h / (m.heads / shape.kv_heads) * head_entry;
    double largest = w.sink.empty() ? -INFINITY : w.sink[h];
    for (int64_t k = 0; k < keys; ++k) {
      p[k] = dot(q.data() + h * shape.key_dim, key + k * a.entry_size, shape.key_dim) * shape.scale;
      largest = std::max(largest, p[k]);
    }
    double total = w.sink.empty() ? 0 : std::exp(w.sink[h] - largest);
    for (int64_t k = 0; k < keys; ++k) {
      p[k] = std::exp(p[k] - largest);
      total += p[k];
    }
    double *out = o.data() + h * shape.value_dim;
    for (int64_t k = 0; k < keys; ++k) {
      const double *value = key + k * a.entry_size + shape.value_offset;
      for (int64_t d = 0; d < shape.value_dim; ++d)
        out[d] += p[k] * value[d];
    }
    for (int64_t d = 0; d < shape.value_dim; ++d)
      out[d] /= total;
  }
  return o;
}

void project_out(const AttentionLayer &a, const AttentionWeights &w, const Angles &angles, Vector o,
                 double *out) {
  const plan::Model &m = *a.model;
  if (m.attention == "latent")
    for (int64_t h = 0; h < m.heads; ++h)
      rotate(o.data() + (h + 1) * m.head_dim - m.rope_dim, angles, true);
  if (m.attention == "mla") {
    Vector v(static_cast<size_t>(m.heads * m.v_dim));
    for (int64_t h = 0; h < m.heads; ++h)
      matvec(w.wv_b.data() + h * m.v_dim * m.kv_lora, m.v_dim, m.kv_lora, o.data() + h * m.kv_lora,
             v.data() + h * m.v_dim);
    o = std::move(v);
  }
  if (!w.wo.empty()) {
    matvec(w.wo.data(), m.hidden, static_cast<int64_t>(o.size()), o.data(), out);
    return;
  }
  const int64_t group = m.heads / m.o_groups * m.head_dim;
  Vector r(static_cast<size_t>(m.o_groups * m.o_lora));
  for (int64_t g = 0; g < m.o_groups; ++g)
    matvec(w.wo_a.data() + g * m.o_lora * group, m.o_lora, group, o.data() + g * group,
           r.data() + g * m.o_lora);
  matvec(w.wo_b.data(), m.hidden, m.o_groups * m.o_lora, r.data(), out);
}

} // namespace

AttentionLayer::AttentionLayer(const plan::Model &m, int64_t layer_idx,
                               std::span<const plan::Sequence> all_sequences)
    : model(&m), layer(layer_idx) {
  for (const plan::Sequence &sequence : all_sequences)
    sequences.push_back({sequence.history, {}, {}, {}, {}});
  entry_size = m.attention == "latent" ? m.head_dim
               : m.attention == "mla"  ? m.kv_lora + m.rope_dim
                                       : m.kv_heads * 2 * m.head_dim;
  window = m.window.empty() ? 0 : m.window[layer];
  ratio = m.compress_ratios.empty() ? 0 : m.compress_ratios[layer];
  theta = ratio > 0 ? m.compress_rope_theta : m.rope_theta;
}

AttentionWeights::AttentionWeights(const WeightSource &source, int64_t layer) {
  const std::string p = fmt::format("layers.{}.attn.", layer);
  auto get = [&](const char *name) { return source.get_if_any(p + name); };
  wq = get("wq"), wq_a = get("wq_a"), q_norm = get("q_norm"), wq_b = get("wq_b");
  wkv = get("wkv"), kv_norm = get("kv_norm"), sink = get("sink");
  wo = get("wo"), wo_a = get("wo_a"), wo_b = get("wo_b");
  compress_wkv = get("compress.wkv"), compress_norm = get("compress.norm"),
  compress_wgate = get("compress.wgate");
  wk_b = get("wk_b"), wv_b = get("wv_b"), wk = get("wk"), wv = get("wv");
}

void attend(AttentionLayer &layer, const AttentionWeights &weights, int64_t sequence, const double *x,
            double *out) {
  SequenceEntries &entries = layer.sequences[sequence];
  const int64_t position = entries.history + static_cast<int64_t>(entries.appended.size()) / layer.entry_size;
  const Angles angles(position, layer.theta, layer.model->rope_dim);
  make_entry(layer, weights, angles, x, new_row(entries.appended, layer.entry_size));
  if (layer.ratio > 0)
    compress(layer, weights, sequence, position, x);
  const Vector q = queries(layer, weights, angles, x);
  project_out(layer, weights, angles, weigh(layer, weights, q, visible_entries(layer, sequence, position)),
              out);
}

} // namespace paratope::reference
