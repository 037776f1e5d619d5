// SPDX-License-Identifier: Apache-2.0
//
// The one-rank reference that every topology is compared with: the whole model on all sequences, in naive
// float64 loops that share nothing with kernels/. Weights are made by name, a layer at a time, and freed.
//
// The discrete choices are where rounding can show: two experts' scores, or two logits, may be closer than
// the run's float32 resolves. Given what the run chose, the reference judges each choice by its own scores:
//
//     own choice = observed                     fine
//     differs, gap at the boundary <= 1e-5      a tie: counted, and the observed choice is adopted
//     differs by more                           a mismatch: counted and located; own choice is kept
//
// A step takes every sequence on by its length: by one token that the step before chose (decode), or by the
// next tokens of its prompt (prefill). Layers run over all of them, a sequence's tokens in order.
//
// Mathematics: what each op of a plan means is runtime/plan/instructions.md; the order of a layer is Engram,
// attention, feed-forward.
#pragma once

#include "runtime/plan/batch.h"

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace paratope {

// A model the reference cannot run, with the offending key: "got X, expected Y".
struct ReferenceError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// What a run chose. Tokens and sequences by their numbers in runtime/plan/batch.h.
struct RoutingChoices {
  // experts[step][layer]: [tokens·top_k] logical experts, or empty (dense layers, or not observed)
  std::vector<std::vector<std::vector<int32_t>>> experts;
  // next_ids[step]: [sequences], or empty
  std::vector<std::vector<int32_t>> next_ids;
};

struct ReferenceOptions {
  int threads = 2;          // over disjoint tokens; the result has the same bits for any number
  double tie = 1e-5;        // of the score's scale: the largest of |s + bias| of the token, or of |logits|
  bool keep_hidden = false; // also the residual after every layer
  std::string base_dir;     // of a relative path: a routing trace's, the weights'
};

struct ReferenceStep {
  std::vector<double> hidden;                // [tokens, H] after the final norm
  std::vector<double> logits;                // [sequences, V], of each one's last token
  std::vector<int32_t> next_ids;             // [sequences]: own argmax, or the observed one on a tie
  std::vector<std::vector<double>> layers;   // keep_hidden: after layer l, [tokens, hyper_connections·H]
  std::vector<std::vector<int32_t>> experts; // [layer][tokens·top_k]: the choice used; empty for dense layers
};

struct ReferenceResult {
  std::vector<ReferenceStep> steps;
  int64_t expert_ties = 0; // tokens whose adopted experts differ from the reference's own
  int64_t expert_mismatches = 0;
  int64_t id_ties = 0;
  int64_t id_mismatches = 0;
  std::vector<std::string> mismatches; // the first ten, located: step, layer, token, both choices, gap
};

// All engines' sequences (plan::batch_of) for `steps` steps. The seed of weights and state is model.seed.
// Throws ReferenceError on a model it does not know or sizes that do not fit.
ReferenceResult run_reference(const plan::Model &model, const plan::Workload &workload,
                              std::span<const plan::Sequence> sequences, int steps,
                              const RoutingChoices *observed = nullptr, const ReferenceOptions &options = {});

} // namespace paratope
