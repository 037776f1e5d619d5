// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/batch.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace paratope::plan {

std::span<const Sequence> Batch::of_engine(int64_t engine) const {
  auto e = static_cast<size_t>(engine);
  return std::span(sequences).subspan(static_cast<size_t>(first_sequence[e]),
                                      static_cast<size_t>(first_sequence[e + 1] - first_sequence[e]));
}

int64_t Batch::sequence_of(int64_t token) const {
  auto next = std::upper_bound(sequences.begin(), sequences.end(), token,
                               [](int64_t t, const Sequence &s) { return t < s.first_token; });
  return next - sequences.begin() - 1;
}

Batch batch_of(const Workload &workload, int64_t engines) {
  bool prefill = workload.phase == "prefill";
  if (prefill ? workload.engine_prompts.empty() : workload.engine_tokens.empty())
    throw std::invalid_argument(fmt::format("got no entries of {}, expected some for a {}",
                                            prefill ? "engine_prompts" : "engine_tokens", workload.phase));
  Batch batch;
  auto need_room = [&](int64_t engine, int64_t tokens) {
    if (tokens > max_batch_tokens - batch.tokens)
      throw std::invalid_argument(
          fmt::format("got {} tokens for engine {} after {} of those before it, expected at "
                      "most {} a step",
                      tokens, engine, batch.tokens, max_batch_tokens));
  };
  auto add = [&](int64_t history, int64_t length) {
    batch.sequences.push_back({history, length, batch.tokens});
    batch.tokens += length;
  };
  for (int64_t e = 0; e < engines; ++e) {
    auto engine = static_cast<size_t>(e);
    if (prefill) {
      const auto &prompts = workload.engine_prompts[engine % workload.engine_prompts.size()];
      for (size_t j = 0; j < prompts.size(); ++j) {
        need_room(e, prompts[j]);
        add(workload.history.empty() ? 0 : workload.history[j % workload.history.size()], prompts[j]);
      }
    } else {
      int64_t count = workload.engine_tokens[engine % workload.engine_tokens.size()];
      need_room(e, count);
      for (int64_t i = 0; i < count; ++i)
        add(workload.context, 1);
    }
    batch.first_sequence.push_back(static_cast<int64_t>(batch.sequences.size()));
  }
  return batch;
}

int64_t serving_ranks(const Plan &plan) { return plan.serving_ranks > 0 ? plan.serving_ranks : plan.world; }

int64_t num_engines(const Plan &plan) {
  int64_t engines = 0;
  for (const Axis &axis : plan.axes)
    if (axis.name == plan.engine_axis)
      for (int64_t rank = 0; rank < serving_ranks(plan); ++rank)
        engines = std::max(engines, axis.block(rank) + 1);
  return engines;
}

} // namespace paratope::plan
