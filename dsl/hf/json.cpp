// SPDX-License-Identifier: Apache-2.0
#include "dsl/hf/json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace paratope::hf {
namespace {

constexpr size_t most_levels = 64; // configurations have three or four
constexpr size_t most_shown = 48;

// Bytes of the text, counted in `*at` as the parser takes them. The parser copies its iterators.
struct Counting {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char *;
  using reference = const char &;

  const char *byte = nullptr;
  const char **at = nullptr;

  reference operator*() const { return *byte; }
  Counting &operator++() {
    *at = ++byte;
    return *this;
  }
  Counting operator++(int) {
    Counting before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Counting &other) const { return byte == other.byte; }
  bool operator!=(const Counting &other) const { return byte != other.byte; }
};

// Line and column of every byte, by where the lines begin.
class Places {
public:
  Places(std::string_view text, std::string file) : file(std::move(file)), size(text.size()) {
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n')
        starts.push_back(i + 1);
  }
  // Of bytes [begin, end), which are on one line: no JSON token has a line's end in it.
  SourceRange range(size_t begin, size_t end) const {
    begin = std::min(begin, size);
    end = std::clamp(end, begin, size);
    const auto line = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin();
    const auto column = static_cast<int64_t>(begin - starts[static_cast<size_t>(line) - 1]) + 1;
    return {file, line, column, column + static_cast<int64_t>(end - begin)};
  }

private:
  std::string file;
  size_t size;
  std::vector<size_t> starts = {0};
};

// Builds the tree from the parser's events. False from an event ends the parsing.
class Builder {
public:
  Builder(std::string_view text, const std::string &file, Diagnostics &diagnostics)
      : text(text), places(text, file), diagnostics(diagnostics), at(text.data()) {}

  JsonValue root;
  const char **cursor() { return &at; }

  bool null() { return put(JsonValue::Kind::null, literal(4)) != nullptr; }
  bool boolean(bool value) {
    put(JsonValue::Kind::boolean, literal(value ? 4 : 5))->boolean = value;
    return true;
  }
  bool number_integer(int64_t value) {
    JsonValue *integer = put(JsonValue::Kind::integer, number());
    integer->integer = value;
    integer->number = static_cast<double>(value);
    return true;
  }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return number_integer(static_cast<int64_t>(value));
    put(JsonValue::Kind::number, number())->number = static_cast<double>(value);
    return true;
  }
  bool number_float(double value, const std::string &) {
    put(JsonValue::Kind::number, number())->number = value;
    return true;
  }
  bool string(std::string &value) {
    put(JsonValue::Kind::string, quoted())->text = std::move(value);
    return true;
  }
  bool binary(std::vector<uint8_t> &) { return false; } // JSON has none
  bool start_object(size_t) { return open(JsonValue::Kind::object); }
  bool start_array(size_t) { return open(JsonValue::Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string &name) {
    SourceRange where = quoted();
    const auto [first, fresh] = seen.back().emplace(name, where);
    if (!fresh)
      diagnostics
          .error("duplicate-key", where, fmt::format("an object has each key once, got '{}' twice", name))
          .notes.push_back({"first here", first->second});
    parents.back()->entries.push_back({std::move(name), std::move(where), {}});
    return true;
  }
  bool parse_error(size_t position, const std::string &, const nlohmann::json::exception &error) {
    std::string what = error.what();
    if (const size_t start = what.find("syntax error"); start != std::string::npos)
      what = what.substr(start);
    const size_t offset = position > 0 ? position - 1 : 0;
    diagnostics.error("json-syntax", places.range(offset, offset + 1), what);
    return false;
  }

private:
  size_t here() const { return static_cast<size_t>(at - text.data()); }

  // What the parser has just read, by walking back from where it stands.
  SourceRange literal(size_t length) const {
    return places.range(here() < length ? 0 : here() - length, here());
  }
  SourceRange number() const {
    auto part_of_number = [&](size_t i) {
      return text[i] != '\0' && std::string_view("0123456789+-.eE").find(text[i]) != std::string_view::npos;
    };
    size_t end = here(); // a number's end is only known from the byte after it
    if (end > 0 && !part_of_number(end - 1))
      --end;
    size_t begin = end;
    while (begin > 0 && part_of_number(begin - 1))
      --begin;
    return places.range(begin, end);
  }
  SourceRange quoted() const {
    const size_t end = here();
    size_t begin = end < 2 ? 0 : end - 2; // before the closing quote
    for (; begin > 0; --begin) {
      size_t escapes = 0; // a quote inside the string has an odd number of backslashes before it
      while (text[begin] == '"' && escapes < begin && text[begin - 1 - escapes] == '\\')
        ++escapes;
      if (text[begin] == '"' && escapes % 2 == 0)
        break;
    }
    return places.range(begin, end);
  }

  JsonValue *put(JsonValue::Kind kind, SourceRange where) {
    JsonValue *value = &root;
    if (!parents.empty()) {
      JsonValue &parent = *parents.back();
      value =
          parent.kind == JsonValue::Kind::array ? &parent.items.emplace_back() : &parent.entries.back().value;
    }
    value->kind = kind;
    value->where = std::move(where);
    return value;
  }
  bool open(JsonValue::Kind kind) {
    SourceRange where = literal(1);
    if (parents.size() == most_levels) {
      diagnostics.error("nested-too-deep", where, fmt::format("expected at most {} levels", most_levels));
      return false;
    }
    parents.push_back(put(kind, where)); // stays in place: only the innermost container grows
    seen.emplace_back();
    return true;
  }
  bool close() {
    parents.pop_back();
    seen.pop_back();
    return true;
  }

  std::string_view text;
  Places places;
  Diagnostics &diagnostics;
  const char *at;
  std::vector<JsonValue *> parents;
  std::vector<std::map<std::string, SourceRange>> seen; // keys of each of the parents
};

// What nlohmann calls its events; it wants them virtual-free, so this forwards by name.
struct Events : nlohmann::json_sax<nlohmann::json> {
  explicit Events(Builder &the_builder) : builder(the_builder) {}
  Builder &builder;
  bool null() override { return builder.null(); }
  bool boolean(bool value) override { return builder.boolean(value); }
  bool number_integer(number_integer_t value) override { return builder.number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return builder.number_unsigned(value); }
  bool number_float(number_float_t value, const string_t &raw) override {
    return builder.number_float(value, raw);
  }
  bool string(string_t &value) override { return builder.string(value); }
  bool binary(binary_t &value) override { return builder.binary(value); }
  bool start_object(size_t count) override { return builder.start_object(count); }
  bool key(string_t &name) override { return builder.key(name); }
  bool end_object() override { return builder.end_object(); }
  bool start_array(size_t count) override { return builder.start_array(count); }
  bool end_array() override { return builder.end_array(); }
  bool parse_error(size_t position, const std::string &token,
                   const nlohmann::json::exception &error) override {
    return builder.parse_error(position, token, error);
  }
};

} // namespace

