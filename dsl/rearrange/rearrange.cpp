// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/rearrange.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "dsl/diagnostic/nearest.h"
#include "dsl/rearrange/checked.h"
#include "dsl/rearrange/sizes.h"

namespace paratope {
namespace {

PatternError &add(PatternErrors &errors, std::string code, const PatternSide &side, std::string message) {
  PatternError &added = errors.emplace_back();
  added.code = std::move(code);
  added.message = std::move(message);
  added.begin = side.begin;
  added.end = side.end;
  return added;
}

// Sizes for names the pattern does not have: most likely a slip.
void check_used(const Pattern &pattern, std::span<const SizedAxis> sizes, PatternErrors &errors) {
  std::vector<std::string> names;
  for (const PatternDim &dim : pattern.left.dims)
    for (const PatternAxis &axis : dim.axes)
      if (axis.kind == PatternAxis::Kind::named)
        names.push_back(axis.name);
  for (const SizedAxis &axis : sizes) {
    if (std::find(names.begin(), names.end(), axis.name) != names.end())
      continue;
    PatternError &added =
        add(errors, "unused-size", pattern.left,
            fmt::format("a size is given for an axis the pattern does not have: {}", axis.name));
    added.axis = axis.name;
    if (auto meant = nearest(axis.name, names))
      added.fix = fmt::format("write '{}' for '{}'", *meant, axis.name);
  }
}

} // namespace

std::optional<Rearrangement> rearrange(const Pattern &pattern, std::span<const int64_t> shape,
                                       std::span<const SizedAxis> sizes, PatternErrors &errors) {
  const size_t before = errors.size();
  check_sizes(sizes, 0, errors);
  check_used(pattern, sizes, errors);
  const std::string shown = fmt::format("[{}]", fmt::join(shape, ", "));
  if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }))
    add(errors, "shape-size", pattern.left, fmt::format("sizes of a shape are at least 0, got {}", shown));

  const std::vector<PatternDim> &left = pattern.left.dims;
  const bool has_ellipsis =
      std::any_of(left.begin(), left.end(), [](auto &dim) { return dim.is_ellipsis(); });
  const size_t named_dims = left.size() - (has_ellipsis ? 1 : 0);
  if (has_ellipsis ? shape.size() < named_dims : shape.size() != named_dims)
    add(errors, "dim-count", pattern.left,
        fmt::format("the pattern wants {}{} dims, got {}: {}", has_ellipsis ? "at least " : "", named_dims,
                    shape.size(), shown));
  if (errors.size() != before)
    return std::nullopt;

  Rearrangement result;
  result.in_shape.assign(shape.begin(), shape.end());
  // Where the factors of a name start; those of "..." are as many as the dims it stands for.
  const size_t ellipsis_dims = shape.size() - named_dims;
  std::map<std::string, size_t> factor_of;
  size_t dim_idx = 0;
  for (const PatternDim &dim : left) {
    if (dim.is_ellipsis()) {
      factor_of["..."] = result.factors.size();
      for (size_t i = 0; i < ellipsis_dims; ++i)
        result.factors.push_back({.name = "...", .size = shape[dim_idx++]});
      continue;
    }
    const SizeQuestion question{.sizes = sizes,
                                .dim_name = fmt::format("dim {}", dim_idx),
                                .dim_origin = fmt::format("of shape {}", shown),
                                .dim_size = shape[dim_idx],
                                .is_world = false,
                                .unsized_axes = {}};
    ++dim_idx;
    auto factors = infer_sizes(dim, question, errors);
    if (!factors)
      continue; // the other dims may have errors of their own
    for (Factor &factor : *factors) {
      factor_of[factor.name] = result.factors.size();
      result.factors.push_back(std::move(factor));
    }
  }
  if (errors.size() != before)
    return std::nullopt;

  int64_t stride = 1;
  bool fits = true;
  for (auto factor = result.factors.rbegin(); factor != result.factors.rend(); ++factor) {
    factor->stride = stride;
    fits = fits && !__builtin_mul_overflow(stride, factor->size, &stride);
  }
  for (const PatternDim &dim : pattern.right.dims) {
    std::vector<int64_t> dim_sizes;
    for (const PatternAxis &axis : dim.axes) {
      if (axis.kind == PatternAxis::Kind::one)
        continue;
      const size_t count = axis.kind == PatternAxis::Kind::ellipsis ? ellipsis_dims : 1;
      for (size_t i = 0; i < count; ++i) {
        const size_t factor_idx = factor_of.at(axis.name) + i;
        result.order.push_back(static_cast<int64_t>(factor_idx));
        dim_sizes.push_back(result.factors[factor_idx].size);
      }
    }
    if (dim.is_ellipsis()) {
      result.out_shape.insert(result.out_shape.end(), dim_sizes.begin(), dim_sizes.end());
      continue;
    }
    const std::optional<int64_t> size = checked_product(dim_sizes);
    fits = fits && size;
    result.out_shape.push_back(size.value_or(0));
  }
  if (!fits || !checked_product(result.out_shape)) {
    add(errors, "size-overflow", pattern.left, fmt::format("more than 2^63 - 1 elements in shape {}", shown));
    return std::nullopt;
  }
  for (int64_t factor_idx : result.order) {
    const Factor &factor = result.factors[static_cast<size_t>(factor_idx)];
    result.layout.modes.push_back({factor.size, factor.stride});
  }
  return result;
}

int64_t element_count(const Rearrangement &rearrangement) { return size(rearrangement.layout); }

std::vector<int64_t> values_on_iota(const Rearrangement &rearrangement) {
  std::vector<int64_t> values(static_cast<size_t>(element_count(rearrangement)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = rearrangement.layout(static_cast<int64_t>(i));
  return values;
}

} // namespace paratope
