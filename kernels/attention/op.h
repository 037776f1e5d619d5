// SPDX-License-Identifier: Apache-2.0
//
// Attention over a paged cache: rotations, appending to the cache, compressed keys, the attention itself, and
// the per-head and per-group projections around it.
//
// Bound by: reading every key a query sees once (keys·entry·4 bytes; all heads of a latent model share it),
// on the host by 2·heads·keys·head_dim float64 multiply-adds and heads·keys exponentials a token.
//
// Row i of the operands is one token: of sequence sequences[i] when `sequences` is given, of sequence i when
// it is empty; positions[i] is its position there.
#pragma once

#include "kernels/attention/kv_cache.h"
#include "kernels/tensor.h"

namespace paratope {

struct RopeOptions {
  int64_t heads = 1;
  int64_t head_dim = 0;
  int64_t rope_dim = 0; // the last rope_dim dims of a head are rotated; even
  double theta = 10000;
  bool inverse = false;   // rotate back
  bool normalise = false; // scale each head by rsqrt(mean(head²) + eps) first
  double eps = 0;
};

// y = x with the last rope_dim dims of each head rotated. Pairs are (2i, 2i+1), the angle
// position · theta^(−2i/rope_dim). x, y [T, heads·head_dim]. May run in place.
void rope(ConstRows x, std::span<const int32_t> positions, const RopeOptions &options, Rows y);

// Stores row i as the entry of its token. kv [T, entry_size of the layer] (layout at AttentionOptions).
// A batch may hold one token a sequence, or several.
void kv_append(KvCache &cache, int64_t layer, ConstRows kv, std::span<const int32_t> positions,
               std::span<const int32_t> sequences = {});

struct CompressOptions {
  int64_t rope_dim = 0;
  double theta = 0;
  double eps = 0;
};

// The layer's ratio 1: entry `position` = rope(rms_norm(c)) at its position; g is not read. Ratio r > 1:
// keeps c and g of the open block, and when position mod r = r−1 stores rope(rms_norm(Σ_j
// softmax_j(g_j)·c_j)) per channel over the block's r tokens, rotated at the block's first position, as entry
// position div r. c, g [T, D], gain [D]. Rows of one sequence must come in order of position.
void compress_append(KvCache &cache, int64_t layer, ConstRows c, ConstRows g,
                     std::span<const int32_t> positions, const float *gain, const CompressOptions &options,
                     std::span<const int32_t> sequences = {});

// Kv head g has entry_size/kv_heads floats of an entry, from g times that; its key is their first head_dim,
// its value the v_dim from v_offset:
//
//     latent, mla (kv_heads 1, v_offset 0)          grouped-query (v_offset head_dim)
//       [ key ················· ]                     [ key 0 | value 0 | key 1 | value 1 | … ]
//       [ value ········ ]                            so a rank that holds some kv heads holds a run of dims
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1; // query head h reads kv head h div (heads/kv_heads)
  int64_t head_dim = 0; // of a query and a key
  int64_t v_dim = 0;
  int64_t v_offset = 0;
  int64_t window = 0; // the last `window` tokens, the query's own included; 0: all
  double scale = 1;
};

// o = softmax(q·k·scale)·v over the window's tokens and, where the layer has a ratio, the first
// floor((position+1)/ratio) compressed entries (same layout as a token's entry). sink [heads] or null: a
// head's logit that joins the denominator only. q [T, heads·head_dim], o [T, heads·v_dim]. Reads only stored
// entries. A row of sequence −1 is padding: it sees no key, and its o is 0.
void attention(const KvCache &cache, int64_t layer, ConstRows q, std::span<const int32_t> positions,
               const float *sink, const AttentionOptions &options, Rows o,
               std::span<const int32_t> sequences = {});

// Where a head's part lies in a row of heads `head` wide: `dims` of them from `offset`.
struct HeadPart {
  int64_t head = 0, offset = 0, dims = 0;
};

// y_h = x_h·W[h]ᵀ, one matrix a head. x [T, heads·part.head], of which part.dims = K from part.offset are
// read; W [heads, N, K]; y [T, heads·N].
void head_linear(ConstRows x, int64_t heads, HeadPart part, const float *w, Rows y);

// Per head: all of a's Da, then part.dims of b from part.offset. a [T, heads·Da], b [T, heads·part.head],
// y [T, heads·(Da + part.dims)].
void head_concat(ConstRows a, ConstRows b, int64_t heads, HeadPart part, Rows y);

// r_g = o_g·Wo_a[g]ᵀ. o [T, groups·K], Wo_a [groups, R, K], r [T, groups·R].
void o_group_proj(ConstRows o, int64_t groups, const float *wo_a, Rows r);

} // namespace paratope
