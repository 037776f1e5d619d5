// SPDX-License-Identifier: Apache-2.0
//
// What a run covered, as a table, and what it should have and did not.
#pragma once

#include "cases.h"

namespace paratope::random {

class Coverage {
public:
  void add(const Case &done, const Outcome &outcome);
  // Families of words with their counts; refusals by code and by the rule that was broken.
  std::string table() const;
  // Words that were never met, rules never broken, codes never given. Only kinds of which there were cases
  // are judged.
  std::vector<std::string> missing(const Library &library, const std::vector<Mutation> &mutations) const;
  int64_t legal() const { return num_legal; }
  int64_t near() const { return num_near; }

private:
  int64_t num_legal = 0, num_near = 0;
  double compile_ms = 0, run_ms = 0;
  std::map<std::string, int64_t> features, rules, codes;
};

// An outcome as text and back, for the pipe between processes.
std::string to_text(const Outcome &outcome);
Outcome from_text(const std::string &text);

} // namespace paratope::random
