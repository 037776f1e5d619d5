// SPDX-License-Identifier: Apache-2.0
//
// The state of one check of a plan, and its parts: check.cpp looks at the plan's tables, check_program.cpp at
// what its instructions do with them. Parts report and go on, so that a reader sees everything at once.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/plan/check.h"
#include "runtime/plan/instruction_set.h"
#include "runtime/plan/plan.h"

namespace paratope::plan {

using Names = std::vector<std::string_view>;

struct Checker {
  const Plan &plan;
  std::vector<Problem> problems;
  bool ranks_known = true; // every digit sum can be evaluated

  template <class... Args> void report(std::string path, fmt::format_string<Args...> text, Args &&...args) {
    if (problems.size() < max_problems)
      problems.push_back({std::move(path), fmt::format(text, std::forward<Args>(args)...)});
  }

  bool positive(const std::string &path, int64_t value, int64_t least = 1) {
    if (value < least)
      report(path, "got {}, expected at least {}", value, least);
    return value >= least;
  }

  bool one_of(const std::string &path, std::string_view value, const Names &names) {
    bool found = std::find(names.begin(), names.end(), value) != names.end();
    if (!found)
      report(path, "got \"{}\", expected one of {}", value, fmt::join(names, ", "));
    return found;
  }

  // Ids are positions, so that references need no search.
  void numbered(const std::string &path, int64_t id, size_t position) {
    if (id != static_cast<int64_t>(position))
      report(path, "got {}, expected {} (ids count from 0 in order)", id, position);
  }

  bool reference(const std::string &path, int64_t value, size_t count, const char *what) {
    bool good = value >= 0 && value < static_cast<int64_t>(count);
    if (!good)
      report(path, "got {}, expected a {} from 0 to {}", value, what, static_cast<int64_t>(count) - 1);
    return good;
  }

  const Axis *axis(std::string_view name) const {
    for (const Axis &each : plan.axes)
      if (each.name == name)
        return &each;
    return nullptr;
  }

  const Axis *axis_of(const std::string &path, std::string_view name) {
    const Axis *found = axis(name);
    if (!found) {
      Names names;
      for (const Axis &each : plan.axes)
        names.push_back(each.name);
      report(path, "got axis \"{}\", expected one of {}", name, fmt::join(names, ", "));
    }
    return found;
  }

  void digit_sum(const std::string &path, const DigitSum &sum) {
    if (!sum.table.empty() && !sum.digits.empty())
      return fail_ranks(path, "got both digits and a table, expected one of them");
    if (!sum.table.empty() && static_cast<int64_t>(sum.table.size()) != plan.world)
      return fail_ranks(path + "/table",
                        fmt::format("got {} values, expected one a rank: {}", sum.table.size(), plan.world));
    for (size_t i = 0; i < sum.digits.size(); ++i) {
      const Digit &digit = sum.digits[i];
      if (digit.div < 1 || digit.mod < 1)
        return fail_ranks(
            fmt::format("{}/digits/{}", path, i),
            fmt::format("got div {} and mod {}, expected both at least 1", digit.div, digit.mod));
      int64_t largest, ignored;
      if (__builtin_mul_overflow(std::min(digit.mod, plan.world), digit.mul, &largest) ||
          __builtin_mul_overflow(largest, static_cast<int64_t>(sum.digits.size()), &ignored))
        return fail_ranks(fmt::format("{}/digits/{}/mul", path, i),
                          fmt::format("got {}, expected a factor whose sums fit 64 bits", digit.mul));
    }
  }

  void fail_ranks(const std::string &path, std::string message) {
    ranks_known = false;
    report(path, "{}", message);
  }

  void check_axes();
  void check_engines();
  void check_model();
  void check_workload();
  void check_experts();
  void check_communicators();
  void check_buffers();
  void check_weights();
  void check_ledger();
  void check_instructions();
  void check_kernels();
  void check_load();
  void check_exchange_pairs(const std::string &path, const Instruction &instruction);
  void check_table(const std::string &path, const Instruction &instruction);
  void check_serving(const std::string &path, const Instruction &instruction);
  void check_instruction(const std::string &path, const Instruction &instruction);
  void check_operands(const std::string &path, const Instruction &instruction,
                      const std::vector<int64_t> &ids, std::span<const Operand> operands, const char *what);
  void check_attributes(const std::string &path, const Instruction &instruction, const Operation &op);
  void check_order(const std::string &path, const Instruction &instruction);
  void check_flow();
};

} // namespace paratope::plan
