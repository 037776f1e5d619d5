// SPDX-License-Identifier: Apache-2.0
//
// A plan as a JSON file and back. Writing the same plan gives the same bytes: keys in the order of plan.h,
// one element of a list a line (so two plans can be compared with diff), every number exact. Reading is a
// closed world: an unknown key, a wrong type or a reference to nothing is an error that says where, as a JSON
// pointer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace paratope::plan {

// One thing that is wrong with a plan. `path` is a JSON pointer (RFC 6901): "/instructions/12/inputs/0".
struct Problem {
  std::string path;
  std::string message; // "got X, expected Y"
  std::string text() const { return path.empty() ? message : path + ": " + message; }
};

struct ReadResult {
  Plan plan; // meaningless unless ok()
  std::vector<Problem> problems;
  bool ok() const { return problems.empty(); }
};

std::string write_json(const Plan &plan);

// Parses and, where the JSON has the right form, checks (check.h). At most `max_problems` are reported.
ReadResult read_json(std::string_view text);

inline constexpr size_t max_problems = 50;

} // namespace paratope::plan
