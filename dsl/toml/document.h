// SPDX-License-Identifier: Apache-2.0
//
// A TOML text as plain values in the order of the file, each with its place in bytes. This is the only door
// to toml++: the parser counts code points and sorts tables, and what it cannot survive (a header of a
// hundred thousand dots) is refused before it is asked.
//
//     axes = { dp = 64 }        key "axes" at 1:1-5, table at 1:8-19, key "dp" at 1:10-12, integer at 1:15-17
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"

namespace paratope {

struct Entry;

struct Value {
  enum class Kind { string, integer, number, boolean, date, array, table };
  Kind kind = Kind::table;
  SourceRange where;  // of the value; of a section, its header
  SourceRange inside; // of a string written plainly on one line, its text inside the quotes; else as `where`
  std::string text;
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::vector<Value> items;   // of an array
  std::vector<Entry> entries; // of a table

  const Entry *find(std::string_view key) const;
  Entry *find(std::string_view key);
};

struct Entry {
  std::string key;
  SourceRange where; // of the key
  Value value;
};

// The same value, wherever it was written.
bool same_value(const Value &a, const Value &b);

// "string \"x\"", "integer 3", "boolean true", "an array", "a table": how errors name what they got.
std::string describe_value(const Value &value);

// Parses a text. Returns nothing exactly when an error was added: not-utf8, nested-too-deep, file-too-large
// or toml-syntax. Lines count from `first_line`.
std::optional<Value> parse_document(std::string_view text, const std::string &file, Diagnostics &diagnostics,
                                    int64_t first_line = 1);

// Reads a whole file, or adds the error file-unreadable or file-too-large at `mention` (a place that names
// the file, or the file itself). Pipes can be read, and are kept in `diagnostics` for showing.
std::optional<std::string> read_text(const std::string &file, const SourceRange &mention,
                                     Diagnostics &diagnostics);

} // namespace paratope
