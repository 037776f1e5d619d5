// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/redundancy.h"

#include <fmt/core.h>

namespace paratope {

std::optional<ExpertCounts> count_experts(int64_t logical, int64_t min_redundant, int64_t ep,
                                          ExpertsErrors &errors) {
  const size_t before = errors.size();
  if (logical < 1)
    errors.push_back({.code = "experts-logical",
                      .message = fmt::format("a model with experts has at least 1, got {}", logical),
                      .key = "model.moe.routed",
                      .fix = ""});
  if (min_redundant < 0)
    errors.push_back({.code = "experts-redundant",
                      .message = fmt::format("min_redundant_experts is at least 0, got {}", min_redundant),
                      .key = "moe.min_redundant_experts",
                      .fix = ""});
  if (ep < 1)
    errors.push_back({.code = "experts-ep",
                      .message = fmt::format("ep is at least 1, got {}", ep),
                      .key = "axes.ep",
                      .fix = ""});
  if (errors.size() != before)
    return std::nullopt;

  ExpertCounts counts;
  counts.logical = logical;
  int64_t least = 0; // slots that are asked for, before padding
  bool fits = !__builtin_add_overflow(logical, min_redundant, &least);
  if (fits) {
    counts.padding = (ep - least % ep) % ep;
    fits = !__builtin_add_overflow(least, counts.padding, &counts.physical);
  }
  if (!fits) {
    errors.push_back(
        {.code = "experts-overflow",
         .message = fmt::format("physical experts are beyond 2^63 - 1: logical {} + redundant {}, "
                                "padded to a multiple of ep {}",
                                logical, min_redundant, ep),
         .key = "moe.min_redundant_experts",
         .fix = ""});
    return std::nullopt;
  }
  counts.extra = min_redundant + counts.padding;
  counts.local = counts.physical / ep;
  return counts;
}

} // namespace paratope
