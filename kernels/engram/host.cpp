// SPDX-License-Identifier: Apache-2.0
#include "kernels/engram/op.h"

#include "kernels/dot.h"
#include "kernels/error.h"
#include "kernels/exp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace paratope {
namespace {

// Trial division: a few thousand divisions for the table sizes in use.
bool is_prime(int64_t n) {
  if (n < 4)
    return n > 1;
  if (n % 2 == 0)
    return false;
  for (int64_t d = 3; d <= n / d; d += 2)
    if (n % d == 0)
      return false;
  return true;
}

// XOR over k < n of id[position − k]·m_k for n = 2 … ngram, written to hashes[n − 2].
void ngram_hashes(const EngramHash &hash, const TokenHistory &history, int64_t sequence, int64_t position,
                  std::vector<int64_t> &hashes) {
  uint64_t mixed = 0; // unsigned, where wrapping is defined; the bits are those of two's complement
  for (int64_t k = 0; k < hash.ngram; ++k) {
    mixed ^= static_cast<uint64_t>(int64_t{history.at(sequence, position - k)}) *
             static_cast<uint64_t>(hash.multipliers[k]);
    if (k > 0)
      hashes[k - 1] = static_cast<int64_t>(mixed);
  }
}

} // namespace

std::vector<EngramHash> engram_hashes(std::span<const int64_t> layers, int64_t ngram, int64_t heads,
                                      int64_t vocab_per_head,
                                      const std::vector<std::vector<int64_t>> &multipliers) {
  if (ngram < 2)
    throw KernelError(fmt::format("engram: got ngram {}, expected 2 or more", ngram));
  check_positive("engram", "heads", heads);
  if (vocab_per_head < 2 || vocab_per_head > int64_t{1} << 40)
    throw KernelError(fmt::format("engram: got vocabulary {} a head, expected 2 to 2^40", vocab_per_head));
  check_equal("engram", "rows of multipliers", static_cast<int64_t>(multipliers.size()),
              static_cast<int64_t>(layers.size()));
  std::vector<EngramHash> hashes;
  int64_t candidate = vocab_per_head - 1;
  for (size_t l = 0; l < layers.size(); ++l) {
    EngramHash hash{layers[l], ngram, heads, {}, {}, multipliers[l], 0};
    if (static_cast<int64_t>(hash.multipliers.size()) < ngram)
      throw KernelError(fmt::format("engram: got {} multipliers for layer {}, expected {}",
                                    hash.multipliers.size(), layers[l], ngram));
    for (int64_t m : hash.multipliers)
      if (m % 2 == 0)
        throw KernelError(
            fmt::format("engram: got multiplier {} for layer {}, expected an odd number", m, layers[l]));
    for (int64_t i = 0; i < (ngram - 1) * heads; ++i) {
      do
        ++candidate;
      while (!is_prime(candidate));
      hash.primes.push_back(candidate);
      hash.offsets.push_back(hash.rows);
      hash.rows += candidate;
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

int64_t engram_padded_rows(int64_t rows, int64_t parts) {
  check_positive("engram", "parts of a table", parts);
  if (rows < 0)
    throw KernelError(fmt::format("engram: got {} rows of a table, expected 0 or more", rows));
  int64_t multiple = 0, padded = 0;
  if (__builtin_mul_overflow(parts / std::gcd(int64_t{256}, parts), int64_t{256}, &multiple) ||
      __builtin_mul_overflow(rows / multiple + (rows % multiple != 0), multiple, &padded))
    throw KernelError(
        fmt::format("engram: got {} rows in {} parts, expected padded rows below 2^63", rows, parts));
  return padded;
}

TokenHistory::TokenHistory(int64_t sequences, int64_t num_tokens)
    : depth(num_tokens), num_sequences(sequences) {
  check_positive("engram", "depth of a history", depth);
  int64_t size = 0;
  if (sequences < 0 || __builtin_mul_overflow(sequences, depth, &size))
    throw KernelError(
        fmt::format("engram: got {} sequences of a history, expected 0 or more that fit", sequences));
  tokens.resize(static_cast<size_t>(size));
}

void TokenHistory::record(int64_t sequence, int64_t position, int32_t id) {
  check_index("engram", "sequence", sequence, num_sequences, sequence);
  if (position < 0)
    throw KernelError(
        fmt::format("engram: got position {} of sequence {}, expected 0 or more", position, sequence));
  tokens[sequence * depth + position % depth] = {position, id};
}

int32_t TokenHistory::at(int64_t sequence, int64_t position) const {
  check_index("engram", "sequence", sequence, num_sequences, sequence);
  if (position < 0)
    return 0;
  const Token &token = tokens[sequence * depth + position % depth];
  if (token.position != position)
    throw KernelError(fmt::format("engram: token {} of sequence {} was never recorded", position, sequence));
  return token.id;
}

void engram_hash(const EngramHash &hash, std::span<const int32_t> ids, std::span<const int32_t> positions,
                 TokenHistory &history, std::span<int64_t> rows, std::span<const int32_t> sequences) {
  const auto num_tokens = static_cast<int64_t>(ids.size());
  const int64_t width = (hash.ngram - 1) * hash.heads;
  check_equal("engram_hash", "positions", static_cast<int64_t>(positions.size()), num_tokens);
  check_equal("engram_hash", "rows", static_cast<int64_t>(rows.size()), num_tokens * width);
  if (!sequences.empty())
    check_equal("engram_hash", "sequences", static_cast<int64_t>(sequences.size()), num_tokens);
  std::vector<int64_t> hashes(static_cast<size_t>(hash.ngram - 1));
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t sequence = sequences.empty() ? t : sequences[t];
    history.record(sequence, positions[t], ids[t]);
    ngram_hashes(hash, history, sequence, positions[t], hashes);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t prime = hash.primes[i], rest = hashes[i / hash.heads] % prime;
      rows[t * width + i] = (rest < 0 ? rest + prime : rest) + hash.offsets[i];
    }
  }
}

void engram_gather(const float *part, int64_t first_row, int64_t num_rows, std::span<const int64_t> rows,
                   Rows out) {
  check_equal("engram_gather", "rows of out", out.rows, static_cast<int64_t>(rows.size()));
  for (int64_t i = 0; i < out.rows; ++i) {
    if (rows[i] < first_row || rows[i] - first_row >= num_rows)
      throw KernelError(fmt::format("engram_gather: got table row {}, expected {} to {}", rows[i], first_row,
                                    first_row + num_rows - 1));
    std::copy_n(part + (rows[i] - first_row) * out.row_size, out.row_size, out.row(i));
  }
}

void engram_scale(std::span<const int64_t> rows, const float *scales, int64_t num_rows, Rows x) {
  check_equal("engram_scale", "rows of x", x.rows, static_cast<int64_t>(rows.size()));
  const int64_t groups = engram_scale_groups(x.row_size);
  for (int64_t i = 0; i < x.rows; ++i) {
    check_index("engram_scale", "table row", rows[i], num_rows, i);
    const float *scale = scales + rows[i] * groups;
    for (int64_t d = 0; d < x.row_size; ++d)
      x.row(i)[d] *= scale[d / engram_scale_dims];
  }
}

void engram_gate(ConstRows wide, int64_t streams, ConstRows feats, const float *wkv, const float *h_gain,
                 const float *key_gain, double eps, Rows out) {
  check_positive("engram_gate", "streams", streams);
  check_equal("engram_gate", "row size of X modulo streams", wide.row_size % streams, 0);
  check_equal("engram_gate", "rows of feats", feats.rows, wide.rows);
  check_equal("engram_gate", "rows of X'", out.rows, wide.rows);
  check_equal("engram_gate", "row size of X'", out.row_size, wide.row_size);
  const int64_t hidden = wide.row_size / streams, projected = (streams + 1) * hidden;
  const auto size = static_cast<double>(hidden);
  std::vector<double> kv(static_cast<size_t>(projected)); // a key a stream, then the value
  for (int64_t t = 0; t < wide.rows; ++t) {
    dot_block(feats.row(t), 0, 1, wkv, feats.row_size, projected, feats.row_size, kv.data(), projected);
    const double *value = kv.data() + streams * hidden;
    for (int64_t m = 0; m < streams; ++m) {
      const float *h = wide.row(t) + m * hidden;
      const double *key = kv.data() + m * hidden;
      double h_square = 0, key_square = 0, product = 0;
      for (int64_t i = 0; i < hidden; ++i) {
        h_square += static_cast<double>(h[i]) * h[i];
        key_square += key[i] * key[i];
        product += static_cast<double>(h[i]) * h_gain[m * hidden + i] * key[i] * key_gain[m * hidden + i];
      }
      const double d =
          product / std::sqrt(h_square / size + eps) / std::sqrt(key_square / size + eps) / std::sqrt(size);
      double e = -std::copysign(std::sqrt(std::max(std::abs(d), 1e-6)), d);
      exp_each(&e, 1);
      const double gate = 1.0 / (1.0 + e);
      for (int64_t i = 0; i < hidden; ++i)
        out.row(t)[m * hidden + i] = static_cast<float>(h[i] + gate * value[i]);
    }
  }
}

} // namespace paratope
