// SPDX-License-Identifier: Apache-2.0
//
// Judging what a run chose by the reference's own scores: the experts of a token, and its next id.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/reference/math.h"

#include <span>

namespace paratope::reference {

enum class Verdict { agrees, tie, mismatch };

struct ExpertChoice {
  std::vector<int32_t> experts; // the choice to use: own, or the observed one on a tie
  Verdict verdict = Verdict::agrees;
  std::vector<int32_t> own;
  double gap = 0; // by how much own beats observed at the boundary, in units of the largest |score|
};

// The top_k of choosing [routed], among the best groups where the model has groups.
std::vector<int32_t> best_experts(const plan::Model &model, const Vector &choosing);

// Own choice against `observed` (empty: none). choosing is score + bias of each expert. A mismatch's gap may
// be infinite: observed experts that repeat, or are out of range.
ExpertChoice judge_experts(const plan::Model &model, const Vector &choosing,
                           std::span<const int32_t> observed, double tie);

struct IdChoice {
  int32_t id = 0;
  Verdict verdict = Verdict::agrees;
  int32_t own = 0;
  double gap = 0;
};

// Own argmax (lowest id on ties) against `observed` (negative: none).
IdChoice judge_id(const double *logits, int64_t vocab, int32_t observed, double tie);

} // namespace paratope::reference
