// SPDX-License-Identifier: Apache-2.0
//
// The one computation a plan's values define themselves: a digit sum, which turns a rank into its color, key
// or axis coordinate.
//
//     rank 13, digits {div 4, mod 4, mul 1}  →  (13 / 4) % 4 · 1 = 3
#include "runtime/plan/plan.h"

namespace paratope::plan {

int64_t DigitSum::operator()(int64_t rank) const {
  if (!table.empty())
    return table[static_cast<size_t>(rank)];
  int64_t sum = 0;
  for (const Digit &digit : digits)
    sum += rank / digit.div % digit.mod * digit.mul;
  return sum;
}

} // namespace paratope::plan
