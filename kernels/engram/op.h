// SPDX-License-Identifier: Apache-2.0
//
// Engram: n-grams of token ids hashed to rows of huge tables, whose values are gated into the residual.
//
//   ids ─ engram_hash ─▶ rows [T, (ngram−1)·heads] ─ fetch from owners ─▶ feats [T, (ngram−1)·heads·dim]
//   feats·Wᵀ ─▶ a key a stream, and one value
//   X_m += σ(sign(d)·√max(|d|, 1e-6))·value,  d = ⟨norm X_m, norm key_m⟩/√H
//
// Bound by: the random row reads (dim·4 bytes each) and their trip from the owner; the gate by its
// projection, (streams+1)·H·(ngram−1)·heads·dim multiply-adds a token.
#pragma once

#include "kernels/tensor.h"

#include <vector>

namespace paratope {

// The hash of one Engram layer.
struct EngramHash {
  int64_t layer = 0;
  int64_t ngram = 0, heads = 0;
  std::vector<int64_t> primes;      // [(ngram−1)·heads], by (n, head)
  std::vector<int64_t> offsets;     // running sum of primes, same order
  std::vector<int64_t> multipliers; // [ngram]
  int64_t rows = 0;                 // Σ primes: the table's rows before padding
};

// The primes of every Engram layer, in the order given: one walk over primes from vocab_per_head − 1 upward,
// the next unused prime for each (layer, n, head). multipliers: one row a layer of at least `ngram` odd
// numbers (a model's data; runtime/weights draws them for models without). Throws KernelError on sizes or
// multipliers that do not fit.
std::vector<EngramHash> engram_hashes(std::span<const int64_t> layers, int64_t ngram, int64_t heads,
                                      int64_t vocab_per_head,
                                      const std::vector<std::vector<int64_t>> &multipliers);

// Rows of a table once it is cut into `parts` equal parts: rounded up to a multiple of lcm(256, parts). Part
// p owns rows p·n … (p+1)·n−1, n = padded / parts. Throws KernelError on rows < 0, parts < 1, or an overflow.
int64_t engram_padded_rows(int64_t rows, int64_t parts);

// The last `depth` tokens of every sequence: what an n-gram looks back on. Recording the same token again
// changes nothing, so each Engram layer of a step may record, where depth covers the step: its tokens of a
// sequence, and the n − 1 before.
class TokenHistory {
public:
  TokenHistory() = default;
  TokenHistory(int64_t sequences, int64_t tokens); // depth; throws KernelError on sizes below 0 and 1
  void record(int64_t sequence, int64_t position, int32_t id);
  // 0 for positions before the sequence's start. Throws KernelError when the token was never recorded.
  int32_t at(int64_t sequence, int64_t position) const;

private:
  struct Token {
    int64_t position = -1;
    int32_t id = 0;
  };
  int64_t depth = 0, num_sequences = 0;
  std::vector<Token> tokens; // [sequences][depth], position mod depth
};

// rows[t][(n−2)·heads + j] = (h_n mod prime[n, j]) + offset[n, j], h_n = XOR over k < n of id[position −
// k]·m_k in wrapping two's-complement 64-bit arithmetic; the remainder is never negative. Records ids in
// `history` first. ids, positions [T]; rows [T·(ngram−1)·heads]; sequences as in kernels/attention/op.h.
void engram_hash(const EngramHash &hash, std::span<const int32_t> ids, std::span<const int32_t> positions,
                 TokenHistory &history, std::span<int64_t> rows, std::span<const int32_t> sequences = {});

// out[i] = table row rows[i] − first_row: the part of a table whose owner holds num_rows rows from first_row.
// part [num_rows, dim], out [rows.size(), dim]. Throws KernelError on a row of another owner.
void engram_gather(const float *part, int64_t first_row, int64_t num_rows, std::span<const int64_t> rows,
                   Rows out);

// Tables are stored with one scale for 32 dims of a row, ⌈dim/32⌉ a row.
inline constexpr int64_t engram_scale_dims = 32;
inline int64_t engram_scale_groups(int64_t dim) { return (dim + engram_scale_dims - 1) / engram_scale_dims; }

// x[i][d] = x[i][d]·scales[rows[i]][d div 32], in place: table rows as stored become their values. x
// [rows.size(), dim], scales [num_rows, ⌈dim/32⌉]. Throws KernelError on a row outside.
void engram_scale(std::span<const int64_t> rows, const float *scales, int64_t num_rows, Rows x);

// [key_0 … key_{n−1}, value] = feats·Wᵀ; X'_m = X_m + gate_m·value with the gate above; norms are RMS norms
// with gains of their own a stream. X, X' [T, n·H], feats [T, F], wkv [(n+1)·H, F], h_gain, key_gain [n·H].
// May run in place.
void engram_gate(ConstRows wide, int64_t streams, ConstRows feats, const float *wkv, const float *h_gain,
                 const float *key_gain, double eps, Rows out);

} // namespace paratope
