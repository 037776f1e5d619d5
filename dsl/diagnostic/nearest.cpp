// SPDX-License-Identifier: Apache-2.0
//
// Optimal string alignment distance over bytes, counted in halves so that a difference of case, of '-' for
// '_' or of one letter for two can weigh half of a real one.
#include "dsl/diagnostic/nearest.h"

#include <filesystem>

#include <algorithm>
#include <cctype>
#include <vector>

namespace paratope {
namespace {

constexpr size_t whole = 2;

size_t replacement(char a, char b) {
  auto folded = [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  return a == b ? 0 : folded(a) == folded(b) ? 1 : whole;
}

size_t distance(std::string_view from, std::string_view to) {
  // Three rows of the usual table: a swap looks two back.
  std::vector<size_t> before(to.size() + 1), last(to.size() + 1), row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j)
    last[j] = j * whole;
  for (size_t i = 1; i <= from.size(); ++i) {
    row[0] = i * whole;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t removal = i > 1 && from[i - 1] == from[i - 2] ? whole / 2 : whole;
      const size_t insertion = j > 1 && to[j - 1] == to[j - 2] ? whole / 2 : whole;
      row[j] = std::min(
          {last[j] + removal, row[j - 1] + insertion, last[j - 1] + replacement(from[i - 1], to[j - 1])});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], before[j - 2] + whole);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[to.size()];
}

} // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  // About a third of the word, at least one letter, and never the whole word.
  const size_t limit = std::min(std::max(whole, (whole * word.size() + 2) / 3), whole * word.size());
  std::optional<std::string> best;
  size_t best_distance = limit + 1;
  for (const std::string &candidate : candidates) {
    const size_t shorter = std::min(word.size(), candidate.size());
    const size_t longer = std::max(word.size(), candidate.size());
    if ((longer - shorter) * whole > limit)
      continue; // also keeps a key of a million bytes cheap
    const size_t far = distance(word, candidate);
    if (far < best_distance && far < whole * longer) {
      best_distance = far;
      best = candidate;
    }
  }
  return best;
}

std::optional<std::string> nearest_file(const std::string &path) {
  std::filesystem::path missing(path), folder = missing.has_parent_path() ? missing.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto &entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && names.size() < 4096)
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end()); // a folder lists its files in no order
  std::optional<std::string> near = nearest(missing.filename().string(), names);
  if (!near)
    return std::nullopt;
  return missing.has_parent_path() ? (folder / *near).string() : *near;
}

} // namespace paratope
