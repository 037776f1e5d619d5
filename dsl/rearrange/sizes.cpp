// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/sizes.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "dsl/diagnostic/nearest.h"
#include "dsl/rearrange/checked.h"

namespace paratope {
namespace {

// Divisors are found by trial up to this number and listed up to this many: exact for all worlds below 2⁴⁰,
// and never slow.
constexpr int64_t max_trial_divisor = int64_t{1} << 20;
constexpr size_t max_listed_divisors = 24;

std::string divisors_of(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d <= number / d && d <= max_trial_divisor; ++d)
    if (number % d == 0) {
      low.push_back(d);
      if (d != number / d)
        high.push_back(number / d);
    }
  low.insert(low.end(), high.rbegin(), high.rend());
  if (low.size() <= max_listed_divisors)
    return fmt::format("{}", fmt::join(low, ", "));
  const int64_t largest = low.back();
  low.resize(max_listed_divisors);
  return fmt::format("{}, …, {}", fmt::join(low, ", "), largest);
}

std::string from(const std::string &origin) { return origin.empty() ? "" : fmt::format(" ({})", origin); }

struct SizedFactor {
  const PatternAxis *axis;
  const SizedAxis *size;
};

// One dim of one pattern against one size.
class Inference {
public:
  Inference(const PatternDim &pattern_dim, const SizeQuestion &asked, PatternErrors &found)
      : dim(pattern_dim), question(asked), errors(found) {
    for (const PatternAxis &axis : dim.axes) {
      if (axis.kind != PatternAxis::Kind::named)
        continue;
      auto size = std::find_if(question.sizes.begin(), question.sizes.end(),
                               [&](const SizedAxis &candidate) { return candidate.name == axis.name; });
      if (size != question.sizes.end())
        sized.push_back({&axis, &*size});
      else
        unsized.push_back(&axis);
    }
  }

  std::optional<std::vector<Factor>> run() {
    if (unsized.size() > 1)
      return too_many_unsized();
    const std::vector<int64_t> numbers = sizes();
    const std::optional<int64_t> product = checked_product(numbers);
    if (!product) {
      located(error("size-overflow", fmt::format("product of sizes is beyond 2^63 - 1: {}", factors())));
      return std::nullopt;
    }
    if (!unsized.empty())
      return infer(*product);
    if (*product != question.dim_size)
      return mismatch(*product);
    return result(0);
  }

private:
  const PatternDim &dim;
  const SizeQuestion &question;
  PatternErrors &errors;
  std::vector<SizedFactor> sized;
  std::vector<const PatternAxis *> unsized;

  PatternError &error(std::string code, std::string message) {
    PatternError &added = errors.emplace_back();
    added.code = std::move(code);
    added.message = std::move(message);
    added.begin = dim.begin;
    added.end = dim.end;
    return added;
  }

  // The dim and its size: "world = 10".
  std::string whole() const { return fmt::format("{} = {}", question.dim_name, question.dim_size); }

  // The sized axes: "tp = 4", or "dp · cp = 4 · 3 = 12" (without the product when it overflows).
  std::string factors() const {
    std::vector<std::string> names;
    names.reserve(sized.size());
    for (const SizedFactor &factor : sized)
      names.push_back(factor.axis->name);
    const std::vector<int64_t> numbers = sizes();
    std::string text = fmt::format("{} = {}", fmt::join(names, " · "), fmt::join(numbers, " · "));
    if (std::optional<int64_t> product = checked_product(numbers); product && numbers.size() > 1)
      text += fmt::format(" = {}", *product);
    return text;
  }

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> numbers;
    numbers.reserve(sized.size());
    for (const SizedFactor &factor : sized)
      numbers.push_back(factor.size->size);
    return numbers;
  }

  // Where each number came from: a note a sized axis, and one for the whole.
  void located(PatternError &added) const {
    for (const SizedFactor &factor : sized)
      added.notes.push_back({.message = fmt::format("{} = {}{}", factor.axis->name, factor.size->size,
                                                    from(factor.size->origin)),
                             .axis = factor.axis->name,
                             .pattern_idx = 0,
                             .begin = factor.axis->begin,
                             .end = factor.axis->end});
    added.notes.push_back(
        {.message = whole() + from(question.dim_origin), .axis = question.is_world ? question.dim_name : ""});
  }

  // Puts the caret on the first axis whose size no longer fits into the whole.
  void blame(PatternError &added) const {
    int64_t rest = question.dim_size;
    for (const SizedFactor &factor : sized) {
      if (factor.size->size == 0 || rest % factor.size->size != 0) {
        added.axis = factor.axis->name;
        added.begin = factor.axis->begin;
        added.end = factor.axis->end;
        return;
      }
      rest /= factor.size->size;
    }
  }

  // The sizes one axis may have while the others stay, for each axis that has any.
  std::string legal_sizes() const {
    std::vector<std::string> lines;
    for (const SizedFactor &factor : sized) {
      std::vector<int64_t> others;
      for (const SizedFactor &other : sized)
        if (other.axis != factor.axis)
          others.push_back(other.size->size);
      const std::optional<int64_t> product = checked_product(others);
      if (!product || *product == 0 || question.dim_size % *product != 0)
        continue;
      const int64_t rest = question.dim_size / *product;
      lines.push_back(unsized.empty() ? fmt::format("{} = {}", factor.axis->name, rest)
                                      : fmt::format("{} to one of {}", factor.axis->name, divisors_of(rest)));
    }
    if (lines.empty())
      return fmt::format("choose sizes whose product {} {}: {}", unsized.empty() ? "is" : "divides", whole(),
                         unsized.empty() ? fmt::format("{}", question.dim_size)
                                         : divisors_of(question.dim_size));
    return fmt::format("set {}", fmt::join(lines, ", or "));
  }

