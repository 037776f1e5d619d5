// SPDX-License-Identifier: Apache-2.0
//
// A topology file as a tree that can be changed and written: one key a line, so that the place of every key
// is known. What mutates a topology and what shrinks one both work on this, never on text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace paratope::random {

// A TOML value. `raw` is text that goes to the file as it stands, legal or not.
struct Item {
  enum class Kind { integer, number, boolean, text, list, raw };
  Kind kind = Kind::integer;
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::string text;
  std::vector<Item> items;

  static Item of(int64_t value);
  static Item of(double value);
  static Item of(bool value);
  static Item of(std::string value);
  static Item of(const char *value) { return of(std::string(value)); }
  static Item of(const std::vector<int64_t> &values);
  static Item of(const std::vector<std::string> &values);
  static Item of(const std::vector<std::vector<int64_t>> &rows);
  static Item of(const std::vector<std::vector<std::string>> &rows);
  static Item raw(std::string text);

  std::string toml() const;
  bool operator==(const Item &) const = default;
};

struct Entry {
  std::string key;
  Item value;
};

struct Table {
  std::string name; // "model.attention"; "" for the keys at the top
  std::vector<Entry> entries;
};

// A key of a section; an empty key is the section's header.
using KeyName = std::pair<std::string, std::string>;

// Where a key and its value stand: one line, columns from 1 in bytes, `end` one past the value.
struct KeyPlace {
  int64_t line = 0, column = 0, end = 0;
};

struct Document {
  std::vector<Table> tables;

  const Item *find(const std::string &section, const std::string &key) const;
  bool has(const std::string &section, const std::string &key) const { return find(section, key) != nullptr; }
  // Adds or replaces; a new section goes to the end.
  void set(const std::string &section, const std::string &key, Item value);
  // Adds even where the key is there already.
  void append(const std::string &section, const std::string &key, Item value);
  void erase(const std::string &section, const std::string &key);
  void erase(const std::string &section);

  // The file, and where each key is; of a key written twice, the second place.
  std::string toml(std::map<KeyName, KeyPlace> *places = nullptr) const;
};

} // namespace paratope::random
