// SPDX-License-Identifier: Apache-2.0
#include "tools/paratope/table.h"

#include <algorithm>

#include "fmt/format.h"

namespace paratope {

// Characters on the terminal: UTF-8 continuation bytes take no room.
static size_t width(const std::string &text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

Table::Table(std::vector<std::string> headings) {
  for (std::string &heading : headings) {
    left.push_back(!heading.empty() && heading[0] == '<');
    if (left.back())
      heading.erase(0, 1);
  }
  rows.push_back(std::move(headings));
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(left.size());
  rows.push_back(std::move(cells));
}

std::string Table::text(const std::string &indent) const {
  std::vector<size_t> widths(left.size());
  for (const auto &cells : rows)
    for (size_t i = 0; i < cells.size(); ++i)
      widths[i] = std::max(widths[i], width(cells[i]));
  std::string out;
  for (const auto &cells : rows) {
    std::string line = indent;
    for (size_t i = 0; i < cells.size(); ++i) {
      std::string pad(widths[i] - width(cells[i]), ' ');
      line += (i ? "  " : "") + (left[i] ? cells[i] + pad : pad + cells[i]);
    }
    while (!line.empty() && line.back() == ' ')
      line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  double value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000)
    return fmt::format("{:.3f} GB", value / 1e9);
  if (bytes >= 1'000'000)
    return fmt::format("{:.2f} MB", value / 1e6);
  if (bytes >= 10'000)
    return fmt::format("{:.1f} KB", value / 1e3);
  return fmt::format("{} B", bytes);
}

std::string us_text(double us) {
  return us >= 1000 ? fmt::format("{:.2f} ms", us / 1000) : fmt::format("{:.1f} µs", us);
}

} // namespace paratope
