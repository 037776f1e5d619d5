// SPDX-License-Identifier: Apache-2.0
//
// One layer's attention of the reference: its weights, what it remembers of every sequence, and one token
// through it. Synthetic entries of the context are made again whenever they are read; only appended ones are
// kept.
//
//     positions   0 … context−1          context, context+1, …
//                 made by name           appended[step]                     tokens
//                 j < context div ratio  compressed[sequence][j − that]     compressed entries
//
// mla runs in its absorbed form (queries go to the latent); a test checks it against keys and values written
// out.
#pragma once

#include "runtime/reference/math.h"
#include "runtime/reference/weight_source.h"

#include <string>

namespace paratope::reference {

struct AttentionLayer {
  const plan::Model *model = nullptr;
  int64_t layer = 0, context = 0, sequences = 0;
  int64_t entry_size = 0, window = 0, ratio = 0;
  double theta = 0;
  std::vector<Vector> appended;                // [step][sequences · entry]
  std::vector<Vector> open_c, open_g;          // the same, of a compressor with ratio > 1
  std::vector<std::vector<Vector>> compressed; // [sequence][entries completed since the start]

  AttentionLayer(const plan::Model &model, int64_t layer, int64_t context, int64_t sequences);
  void begin_step(); // makes room for the step's entries
};

struct AttentionWeights {
  Weights wq, wq_a, q_norm, wq_b, wkv, kv_norm, sink, wo, wo_a, wo_b; // those of the model's kind
  Weights compress_wkv, compress_norm, compress_wgate, wk_b, wv_b, wk, wv;

  AttentionWeights(const WeightSource &source, int64_t layer);
};

// out [hidden] = attention of sequence `sequence`'s next token, x [hidden] being already normalised. The
// token's position is context + steps begun − 1. Appends its entry. Distinct sequences may run at the same
// time.
void attend(AttentionLayer &layer, const AttentionWeights &weights, int64_t sequence, const double *x,
            double *out);

} // namespace paratope::reference
