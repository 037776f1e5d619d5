// SPDX-License-Identifier: Apache-2.0
//
// The state a synthetic decode starts from: what lies in the cache of sequence S, and which token it feeds
// first. All of it is synthetic tensors of the model's seed, indexed by the global sequence number S:
//
//     kv.l             [S·2³² + p, D]   latent of position p in layer l (normalised and rotated, as it were)
//     kv_compressed.l  [S·2³² + j, D]   compressed entry j
//     kv_open.l, kv_open_gate.l [S·2³² + p, D]   candidates and gate logits of a compressor's open block
//     ids              [S]              the first token's id, modulo the vocabulary
//     context_ids      [S·2³² + p]      ids of the context, which Engram's n-grams look back on
//
// Values are uniform of unit variance. D is the layer's whole entry; a rank that holds some of a token's kv
// heads asks for its dims of it.
#pragma once

#include "runtime/weights/random_tensor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace paratope {

enum class StateTensor { kv, kv_compressed, kv_open, kv_open_gate };

// dst [dims] = elements first_dim … first_dim+dims−1 of row `place` (a position or an entry, < 2³²) of
// sequence S. The key form is for loops: state_key once a layer.
PhiloxKey state_key(int64_t seed, StateTensor tensor, int64_t layer);
void fill_state_row(PhiloxKey key, int64_t sequence, int64_t place, int64_t entry_size, int64_t first_dim,
                    int64_t dims, float *dst);

int32_t first_token_id(int64_t seed, int64_t sequence, int64_t vocab);
int32_t context_token_id(int64_t seed, int64_t sequence, int64_t position, int64_t vocab);

// Engram multipliers for models that give none: one row of `ngram` a layer, odd and at most ⌊(2⁶³−1)/vocab⌋,
// so that the products of real ids do not wrap. Drawn from tensor `engram.multipliers`.
std::vector<std::vector<int64_t>> drawn_multipliers(int64_t seed, int64_t num_layers, int64_t ngram,
                                                    int64_t vocab);

} // namespace paratope
