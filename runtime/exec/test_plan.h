// SPDX-License-Identifier: Apache-2.0
//
// Plans made by hand for tests: what a compiler would emit for a small latent-attention model, without one.
// Every buffer has a place of its own, so nothing here tests an arena's reuse.
#pragma once

#include "runtime/plan/plan.h"

namespace paratope::test {

// Serving ranks are (dp cp tp), tp innermost; ep is all of them.
struct TestTopology {
  int64_t dp = 4; // engines
  int64_t tp = 1;
  int64_t cp = 1;
  int64_t og = 1;                     // adjacent ranks that split the output groups; with cp = tp = 1
  bool reduce_outputs = false;        // og: partial sums come back instead of the groups' outputs
  int64_t table_ranks = 0;            // ranks behind the serving ones that hold Engram rows only
  std::string exchange = "two-stage"; // two-stage | all-gather | none (dense layers)
  std::vector<int64_t> engine_tokens = {3};
  int64_t context = 5;
  std::vector<std::vector<int64_t>> engine_prompts = {}; // not empty: a prefill
  std::vector<int64_t> history = {};
  bool mirror = false;      // mirror and restore rows with cp 1 too
  bool load = false;        // kv_blocks and warm-ups; scales of Engram tables are gathered anyway
  int64_t redundant = 0;    // slots beyond the logical experts, given to experts 0, 1, …
  bool asynchronous = true; // dispatch overlaps the shared expert
  plan::Routing routing = {};
};

// hidden 32, 2 layers, 8 experts top-2 and a shared one, window 4, ratios 0 and 2.
plan::Model small_model();

// Throws std::logic_error where the sizes do not fit (a mistake in a test).
plan::Plan make_plan(const plan::Model &model, const TestTopology &topology);

} // namespace paratope::test
