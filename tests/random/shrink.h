// SPDX-License-Identifier: Apache-2.0
//
// Makes a failing case small: drops sections and keys, shortens lists, lowers numbers, and keeps what still
// fails the same way. Greedy, until a whole pass changes nothing or the time is spent.
#pragma once

#include <functional>

#include "cases.h"

namespace paratope::random {

struct Shrunk {
  Case smallest;
  Outcome outcome;
  int64_t tried = 0;
};

// `judge` evaluates a case; whatever it does must not end this process.
Shrunk shrink(const Case &failing, const Outcome &outcome, double seconds,
              const std::function<Outcome(const Case &)> &judge);

} // namespace paratope::random
