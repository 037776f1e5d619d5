// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/engram.h"

#include "runtime/weights/model_weights.h"
#include "runtime/weights/state.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paratope::reference {

EngramLayer::EngramLayer(const plan::Model &m, const WeightSource &source, size_t idx)
    : model(&m), layer(m.engram_layers[idx]), primes(engram_primes(m)[idx]),
      multipliers(m.engram_multipliers.empty()
                      ? drawn_multipliers(m.seed, static_cast<int64_t>(m.engram_layers.size()),
                                          m.engram_ngram, m.vocab)[idx]
                      : m.engram_multipliers[idx]),
      store(source.store) {
  const std::string p = fmt::format("layers.{}.engram.", layer);
  wkv = source.get(p + "wkv");
  h_norm = source.get(p + "h_norm");
  key_norm = source.get(p + "key_norm");
}

std::vector<int64_t> engram_rows(const EngramLayer &engram, const std::vector<int32_t> &recent) {
  const plan::Model &m = *engram.model;
  std::vector<int64_t> rows;
  int64_t offset = 0;
  for (int64_t n = 2; n <= m.engram_ngram; ++n) {
    uint64_t bits = 0;
    for (int64_t k = 0; k < n; ++k)
      bits ^= static_cast<uint64_t>(recent[k]) * static_cast<uint64_t>(engram.multipliers[k]);
    const __int128 hash = static_cast<int64_t>(bits);
    for (int64_t j = 0; j < m.engram_heads; ++j) {
      const int64_t prime = engram.primes[rows.size()];
      rows.push_back(static_cast<int64_t>(((hash % prime) + prime) % prime) + offset);
      offset += prime;
    }
  }
  return rows;
}

void apply_engram(const EngramLayer &engram, const std::vector<int32_t> &recent, double *wide) {
  const plan::Model &m = *engram.model;
  const int64_t hidden = m.hidden, streams = m.hyper_connections, dim = m.engram_dim;
  const int64_t groups = (dim + 31) / 32; // a scale for 32 dims
  const std::string p = fmt::format("layers.{}.engram.", engram.layer);
  Vector feats;
  Weights row(static_cast<size_t>(dim)), scale(static_cast<size_t>(groups));
  for (int64_t r : engram_rows(engram, recent)) {
    engram.store.fill(p + "table", init_named("normal", 1), r * dim, dim, row.data());
    engram.store.fill(p + "scale", init_named("gain", 1), r * groups, groups, scale.data());
    for (int64_t d = 0; d < dim; ++d)
      feats.push_back(static_cast<double>(row[d]) * scale[d / 32]);
  }
  Vector kv(static_cast<size_t>((streams + 1) * hidden));
  matvec(engram.wkv.data(), (streams + 1) * hidden, static_cast<int64_t>(feats.size()), feats.data(),
         kv.data());
  const double *value = kv.data() + streams * hidden;
  for (int64_t s = 0; s < streams; ++s) {
    double *h = wide + s * hidden, *key = kv.data() + s * hidden;
    Vector query(h, h + hidden);
    rms_norm(query.data(), hidden, engram.h_norm.data() + s * hidden, m.rms_eps);
    rms_norm(key, hidden, engram.key_norm.data() + s * hidden, m.rms_eps);
    const double d = dot(query.data(), key, hidden) / std::sqrt(static_cast<double>(hidden));
    const double gate = sigmoid((d < 0 ? -1 : 1) * std::sqrt(std::max(std::abs(d), 1e-6)));
    for (int64_t i = 0; i < hidden; ++i)
      h[i] += gate * value[i];
  }
}

} // namespace paratope::reference
