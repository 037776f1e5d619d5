// SPDX-License-Identifier: Apache-2.0
//
// Case K of seed S: an even K is a legal topology, an odd one a near-legal one. The same K is the same case
// in every run.
#pragma once

#include "evaluate.h"
#include "mutations.h"

namespace paratope::random {

struct Case {
  Document document;
  int64_t steps = 1;
  bool legal = true;
  std::string mutation;           // of a near-legal one
  std::vector<std::string> codes; // that may answer it …
  std::vector<KeyName> keys;      // … at one of these keys
  std::vector<std::string> features;

  // The file, and what is expected of it.
  std::pair<std::string, Expectation> text() const;
};

Case make_case(uint64_t seed, uint64_t idx, const Library &library, const std::vector<Mutation> &mutations);

} // namespace paratope::random
