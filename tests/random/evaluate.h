// SPDX-License-Identifier: Apache-2.0
//
// What becomes of one topology file in this process: compiled as `paratope run --tiny --verify` compiles it,
// run on threads, and held against what was expected of it.
#pragma once

#include <string>
#include <vector>

#include "document.h"

namespace paratope::random {

struct Expectation {
  bool legal = true;
  // Of a near-legal file: one error has one of these codes, at one of these places.
  std::vector<std::string> codes;
  std::vector<KeyPlace> places;
};

struct Outcome {
  std::string
      fault; // "" when all is as expected; else refused | failed | wrong | ledger | accepted | misplaced
  std::string detail;             // for a person, several lines
  std::string kind;               // what stays the same while a failing case is made smaller
  std::vector<std::string> codes; // of errors
  double compile_ms = 0, run_ms = 0;
};

// `file` is (over)written with `text`; `search` are directories of layouts, models and machines.
Outcome evaluate(const std::string &file, const std::string &text, const Expectation &expectation,
                 int64_t steps, const std::vector<std::string> &search);

} // namespace paratope::random
