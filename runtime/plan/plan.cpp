// SPDX-License-Identifier: Apache-2.0
//
// What a plan's values say of themselves: a digit sum turns a rank into its color, key or axis coordinate,
// and kernels are looked up by instruction.
//
//     rank 13, digits {div 4, mod 4, mul 1}  →  (13 / 4) % 4 · 1 = 3
#include "runtime/plan/plan.h"

#include <algorithm>

namespace paratope::plan {

int64_t DigitSum::operator()(int64_t rank) const {
  if (!table.empty())
    return table[static_cast<size_t>(rank)];
  int64_t sum = 0;
  for (const Digit &digit : digits)
    sum += rank / digit.div % digit.mod * digit.mul;
  return sum;
}

std::string_view fusion_of(const Plan &plan, int64_t instruction) {
  auto after = std::upper_bound(plan.kernels.begin(), plan.kernels.end(), instruction,
                                [](int64_t id, const Kernel &kernel) { return id < kernel.first; });
  if (after == plan.kernels.begin())
    return {};
  const Kernel &kernel = *std::prev(after);
  return instruction < kernel.first + kernel.count ? std::string_view(kernel.fusion) : std::string_view();
}

} // namespace paratope::plan
