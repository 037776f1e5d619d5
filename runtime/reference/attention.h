// SPDX-License-Identifier: Apache-2.0
//
// One layer's attention of the reference: its weights, what it remembers of every sequence, and one token
// through it. Synthetic entries of the history are made again whenever they are read; only appended ones are
// kept.
//
//     positions   0 … history−1          history, history+1, …
//                 made by name           appended                       tokens
//                 j < history div ratio  compressed[j − that]           compressed entries
//
// mla runs in its absorbed form (queries go to the latent); a test checks it against keys and values written
// out.
#pragma once

#include "runtime/plan/batch.h"
#include "runtime/reference/math.h"
#include "runtime/reference/weight_source.h"

#include <string>

namespace paratope::reference {

// What one sequence's tokens have left in a layer since the start.
struct SequenceEntries {
  int64_t history = 0;
  Vector appended;                // [tokens, entry]
  Vector open_c, open_g;          // the same, of a compressor with ratio > 1
  std::vector<Vector> compressed; // entries completed
};

struct AttentionLayer {
  const plan::Model *model = nullptr;
  int64_t layer = 0;
  int64_t entry_size = 0, window = 0, ratio = 0;
  double theta = 0;
  std::vector<SequenceEntries> sequences;

  AttentionLayer(const plan::Model &model, int64_t layer, std::span<const plan::Sequence> sequences);
};

struct AttentionWeights {
  Weights wq, wq_a, q_norm, wq_b, wkv, kv_norm, sink, wo, wo_a, wo_b; // those of the model's kind
  Weights compress_wkv, compress_norm, compress_wgate, wk_b, wv_b, wk, wv;

  AttentionWeights(const WeightSource &source, int64_t layer);
};

// out [hidden] = attention of sequence `sequence`'s next token, x [hidden] being already normalised. Its
// position is the history's tokens plus those appended. Appends its entry. Distinct sequences may run at the
// same time.
void attend(AttentionLayer &layer, const AttentionWeights &weights, int64_t sequence, const double *x,
            double *out);

} // namespace paratope::reference
