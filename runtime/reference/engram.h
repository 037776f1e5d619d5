// SPDX-License-Identifier: Apache-2.0
//
// Engram of the reference: hash, local gather (a row and its scales are made by name when they are needed, so
// no table is held), gate.
#pragma once

#include "runtime/reference/math.h"
#include "runtime/reference/weight_source.h"

namespace paratope::reference {

struct EngramLayer {
  const plan::Model *model = nullptr;
  int64_t layer = 0;
  std::vector<int64_t> primes, multipliers;
  Weights wkv, h_norm, key_norm;
  WeightStore store; // of the table's rows and scales

  EngramLayer(const plan::Model &model, const WeightSource &source, size_t idx); // idx into engram_layers
};

// The table rows of the n-grams that end with recent.front(); recent[k] is the token k places back, 0 before
// the start.
std::vector<int64_t> engram_rows(const EngramLayer &engram, const std::vector<int32_t> &recent);

// X [streams·hidden] of one token, in place.
void apply_engram(const EngramLayer &engram, const std::vector<int32_t> &recent, double *wide);

} // namespace paratope::reference
