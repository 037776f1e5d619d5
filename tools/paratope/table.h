// SPDX-License-Identifier: Apache-2.0
//
// Columns of text that line up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paratope {

class Table {
public:
  // A column is left-aligned when its heading starts with '<', otherwise right-aligned; the '<' is not shown.
  explicit Table(std::vector<std::string> headings);
  void row(std::vector<std::string> cells);
  std::string text(const std::string &indent = "  ") const;

private:
  std::vector<bool> left;
  std::vector<std::vector<std::string>> rows;
};

// "1.23 GB", "456.0 KB", "12 B": decimal units.
std::string bytes_text(int64_t bytes);
// "3.2 µs", "1.25 ms"
std::string us_text(double us);

} // namespace paratope
