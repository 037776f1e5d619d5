// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/digits.h"

#include <algorithm>
#include <fmt/format.h>

namespace paratope {

int64_t DigitSum::operator()(int64_t rank) const {
  if (!table.empty())
    return table[static_cast<size_t>(rank)];
  int64_t sum = 0;
  for (const Digit &digit : digits)
    sum += rank / digit.div % digit.mod * digit.mul;
  return sum;
}

// Why equal functions have equal canonical forms: div of the lowest digit is the smallest rank whose value is
// not 0, mul is that value, and mod is where the values stop being multiples of mul, since a digit that went
// on would have been merged. What is left after subtracting it determines the next digit in the same way.
DigitSum canonical(DigitSum sum) {
  std::vector<Digit> &digits = sum.digits;
  std::erase_if(digits, [](const Digit &digit) { return digit.mod == 1 || digit.mul == 0; });
  std::sort(digits.begin(), digits.end(), [](const Digit &a, const Digit &b) { return a.div > b.div; });
  std::vector<Digit> merged;
  for (const Digit &low : digits) {
    if (!merged.empty() && merged.back().div == low.div * low.mod && merged.back().mul == low.mul * low.mod)
      merged.back() = {low.div, merged.back().mod * low.mod, low.mul};
    else
      merged.push_back(low);
  }
  digits = std::move(merged);
  return sum;
}

std::optional<DigitSum> digits_of(const std::vector<int64_t> &values) {
  const auto count = static_cast<int64_t>(values.size());
  auto value = [&](int64_t at) { return values[static_cast<size_t>(at)]; };
  DigitSum sum;
  for (int64_t place = 1; place < count;) {
    int64_t div = place;
    while (div < count && value(div) == 0) // multiples of place have no lower digit
      div += place;
    if (div >= count)
      break; // nothing but zeros: no further digit
    const int64_t mul = value(div);
    int64_t mod = 1;
    while (mod < count / div && value(mod * div) == mod * mul)
      ++mod;
    if (mod == 1)
      return std::nullopt;
    sum.digits.push_back({div, mod, mul});
    place = div * mod;
  }
  for (int64_t at = 0; at < count; ++at)
    if (sum(at) != value(at))
      return std::nullopt;
  return canonical(std::move(sum));
}

StridedLayout inverse_layout(const DigitSum &sum) {
  std::vector<Digit> digits = sum.digits;
  std::sort(digits.begin(), digits.end(), [](const Digit &a, const Digit &b) { return a.mul > b.mul; });
  StridedLayout layout;
  for (const Digit &digit : digits)
    layout.modes.push_back({digit.mod, digit.div});
  return layout;
}

std::string to_string(const DigitSum &sum) {
  if (!sum.table.empty())
    return fmt::format("table of {}", sum.table.size());
  std::vector<std::string> terms;
  for (const Digit &digit : sum.digits) {
    std::string term = digit.div == 1 ? "r" : fmt::format("r / {}", digit.div);
    term += fmt::format(" % {}", digit.mod);
    if (digit.mul != 1)
      term += fmt::format(" * {}", digit.mul);
    terms.push_back(std::move(term));
  }
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

} // namespace paratope
