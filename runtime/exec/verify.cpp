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
  double row_error(const Rank &rank, int64_t step, int64_t token, const char *what, const float *out,
                   const double *ref, size_t count);
};

void Verifier::collect() {
  int64_t total = state.program.total_tokens;
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
      ids.resize(static_cast<size_t>(total), -1);
      for (size_t t = 0; t < output.ids.size(); ++t)
        if (output.tokens[t] < total)
          merge(ids, static_cast<size_t>(output.tokens[t]), output.ids[t],
                fmt::format("step {}, token {}, next id", output.step, output.tokens[t]));
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

double Verifier::row_error(const Rank &rank, int64_t step, int64_t token, const char *what, const float *out,
                           const double *ref, size_t count) {
  double error = 0, scale = 0;
  for (size_t i = 0; i < count; ++i) {
    double difference = std::fabs(static_cast<double>(out[i]) - ref[i]);
    if (std::isnan(difference)) {
      problem(fmt::format("rank {}, step {}, token {}: got NaN in {}[{}]", rank.rank, step, token, what, i));
      return NAN;
    }
    error = std::max(error, difference);
    scale = std::max(scale, std::fabs(ref[i]));
  }
  double relative = error == 0 ? 0 : error / scale; // infinite where the reference is 0 and the run is not
  if (relative > max_relative_error)
    problem(
        fmt::format("rank {}, step {}, token {}: got relative error {:.2e} of {}, expected at most {:.0e}",
                    rank.rank, step, token, relative, what, max_relative_error));
  return relative;
}

void Verifier::compare(const ReferenceResult &reference) {
  int64_t total = state.program.total_tokens;
  auto hidden = static_cast<size_t>(plan.model.hidden), vocab = static_cast<size_t>(plan.model.vocab);
  std::vector<std::vector<char>> seen(static_cast<size_t>(steps),
                                      std::vector<char>(static_cast<size_t>(total)));
  bool nan = false;
  for (const auto &rank : state.ranks)
    for (const Rank::Output &output : rank->outputs) {
      if (output.step >= steps)
        continue;
      const ReferenceStep &step = reference.steps[static_cast<size_t>(output.step)];
      if (output.hidden.size() != output.tokens.size() * hidden ||
          output.logits.size() != output.tokens.size() * vocab) {
        problem(fmt::format(
            "rank {}, step {}: got {} hidden and {} logits for {} tokens, expected {} and {} each",
            rank->rank, output.step, output.hidden.size(), output.logits.size(), output.tokens.size(), hidden,
            vocab));
        nan = true;
        continue;
      }
      for (size_t t = 0; t < output.tokens.size(); ++t) {
        int64_t token = output.tokens[t];
        if (token >= total)
          continue; // a placeholder
        auto at = static_cast<size_t>(token);
        for (double error : {row_error(*rank, output.step, token, "hidden", &output.hidden[t * hidden],
                                       &step.hidden[at * hidden], hidden),
                             row_error(*rank, output.step, token, "logits", &output.logits[t * vocab],
                                       &step.logits[at * vocab], vocab)}) {
          nan |= std::isnan(error);
          result.max_rel_error = std::isnan(error) ? error : std::max(result.max_rel_error, error);
        }
        seen[static_cast<size_t>(output.step)][at] = 1;
        ++result.tokens;
      }
    }
  for (int64_t step = 0; step < steps; ++step) {
    const auto &row = seen[static_cast<size_t>(step)];
    auto missing = std::find(row.begin(), row.end(), 0);
    if (missing != row.end()) {
      problem(fmt::format("step {}: got no output for token {}, expected one from some rank", step,
                          missing - row.begin()));
      nan = true;
    }
  }
  if (nan)
    result.max_rel_error = NAN;
}

} // namespace

VerifyResult verify_run(const plan::Plan &plan, const WorldState &state, int64_t steps, int64_t threads,
                        const std::string &base_dir) {
  Verifier verifier{plan, state, steps, {}, {}};
  VerifyResult &result = verifier.result;
  result.done = true;
  if (steps == 0) {
    verifier.problem("nothing to verify: no step was finished");
    return result;
  }
  if (state.program.total_tokens == 0) { // every engine ran a placeholder: there is no output to differ
    result.ok = true;
    return result;
  }
  verifier.collect();
  ReferenceOptions options;
  options.threads = static_cast<int>(threads);
  options.base_dir = base_dir;
  try {
    ReferenceResult reference = run_reference(plan.model, plan.workload, state.program.total_tokens,
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
