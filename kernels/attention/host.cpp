// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/op.h"

#include "kernels/dot.h"
#include "kernels/error.h"
#include "kernels/exp.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace paratope {
namespace {

// One token's angles: cos and sin of position · theta^(−2i/rope_dim) for pair i.
struct Rotation {
  std::vector<double> frequency, cosine, sine;

  Rotation(double theta, int64_t rope_dim) {
    for (int64_t i = 0; i < rope_dim / 2; ++i)
      frequency.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dim)));
    cosine.resize(frequency.size());
    sine.resize(frequency.size());
  }
  void move_to(int64_t position, bool inverse) {
    for (size_t i = 0; i < frequency.size(); ++i) {
      const double angle = static_cast<double>(position) * frequency[i];
      cosine[i] = std::cos(angle);
      sine[i] = inverse ? -std::sin(angle) : std::sin(angle);
    }
  }
  // out = the pairs of `in` rotated, times factor.
  void apply(const float *in, double factor, float *out) const {
    for (size_t i = 0; i < frequency.size(); ++i) {
      const double a = in[2 * i] * factor, b = in[2 * i + 1] * factor;
      out[2 * i] = static_cast<float>(a * cosine[i] - b * sine[i]);
      out[2 * i + 1] = static_cast<float>(a * sine[i] + b * cosine[i]);
    }
  }
};

void check_rope_dim(const char *op, int64_t rope_dim, int64_t head_dim) {
  if (rope_dim < 0 || rope_dim > head_dim || rope_dim % 2 != 0)
    throw KernelError(
        fmt::format("{}: got rope_dim {}, expected an even number of at most {}", op, rope_dim, head_dim));
}

// The tokens' places, checked: one position a row, and a sequence for each or none at all.
struct Places {
  std::span<const int32_t> positions, sequences;

  Places(const char *op, int64_t rows, std::span<const int32_t> p, std::span<const int32_t> s)
      : positions(p), sequences(s) {
    check_equal(op, "positions", static_cast<int64_t>(p.size()), rows);
    if (!s.empty())
      check_equal(op, "sequences", static_cast<int64_t>(s.size()), rows);
    for (int64_t t = 0; t < rows; ++t)
      if (p[t] < 0)
        throw KernelError(fmt::format("{}: got position {} in row {}, expected 0 or more", op, p[t], t));
  }
  int64_t sequence(int64_t row) const { return sequences.empty() ? row : sequences[row]; }
};

const KvLayerShape &layer_shape(const char *op, const KvCache &cache, int64_t layer) {
  check_index(op, "layer", layer, static_cast<int64_t>(cache.shape().layers.size()), 0);
  return cache.shape().layers[layer];
}

// entry = rope(rms_norm(c)) in place, c in float64.
void finish_entry(const std::vector<double> &c, const float *gain, const CompressOptions &options,
                  const Rotation &rotation, float *entry) {
  double square = 0;
  for (double value : c)
    square += value * value;
  const auto size = static_cast<int64_t>(c.size());
  const double factor = 1.0 / std::sqrt(square / static_cast<double>(size) + options.eps);
  for (int64_t d = 0; d < size; ++d)
    entry[d] = static_cast<float>(c[d] * factor * gain[d]);
  rotation.apply(entry + size - options.rope_dim, 1.0, entry + size - options.rope_dim);
}

// A run of keys that lie one after another in a page.
struct KeyRun {
  const float *first;
  int64_t count;
};

// Keys of the query in order: the window's tokens, then the compressed entries. Returns how many.
int64_t collect_keys(const KvCache &cache, int64_t layer, int64_t sequence, int64_t position, int64_t window,
                     std::vector<KeyRun> &runs) {
  const KvLayerShape &shape = cache.shape().layers[layer];
  runs.clear();
  auto extend = [&](const float *entry) {
    if (!runs.empty() && entry == runs.back().first + runs.back().count * shape.entry_size)
      ++runs.back().count;
    else
      runs.push_back({entry, 1});
  };
  const int64_t first = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  const int64_t entries = shape.ratio > 0 ? (position + 1) / shape.ratio : 0;
  for (int64_t p = first; p <= position; ++p)
    extend(cache.token(layer, sequence, p));
  for (int64_t j = 0; j < entries; ++j)
    extend(cache.compressed(layer, sequence, j));
  return position + 1 - first + entries;
}

// scores [keys] become e^(score·scale − largest); returns their sum, which the sink's joins.
double exponentials(double *scores, int64_t keys, double scale, const float *sink) {
  double largest = sink ? static_cast<double>(*sink) : -INFINITY;
  for (int64_t k = 0; k < keys; ++k)
    largest = std::max(largest, scores[k] *= scale);
  for (int64_t k = 0; k < keys; ++k)
    scores[k] -= largest;
  exp_each(scores, keys);
  double total = 0;
  if (sink) {
    total = *sink - largest;
    exp_each(&total, 1);
  }
  for (int64_t k = 0; k < keys; ++k)
    total += scores[k];
  return total;
}

} // namespace

