// SPDX-License-Identifier: Apache-2.0
#include "evaluate.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include <fmt/format.h>

#include "compiler/pipeline.h"
#include "compiler/plan/emit.h"
#include "dsl/topo/bridge.h"
#include "runtime/exec/world.h"
#include "runtime/plan/plan_json.h"

namespace paratope::random {

namespace {

constexpr double most_error = 1e-5;

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string listed(const Diagnostics &found) {
  std::string text;
  for (const Diagnostic &each : found.all())
    if (each.severity == Severity::error)
      text += fmt::format("  {}:{}:{}: {}: {}\n", each.where.file, each.where.line, each.where.column,
                          each.code, each.message);
  return text;
}

// A message without its numbers: the same fault at another size.
std::string squeezed(const std::string &message) {
  std::string kept;
  for (char c : message)
    if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && c != '-')
      kept += c;
  return kept.substr(0, 120);
}

struct Evaluation {
  const std::string &file;
  const Expectation &expectation;
  int64_t steps;
  const std::vector<std::string> &search;
  Outcome outcome;

  void fail(const char *fault, const std::string &detail, const std::string &kind) {
    outcome.fault = fault;
    outcome.detail = detail;
    outcome.kind = fmt::format("{} {}", fault, squeezed(kind));
  }

  void run() {
    CompileOptions options;
    options.search = search;
    options.tiny = true;
    Diagnostics found;
    auto start = std::chrono::steady_clock::now();
    Compilation compilation = compile(file, options, found);
    std::optional<plan::Plan> plan;
    if (compilation.ok && !found.has_errors()) {
      topo::DiagnosticBridge bridge(compilation.context.get(), found);
      auto emitted = emit_plan(*compilation.module, {file, compilation.source_hash});
      if (mlir::succeeded(emitted))
        plan = std::move(*emitted);
    }
    outcome.compile_ms = ms_since(start);
    for (const Diagnostic &each : found.all())
      if (each.severity == Severity::error)
        outcome.codes.push_back(each.code);
    if (expectation.legal)
      judge_legal(plan, found);
    else
      judge_near(plan.has_value(), found);
  }

  void judge_near(bool accepted, const Diagnostics &found) {
    if (accepted)
      return fail("accepted", fmt::format("expected an error {}\n", fmt::join(expectation.codes, " or ")),
                  "");
    if (std::none_of(found.all().begin(), found.all().end(),
                     [&](const Diagnostic &each) { return answers(each); }))
      fail("misplaced",
           fmt::format("expected an error {} at line {}, got\n{}", fmt::join(expectation.codes, " or "),
                       lines(), listed(found)),
           outcome.codes.empty() ? "no error" : outcome.codes.front());
  }

  std::string lines() const {
    std::vector<int64_t> all;
    for (const KeyPlace &place : expectation.places)
      all.push_back(place.line);
    return fmt::format("{}", fmt::join(all, " or "));
  }

  bool answers(const Diagnostic &found) const {
    return found.severity == Severity::error && found.where.file == file &&
           std::count(expectation.codes.begin(), expectation.codes.end(), found.code) > 0 &&
           std::any_of(expectation.places.begin(), expectation.places.end(), [&](const KeyPlace &place) {
             return found.where.line == place.line && found.where.column >= place.column &&
                    found.where.column <= place.end;
           });
  }

  void judge_legal(const std::optional<plan::Plan> &emitted, const Diagnostics &found) {
    if (!emitted) {
      std::string first;
      for (const Diagnostic &each : found.all())
        if (each.severity == Severity::error && first.empty())
          first = each.code + " " + each.message;
      return fail("refused", listed(found), first);
    }
    // As the tool hands it to the runtime.
    plan::ReadResult read = plan::read_json(plan::write_json(*emitted));
    if (!read.ok())
      return fail("refused", "  plan: " + read.problems.front().text() + "\n", read.problems.front().message);
    RunOptions options;
    options.steps = steps;
    options.verify = true;
    options.threads = 1;
    options.timeout = std::chrono::milliseconds(20000);
    auto start = std::chrono::steady_clock::now();
    RunResult result = run_plan(read.plan, options);
    outcome.run_ms = ms_since(start);
    if (!result.failures.empty())
      return fail("failed", fmt::format("  {}\n", fmt::join(result.failures, "\n  ")),
                  result.failures.front());
    if (!result.verify.done || !result.verify.ok || !(result.verify.max_rel_error <= most_error))
      return fail("wrong",
                  fmt::format("  max relative error {:g}\n  {}\n", result.verify.max_rel_error,
                              fmt::join(result.verify.problems, "\n  ")),
                  result.verify.problems.empty() ? "" : result.verify.problems.front());
    if (result.steps != steps || result.collectives_issued != result.collectives_expected ||
        result.load_issued != result.load_expected ||
        (result.tokens_per_step > 0) != (result.verify.tokens > 0))
      return fail(
          "ledger",
          fmt::format("  {} of {} steps, {} collectives issued and {} expected, at load {} and {}, {} tokens "
                      "a step and {} compared\n",
                      result.steps, steps, result.collectives_issued, result.collectives_expected,
                      result.load_issued, result.load_expected, result.tokens_per_step, result.verify.tokens),
          "");
  }
};

} // namespace

Outcome evaluate(const std::string &file, const std::string &text, const Expectation &expectation,
                 int64_t steps, const std::vector<std::string> &search) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  Evaluation evaluation{file, expectation, steps, search, {}};
  evaluation.run();
  return evaluation.outcome;
}

} // namespace paratope::random
