// SPDX-License-Identifier: Apache-2.0
#include "document.h"

#include <algorithm>

#include <fmt/format.h>

namespace paratope::random {

Item Item::of(int64_t value) {
  Item item;
  item.integer = value;
  return item;
}

Item Item::of(double value) {
  Item item;
  item.kind = Kind::number;
  item.number = value;
  return item;
}

Item Item::of(bool value) {
  Item item;
  item.kind = Kind::boolean;
  item.boolean = value;
  return item;
}

Item Item::of(std::string value) {
  Item item;
  item.kind = Kind::text;
  item.text = std::move(value);
  return item;
}

template <class T> static Item list_of(const std::vector<T> &values) {
  Item item;
  item.kind = Item::Kind::list;
  for (const T &value : values)
    item.items.push_back(Item::of(value));
  return item;
}

Item Item::of(const std::vector<int64_t> &values) { return list_of(values); }
Item Item::of(const std::vector<std::string> &values) { return list_of(values); }
Item Item::of(const std::vector<std::vector<int64_t>> &rows) { return list_of(rows); }
Item Item::of(const std::vector<std::vector<std::string>> &rows) { return list_of(rows); }

Item Item::raw(std::string text) {
  Item item;
  item.kind = Kind::raw;
  item.text = std::move(text);
  return item;
}

std::string Item::toml() const {
  switch (kind) {
  case Kind::integer:
    return std::to_string(integer);
  case Kind::number: {
    std::string digits = fmt::format("{}", number);
    return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;
  }
  case Kind::boolean:
    return boolean ? "true" : "false";
  case Kind::text:
    return '"' + text + '"'; // no text of ours needs an escape
  case Kind::raw:
    return text;
  case Kind::list:
    break;
  }
  std::string written = "[";
  for (const Item &item : items)
    written += (written.size() > 1 ? ", " : "") + item.toml();
  return written + "]";
}

static const Table *table_named(const Document &document, const std::string &section) {
  for (const Table &table : document.tables)
    if (table.name == section)
      return &table;
  return nullptr;
}

static Table &table_named(Document &document, const std::string &section) {
  for (Table &table : document.tables)
    if (table.name == section)
      return table;
  document.tables.push_back({section, {}});
  return document.tables.back();
}

const Item *Document::find(const std::string &section, const std::string &key) const {
  if (const Table *table = table_named(*this, section))
    for (const Entry &entry : table->entries)
      if (entry.key == key)
        return &entry.value;
  return nullptr;
}

void Document::set(const std::string &section, const std::string &key, Item value) {
  for (Entry &entry : table_named(*this, section).entries)
    if (entry.key == key) {
      entry.value = std::move(value);
      return;
    }
  append(section, key, std::move(value));
}

void Document::append(const std::string &section, const std::string &key, Item value) {
  table_named(*this, section).entries.push_back({key, std::move(value)});
}

void Document::erase(const std::string &section, const std::string &key) {
  for (Table &table : tables)
    if (table.name == section)
      std::erase_if(table.entries, [&](const Entry &entry) { return entry.key == key; });
}

void Document::erase(const std::string &section) {
  std::erase_if(tables, [&](const Table &table) { return table.name == section; });
}

std::string Document::toml(std::map<KeyName, KeyPlace> *places) const {
  std::string text;
  int64_t line = 1;
  auto put = [&](const Table &table) {
    if (!table.name.empty()) {
      text += "\n[" + table.name + "]\n";
      if (places)
        (*places)[{table.name, ""}] = {line + 1, 1, static_cast<int64_t>(table.name.size()) + 3};
      line += 2;
    }
    for (const Entry &entry : table.entries) {
      std::string value = entry.value.toml();
      if (places)
        (*places)[{table.name, entry.key}] = {line, 1,
                                              static_cast<int64_t>(entry.key.size() + value.size()) + 4};
      text += entry.key + " = " + value + "\n";
      ++line;
    }
  };
  for (const Table &table : tables)
    if (table.name.empty()) // keys at the top come before any header
      put(table);
  for (const Table &table : tables)
    if (!table.name.empty())
      put(table);
  return text;
}

} // namespace paratope::random