void rope(ConstRows x, std::span<const int32_t> positions, const RopeOptions &options, Rows y) {
  check_positive("rope", "heads", options.heads);
  check_positive("rope", "head_dim", options.head_dim);
  check_rope_dim("rope", options.rope_dim, options.head_dim);
  check_equal("rope", "row size of x", x.row_size, options.heads * options.head_dim);
  check_equal("rope", "row size of y", y.row_size, x.row_size);
  check_equal("rope", "rows of y", y.rows, x.rows);
  const Places places("rope", x.rows, positions, {});
  Rotation rotation(options.theta, options.rope_dim);
  const int64_t plain = options.head_dim - options.rope_dim;
  for (int64_t t = 0; t < x.rows; ++t) {
    rotation.move_to(positions[t], options.inverse);
    for (int64_t h = 0; h < options.heads; ++h) {
      const float *in = x.row(t) + h * options.head_dim;
      float *out = y.row(t) + h * options.head_dim;
      double factor = 1;
      if (options.normalise)
        factor = 1.0 / std::sqrt(dot(in, in, options.head_dim) / static_cast<double>(options.head_dim) +
                                 options.eps);
      for (int64_t d = 0; d < plain; ++d)
        out[d] = static_cast<float>(in[d] * factor);
      rotation.apply(in + plain, factor, out + plain);
    }
  }
}

void kv_append(KvCache &cache, int64_t layer, ConstRows kv, std::span<const int32_t> positions,
               std::span<const int32_t> sequences) {
  check_equal("kv_append", "row size of kv", kv.row_size, layer_shape("kv_append", cache, layer).entry_size);
  const Places places("kv_append", kv.rows, positions, sequences);
  for (int64_t t = 0; t < kv.rows; ++t) {
    cache.reserve(places.sequence(t), positions[t] + int64_t{1});
    std::copy(kv.row(t), kv.row(t) + kv.row_size, cache.token(layer, places.sequence(t), positions[t]));
  }
}

void compress_append(KvCache &cache, int64_t layer, ConstRows c, ConstRows g,
                     std::span<const int32_t> positions, const float *gain, const CompressOptions &options,
                     std::span<const int32_t> sequences) {
  const KvLayerShape &shape = layer_shape("compress_append", cache, layer);
  check_positive("compress_append", "ratio of the layer", shape.ratio);
  check_equal("compress_append", "row size of c", c.row_size, shape.entry_size);
  check_rope_dim("compress_append", options.rope_dim, shape.entry_size);
  if (shape.ratio > 1) {
    check_equal("compress_append", "rows of g", g.rows, c.rows);
    check_equal("compress_append", "row size of g", g.row_size, c.row_size);
  }
  const Places places("compress_append", c.rows, positions, sequences);
  Rotation rotation(options.theta, options.rope_dim);
  std::vector<double> pooled(static_cast<size_t>(c.row_size));
  for (int64_t t = 0; t < c.rows; ++t) {
    const int64_t sequence = places.sequence(t), position = positions[t];
    cache.reserve(sequence, position + 1);
    const int64_t place = position % shape.ratio;
    if (shape.ratio == 1) {
      std::copy(c.row(t), c.row(t) + c.row_size, pooled.begin());
    } else {
      std::copy(c.row(t), c.row(t) + c.row_size, cache.open_candidate(layer, sequence, place));
      std::copy(g.row(t), g.row(t) + c.row_size, cache.open_gate(layer, sequence, place));
      if (place != shape.ratio - 1)
        continue;
      const float *candidates = cache.open_candidate(layer, sequence, 0);
      const float *gates = cache.open_gate(layer, sequence, 0);
      for (int64_t d = 0; d < c.row_size; ++d) {
        double largest = -INFINITY, weights = 0, total = 0;
        for (int64_t j = 0; j < shape.ratio; ++j)
          largest = std::max<double>(largest, gates[j * c.row_size + d]);
        for (int64_t j = 0; j < shape.ratio; ++j) {
          double weight = gates[j * c.row_size + d] - largest;
          exp_each(&weight, 1);
          weights += weight;
          total += weight * candidates[j * c.row_size + d];
        }
        pooled[d] = total / weights;
      }
    }
    rotation.move_to(position - place, false);
    finish_entry(pooled, gain, options, rotation, cache.compressed(layer, sequence, position / shape.ratio));
  }
}