  std::optional<std::vector<Factor>> too_many_unsized() {
    std::vector<std::string> names;
    names.reserve(unsized.size());
    for (const PatternAxis *axis : unsized)
      names.push_back(axis->name);
    PatternError &added =
        error("size-unknown", fmt::format("cannot infer more than one size of {}, got {} axes "
                                          "without one: {}",
                                          whole(), names.size(), fmt::join(names, ", ")));
    added.begin = unsized[1]->begin;
    added.end = unsized[1]->end;
    located(added);
    std::vector<std::string> known;
    for (const SizedAxis &size : question.sizes)
      if (std::none_of(sized.begin(), sized.end(),
                       [&](const SizedFactor &factor) { return factor.size->name == size.name; }))
        known.push_back(size.name);
    for (const std::string &name : names)
      if (auto meant = nearest(name, known)) {
        added.fix = fmt::format("write '{}' for '{}'", *meant, name);
        return std::nullopt;
      }
    added.fix = fmt::format("give all of them but one a size");
    return std::nullopt;
  }

  std::optional<std::vector<Factor>> infer(int64_t product) {
    const PatternAxis &axis = *unsized[0];
    if (std::find(question.unsized_axes.begin(), question.unsized_axes.end(), axis.name) !=
        question.unsized_axes.end()) {
      PatternError &added = error(
          "shadowed-axis", fmt::format("axis has no size, and a pattern does not choose it: {}", axis.name));
      added.begin = axis.begin;
      added.end = axis.end;
      added.axis = axis.name;
      added.fix = fmt::format("give {} a size, or use a name that is no axis", axis.name);
      return std::nullopt;
    }
    if (product == 0 && question.dim_size == 0) {
      PatternError &added =
          error("size-ambiguous",
                fmt::format("cannot infer {}: any size would do beside {}", axis.name, factors()));
      added.begin = axis.begin;
      added.end = axis.end;
      added.fix = fmt::format("give {} a size", axis.name);
      located(added);
      return std::nullopt;
    }
    if (product == 0 || question.dim_size % product != 0) {
      PatternError &added =
          error("not-divisible", fmt::format("{} is not divisible by {}", whole(), factors()));
      blame(added);
      located(added);
      added.fix = legal_sizes();
      return std::nullopt;
    }
    return result(question.dim_size / product);
  }

  std::optional<std::vector<Factor>> mismatch(int64_t product) {
    if (sized.empty()) {
      PatternError &added = error("size-mismatch", fmt::format("the pattern wants size 1, got {}", whole()));
      located(added);
      return std::nullopt;
    }
    if (!question.is_world) {
      PatternError &added = error("size-mismatch", fmt::format("{} is not {}", whole(), factors()));
      blame(added);
      located(added);
      added.fix = legal_sizes();
      return std::nullopt;
    }
    const bool is_short = product < question.dim_size;
    PatternError &added =
        is_short
            ? error("ranks-uncovered", fmt::format("no group covers ranks {} … {}: {}, {}", product,
                                                   question.dim_size - 1, factors(), whole()))
            : error("rank-outside-world", fmt::format("the pattern numbers ranks {} … {} outside {}: {}",
                                                      question.dim_size, product - 1, whole(), factors()));
    if (!is_short)
      blame(added);
    located(added);
    added.fix = legal_sizes();
    if (is_short && question.dim_size % product == 0)
      added.fix += ", or add an axis without a size on both sides";
    return std::nullopt;
  }

  std::vector<Factor> result(int64_t inferred) const {
    std::vector<Factor> factors_found;
    for (const PatternAxis &axis : dim.axes) {
      if (axis.kind != PatternAxis::Kind::named)
        continue;
      auto factor =
          std::find_if(sized.begin(), sized.end(), [&](const SizedFactor &f) { return f.axis == &axis; });
      const bool known = factor != sized.end();
      factors_found.push_back({.name = axis.name,
                               .size = known ? factor->size->size : inferred,
                               .stride = 1,
                               .inferred = !known});
    }
    return factors_found;
  }
};

} // namespace

std::optional<std::vector<Factor>> infer_sizes(const PatternDim &dim, const SizeQuestion &question,
                                               PatternErrors &errors) {
  return Inference(dim, question, errors).run();
}

bool check_sizes(std::span<const SizedAxis> sizes, int64_t least, PatternErrors &errors) {
  const size_t before = errors.size();
  std::map<std::string, const SizedAxis *> seen;
  for (const SizedAxis &axis : sizes) {
    auto add = [&](std::string code, std::string message) -> PatternError & {
      PatternError &added = errors.emplace_back();
      added.code = std::move(code);
      added.message = std::move(message);
      added.pattern_idx = -1;
      added.axis = axis.name;
      return added;
    };
    if (axis.size < least)
      add("axis-size", fmt::format("size of axis {}{}: expected at least {}, got {}", axis.name,
                                   from(axis.origin), least, axis.size));
    auto [earlier, is_new] = seen.emplace(axis.name, &axis);
    if (!is_new && earlier->second->size != axis.size) {
      PatternError &added = add("conflicting-sizes", fmt::format("axis {} has two sizes: {}, {}", axis.name,
                                                                 earlier->second->size, axis.size));
      for (const SizedAxis *given : {earlier->second, &axis})
        added.notes.push_back(
            {.message = fmt::format("{} = {}{}", given->name, given->size, from(given->origin)),
             .axis = given->name});
    }
  }
  return errors.size() == before;
}

} // namespace paratope
