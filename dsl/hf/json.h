// SPDX-License-Identifier: Apache-2.0
//
// A JSON text as plain values that know where they stand, so that what is wrong with a configuration can be
// shown at its line and column. The grammar is nlohmann-json's; only the places are ours: its parser reads
// bytes one by one, and a counting iterator under it knows after each event how far it has come.
//
//     "hidden_size": 7168,
//                    ^~~~  event number(7168) comes when 7168 and one byte more are read; the byte before the
//                          last digit that is no digit is where the value begins
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"

namespace paratope::hf {

struct JsonEntry;

struct JsonValue {
  enum class Kind { null, boolean, integer, number, string, array, object };
  Kind kind = Kind::null;
  SourceRange where; // of an array or object, its bracket
  std::string text;  // of a string
  int64_t integer = 0;
  double number = 0; // of an integer too
  bool boolean = false;
  std::vector<JsonValue> items;   // of an array
  std::vector<JsonEntry> entries; // of an object, in the order of the file

  const JsonValue *find(std::string_view key) const; // of an object; null where there is none
};

struct JsonEntry {
  std::string key;
  SourceRange where; // of the key, quotes included
  JsonValue value;
};

// The same value, wherever it stands; 1 and 1.0 are the same number.
bool same_value(const JsonValue &a, const JsonValue &b);

// "integer 3", "string \"x\"", "an array": how errors name what they got.
std::string describe_value(const JsonValue &value);

// On one line, as JSON; cut short after some dozen characters.
std::string shown(const JsonValue &value);

// Parses a text. Returns nothing exactly when an error was added: json-syntax (one, at the byte that was not
// expected), duplicate-key or nested-too-deep.
std::optional<JsonValue> parse_json(std::string_view text, const std::string &file, Diagnostics &diagnostics);

} // namespace paratope::hf