void attention(const KvCache &cache, int64_t layer, ConstRows q, std::span<const int32_t> positions,
               const float *sink, const AttentionOptions &options, Rows o,
               std::span<const int32_t> sequences) {
  const KvLayerShape &shape = layer_shape("attention", cache, layer);
  const int64_t heads = options.heads, head_dim = options.head_dim, v_dim = options.v_dim;
  check_positive("attention", "heads", heads);
  check_positive("attention", "kv_heads", options.kv_heads);
  if (heads % options.kv_heads != 0 || shape.entry_size % options.kv_heads != 0)
    throw KernelError(
        fmt::format("attention: got {} heads and an entry of {} for {} kv_heads, expected multiples", heads,
                    shape.entry_size, options.kv_heads));
  const int64_t head_entry = shape.entry_size / options.kv_heads, group = heads / options.kv_heads;
  if (head_dim < 1 || head_dim > head_entry || v_dim < 1 || options.v_offset < 0 || options.window < 0 ||
      options.v_offset + v_dim > head_entry)
    throw KernelError(
        fmt::format("attention: got head_dim {}, v_dim {} at {}, window {}, expected parts of a kv "
                    "head's {} floats and a window of 0 or more",
                    head_dim, v_dim, options.v_offset, options.window, head_entry));
  check_equal("attention", "row size of q", q.row_size, heads * head_dim);
  check_equal("attention", "row size of o", o.row_size, heads * v_dim);
  check_equal("attention", "rows of o", o.rows, q.rows);
  const Places places("attention", q.rows, positions, sequences);

  std::vector<KeyRun> runs;
  std::vector<double> scores, sums(static_cast<size_t>(heads * v_dim)), totals(static_cast<size_t>(heads));
  for (int64_t t = 0; t < q.rows; ++t) {
    if (places.sequence(t) == -1) {
      std::fill_n(o.row(t), o.row_size, 0.0F);
      continue;
    }
    const int64_t keys = collect_keys(cache, layer, places.sequence(t), positions[t], options.window, runs);
    scores.resize(static_cast<size_t>(heads * keys)); // [heads, keys]
    std::fill(sums.begin(), sums.end(), 0.0);         // [heads, v_dim]
    // A kv head's query heads read its keys together: each run of keys is converted once for two of them.
    for (int64_t g = 0; g < options.kv_heads; ++g) {
      const int64_t head = g * group;
      int64_t first = 0;
      for (const KeyRun &run : runs) {
        dot_block(q.row(t) + head * head_dim, head_dim, group, run.first + g * head_entry, shape.entry_size,
                  run.count, head_dim, scores.data() + head * keys + first, keys);
        first += run.count;
      }
      for (int64_t h = head; h < head + group; ++h)
        totals[h] = exponentials(scores.data() + h * keys, keys, options.scale, sink ? sink + h : nullptr);
      first = 0;
      for (const KeyRun &run : runs) {
        weighted_rows(scores.data() + head * keys + first, keys, group,
                      run.first + g * head_entry + options.v_offset, shape.entry_size, run.count, v_dim,
                      sums.data() + head * v_dim, v_dim);
        first += run.count;
      }
    }
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t d = 0; d < v_dim; ++d)
        o.row(t)[h * v_dim + d] = static_cast<float>(sums[h * v_dim + d] / totals[h]);
  }
}

void head_linear(ConstRows x, int64_t heads, HeadPart part, const float *w, Rows y) {
  check_positive("head_linear", "heads", heads);
  if (part.offset < 0 || part.dims < 0 || part.offset + part.dims > part.head)
    throw KernelError(fmt::format("head_linear: got {} dims from {}, expected a part of a head of {}",
                                  part.dims, part.offset, part.head));
  check_equal("head_linear", "row size of x", x.row_size, heads * part.head);
  check_equal("head_linear", "row size of y", y.row_size % heads, 0);
  check_equal("head_linear", "rows of y", y.rows, x.rows);
  const int64_t n = y.row_size / heads;
  for (int64_t h = 0; h < heads; ++h)
    dot_block(x.data + h * part.head + part.offset, x.row_size, x.rows, w + h * n * part.dims, part.dims, n,
              part.dims, y.data + h * n, y.row_size);
}

void head_concat(ConstRows a, ConstRows b, int64_t heads, HeadPart part, Rows y) {
  check_positive("head_concat", "heads", heads);
  if (part.offset < 0 || part.dims < 0 || part.offset + part.dims > part.head)
    throw KernelError(fmt::format("head_concat: got {} dims from {}, expected a part of a head of {}",
                                  part.dims, part.offset, part.head));
  check_equal("head_concat", "row size of a modulo heads", a.row_size % heads, 0);
  check_equal("head_concat", "row size of b", b.row_size, heads * part.head);
  check_equal("head_concat", "row size of y", y.row_size, a.row_size + heads * part.dims);
  check_equal("head_concat", "rows of a", a.rows, y.rows);
  check_equal("head_concat", "rows of b", b.rows, y.rows);
  const int64_t a_dims = a.row_size / heads;
  for (int64_t t = 0; t < y.rows; ++t) {
    float *out = y.row(t);
    for (int64_t h = 0; h < heads; ++h) {
      out = std::copy_n(a.row(t) + h * a_dims, a_dims, out);
      out = std::copy_n(b.row(t) + h * part.head + part.offset, part.dims, out);
    }
  }
}

void o_group_proj(ConstRows o, int64_t groups, const float *wo_a, Rows r) {
  check_positive("o_group_proj", "groups", groups);
  check_equal("o_group_proj", "row size of o modulo groups", o.row_size % groups, 0);
  check_equal("o_group_proj", "row size of r modulo groups", r.row_size % groups, 0);
  const int64_t k = o.row_size / groups;
  head_linear(o, groups, {k, 0, k}, wo_a, r);
}

} // namespace paratope
