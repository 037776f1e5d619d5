// SPDX-License-Identifier: Apache-2.0
//
// Which tokens a workload puts where: the one place that turns a workload into sequences and tokens, for
// whoever runs a step and whoever checks it. Sequences and tokens are numbered over all engines in order.
//
//     engine 0                        engine 1 (no work)   engine 2
//     sequence 0     sequence 1                            sequence 2
//     token 0 1 2    token 3 4        (a placeholder:      token 5 6 7 8
//                                      token 9 + 1)
//
// In decode a sequence has one token a step, so both numbers are the same. An engine without work runs one
// token that is thrown away, numbered past all others: `tokens` + its engine.
#pragma once

#include "runtime/plan/plan.h"

#include <span>

namespace paratope::plan {

struct Sequence {
  int64_t history = 0;     // tokens in the cache before step 0
  int64_t length = 1;      // tokens it has in each step
  int64_t first_token = 0; // number of the first of them
  // Position of its token number `place` (0 … length−1) of a step.
  int64_t position(int64_t step, int64_t place) const { return history + step * length + place; }
  bool operator==(const Sequence &) const = default;
};

struct Batch {
  std::vector<Sequence> sequences;           // of all engines
  std::vector<int64_t> first_sequence = {0}; // [engines + 1]
  int64_t tokens = 0;                        // a step

  int64_t engines() const { return static_cast<int64_t>(first_sequence.size()) - 1; }
  std::span<const Sequence> of_engine(int64_t engine) const;
  // The number of the sequence a token (0 … tokens−1) is of.
  int64_t sequence_of(int64_t token) const;
};

// A step holds at most this many tokens: each is a row of this process, in dozens of buffers.
inline constexpr int64_t max_batch_tokens = int64_t{1} << 24;

// The batch of `engines` engines. Throws std::invalid_argument on more tokens than max_batch_tokens, or a
// list that is empty where the phase needs one.
Batch batch_of(const Workload &workload, int64_t engines);

// Ranks that run steps: all, or those before the table-only ones.
int64_t serving_ranks(const Plan &plan);

// How many engines these ranks form. The axis may have more blocks than that: those of table-only ranks.
// Needs an engine axis.
int64_t num_engines(const Plan &plan);

} // namespace paratope::plan
