// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/verify.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/reference/reference.h"

namespace paratope {
namespace {

constexpr size_t max_listed = 10;

struct Verifier {
  const plan::Plan &plan;
  const WorldState &state;
  int64_t steps;
  VerifyResult result;
  RoutingChoices observed;
  bool incomplete = false; // a NaN, or an output that is not there

  const plan::Batch &batch() const { return state.program.batch; }

  void problem(std::string text) {
    if (result.problems.size() < max_listed)
      result.problems.push_back(std::move(text));
  }

  // Puts `value` in place, or says that two ranks differ there. −1 marks what nobody has written.
  void merge(std::vector<int32_t> &into, size_t place, int32_t value, const std::string &what) {
    if (into[place] != -1 && into[place] != value) {
      ++result.mismatches;
      problem(fmt::format("{}: got {} from one rank and {} from another, expected equal choices", what,
                          into[place], value));
    }
    into[place] = value;
  }

  void collect();
  void compare(const ReferenceResult &reference);
  bool has_all_values(const Rank &rank, const Rank::Output &output);
  void compare_row(const Rank &rank, int64_t step, int64_t token, const char *what, const float *out,
                   const double *ref, size_t count);
  void report_missing(int64_t step, const char *what, const std::vector<char> &seen);
};

void Verifier::collect() {
  int64_t total = batch().tokens;
  auto num_steps = static_cast<size_t>(steps);
  observed.experts.assign(num_steps,
                          std::vector<std::vector<int32_t>>(static_cast<size_t>(plan.model.layers)));
  observed.next_ids.assign(num_steps, {});
  for (const auto &rank : state.ranks) {
    for (const Rank::Choice &choice : rank->choices) {
      if (choice.step >= steps)
        continue;
      auto &experts = observed.experts[static_cast<size_t>(choice.step)][static_cast<size_t>(choice.layer)];
      auto k = static_cast<size_t>(choice.top_k);
      experts.resize(static_cast<size_t>(total) * k, -1);
      for (size_t t = 0; t < choice.tokens.size(); ++t)
        for (size_t i = 0; i < k && choice.tokens[t] < total; ++i)
          merge(experts, static_cast<size_t>(choice.tokens[t]) * k + i, choice.experts[t * k + i],
                fmt::format("step {}, layer {}, token {}, expert {}", choice.step, choice.layer,
                            choice.tokens[t], i));
    }
    for (const Rank::Output &output : rank->outputs) {
      if (output.step >= steps)
        continue;
      auto &ids = observed.next_ids[static_cast<size_t>(output.step)];
      ids.resize(batch().sequences.size(), -1);
      for (size_t t = 0; t < output.ids.size(); ++t)
        if (output.last[t] < total)
          merge(ids, static_cast<size_t>(batch().sequence_of(output.last[t])), output.ids[t],
                fmt::format("step {}, token {}, next id", output.step, output.last[t]));
    }
  }
  // A token that no rank gave a choice for cannot be judged: the reference would have to guess.
  for (size_t step = 0; step < num_steps; ++step) {
    auto missing = [&](std::vector<int32_t> &choices, const std::string &what) {
      auto hole = std::find(choices.begin(), choices.end(), -1);
      if (hole == choices.end())
        return;
      ++result.mismatches;
      problem(fmt::format("step {}: got no {} for entry {}, expected one from some rank", step, what,
                          hole - choices.begin()));
      choices.clear();
    };
    for (size_t layer = 0; layer < observed.experts[step].size(); ++layer)
      missing(observed.experts[step][layer], fmt::format("choice of layer {}", layer));
    missing(observed.next_ids[step], "next id");
  }
}

void Verifier::compare_row(const Rank &rank, int64_t step, int64_t token, const char *what, const float *out,
                           const double *ref, size_t count) {
  double error = 0, scale = 0;
  for (size_t i = 0; i < count; ++i) {
    double difference = std::fabs(static_cast<double>(out[i]) - ref[i]);
    if (std::isnan(difference)) {
      incomplete = true;
      return problem(
          fmt::format("rank {}, step {}, token {}: got NaN in {}[{}]", rank.rank, step, token, what, i));
    }
    error = std::max(error, difference);
    scale = std::max(scale, std::fabs(ref[i]));
  }
  double relative = error == 0 ? 0 : error / scale; // infinite where the reference is 0 and the run is not
  if (relative > max_relative_error)
    problem(
        fmt::format("rank {}, step {}, token {}: got relative error {:.2e} of {}, expected at most {:.0e}",
                    rank.rank, step, token, relative, what, max_relative_error));
  result.max_rel_error = std::max(result.max_rel_error, relative);
}

bool Verifier::has_all_values(const Rank &rank, const Rank::Output &output) {
  auto hidden = static_cast<size_t>(plan.model.hidden), vocab = static_cast<size_t>(plan.model.vocab);
  if (output.hidden.size() == output.tokens.size() * hidden &&
      output.logits.size() == output.last.size() * vocab)
    return true;
  problem(
      fmt::format("rank {}, step {}: got {} hidden of {} tokens and {} logits of {}, expected {} and {} each",
                  rank.rank, output.step, output.hidden.size(), output.tokens.size(), output.logits.size(),
                  output.last.size(), hidden, vocab));
  incomplete = true;
  return false;
}

void Verifier::report_missing(int64_t step, const char *what, const std::vector<char> &seen) {
  auto missing = std::find(seen.begin(), seen.end(), 0);
  if (missing == seen.end())
    return;
  problem(fmt::format("step {}: got no output for {} {}, expected one from some rank", step, what,
                      missing - seen.begin()));
  incomplete = true;
}

void Verifier::compare(const ReferenceResult &reference) {
  int64_t total = batch().tokens;
  auto hidden = static_cast<size_t>(plan.model.hidden), vocab = static_cast<size_t>(plan.model.vocab);
  auto none = [&](size_t count) {
    return std::vector<std::vector<char>>(static_cast<size_t>(steps), std::vector<char>(count));
  };
  std::vector<std::vector<char>> tokens = none(static_cast<size_t>(total)),
                                 sequences = none(batch().sequences.size());
  for (const auto &rank : state.ranks)
    for (const Rank::Output &output : rank->outputs) {
      if (output.step >= steps || !has_all_values(*rank, output))
        continue;
      auto s = static_cast<size_t>(output.step);
      const ReferenceStep &step = reference.steps[s];
      for (size_t t = 0; t < output.tokens.size(); ++t) {
        if (output.tokens[t] >= total)
          continue; // a placeholder
        auto at = static_cast<size_t>(output.tokens[t]);
        compare_row(*rank, output.step, output.tokens[t], "hidden", &output.hidden[t * hidden],
                    &step.hidden[at * hidden], hidden);
        tokens[s][at] = 1;
        ++result.tokens;
      }
      for (size_t t = 0; t < output.last.size(); ++t) {
        if (output.last[t] >= total)
          continue;
        auto at = static_cast<size_t>(batch().sequence_of(output.last[t]));
        compare_row(*rank, output.step, output.last[t], "logits", &output.logits[t * vocab],
                    &step.logits[at * vocab], vocab);
        sequences[s][at] = 1;
      }
    }
  for (int64_t step = 0; step < steps; ++step) {
    report_missing(step, "token", tokens[static_cast<size_t>(step)]);
    report_missing(step, "sequence", sequences[static_cast<size_t>(step)]);
  }
  if (incomplete)
    result.max_rel_error = NAN;
}

} // namespace

VerifyResult verify_run(const plan::Plan &plan, const WorldState &state, int64_t steps, int64_t threads,
                        const std::string &base_dir) {
  Verifier verifier{plan, state, steps, {}, {}, false};
  VerifyResult &result = verifier.result;
  result.done = true;
  if (steps == 0) {
    verifier.problem("nothing to verify: no step was finished");
    return result;
  }
  if (state.program.batch.tokens == 0) { // every engine ran a placeholder: there is no output to differ
    result.ok = true;
    return result;
  }
  verifier.collect();
  ReferenceOptions options;
  options.threads = static_cast<int>(threads);
  options.base_dir = base_dir;
  try {
    ReferenceResult reference = run_reference(plan.model, plan.workload, state.program.batch.sequences,
                                              static_cast<int>(steps), &verifier.observed, options);
    result.ties = reference.expert_ties + reference.id_ties;
    result.mismatches += reference.expert_mismatches + reference.id_mismatches;
    for (const std::string &mismatch : reference.mismatches)
      verifier.problem(mismatch);
    verifier.compare(reference);
  } catch (const std::exception &error) {
    verifier.problem(fmt::format("the reference cannot run this model: {}", error.what()));
    return result;
  }
  result.ok = result.max_rel_error <= max_relative_error && result.mismatches == 0 && result.problems.empty();
  return result;
}

} // namespace paratope