const JsonValue *JsonValue::find(std::string_view key) const {
  for (const JsonEntry &entry : entries)
    if (entry.key == key)
      return &entry.value;
  return nullptr;
}

bool same_value(const JsonValue &a, const JsonValue &b) {
  using Kind = JsonValue::Kind;
  auto numeric = [](const JsonValue &value) {
    return value.kind == Kind::integer || value.kind == Kind::number;
  };
  if (numeric(a) && numeric(b))
    return a.number == b.number;
  if (a.kind != b.kind || a.items.size() != b.items.size() || a.entries.size() != b.entries.size())
    return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!same_value(a.items[i], b.items[i]))
      return false;
  for (const JsonEntry &entry : a.entries) {
    const JsonValue *other = b.find(entry.key);
    if (!other || !same_value(entry.value, *other))
      return false;
  }
  return a.text == b.text && a.boolean == b.boolean;
}

std::string describe_value(const JsonValue &value) {
  switch (value.kind) {
  case JsonValue::Kind::null:
    return "null";
  case JsonValue::Kind::boolean:
    return value.boolean ? "true" : "false";
  case JsonValue::Kind::integer:
    return fmt::format("integer {}", value.integer);
  case JsonValue::Kind::number:
    return fmt::format("number {}", value.number);
  case JsonValue::Kind::string:
    return "string " + shown(value);
  case JsonValue::Kind::array:
    return "an array";
  case JsonValue::Kind::object:
    return "an object";
  }
  return "";
}

std::string shown(const JsonValue &value) {
  std::string text;
  switch (value.kind) {
  case JsonValue::Kind::string:
    text = fmt::format("\"{}\"", value.text);
    break;
  case JsonValue::Kind::integer:
    return fmt::format("{}", value.integer);
  case JsonValue::Kind::number:
    return fmt::format("{}", value.number);
  case JsonValue::Kind::array:
    text = "[";
    for (size_t i = 0; i < value.items.size() && text.size() <= most_shown; ++i)
      text += (i ? ", " : "") + shown(value.items[i]);
    text += "]";
    break;
  case JsonValue::Kind::object:
    text = "{";
    for (size_t i = 0; i < value.entries.size() && text.size() <= most_shown; ++i)
      text += fmt::format("{}{}: {}", i ? ", " : "", value.entries[i].key, shown(value.entries[i].value));
    text += "}";
    break;
  default:
    return describe_value(value);
  }
  if (text.size() > most_shown) {
    size_t cut = most_shown;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) // not inside a character
      --cut;
    text = text.substr(0, cut) + "…";
  }
  return text;
}

std::optional<JsonValue> parse_json(std::string_view text, const std::string &file,
                                    Diagnostics &diagnostics) {
  const size_t errors = diagnostics.count(Severity::error);
  Builder builder(text, file, diagnostics);
  Events events(builder);
  const Counting begin{text.data(), builder.cursor()}, end{text.data() + text.size(), builder.cursor()};
  nlohmann::json::sax_parse(begin, end, &events);
  if (diagnostics.count(Severity::error) != errors)
    return std::nullopt;
  return std::move(builder.root);
}

} // namespace paratope::hf
