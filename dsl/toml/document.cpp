// SPDX-License-Identifier: Apache-2.0
#include "dsl/toml/document.h"

#include "dsl/diagnostic/nearest.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_map>

#include <fmt/format.h>

// toml++ 3.3 asserts (or, without asserts, lets the compiler assume) that a '[' is followed by a key, which a
// damaged text need not do, and then handles the case. Its assumptions are turned off; NDEBUG decides which
// kind it uses.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "dsl/diagnostic/utf8.h"

namespace paratope {
namespace {

constexpr size_t most_bytes = size_t{16} << 20;
constexpr int most_dots = 64;

// Turns the parser's positions (code points) into ours (bytes).
class Positions {
public:
  Positions(std::string_view text, std::string file, int64_t first_line)
      : file(std::move(file)), first_line(first_line) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  SourceRange range(const toml::source_region &region) {
    SourceRange where = point(region.begin);
    if (region.end.line == region.begin.line)
      where.end_column = std::max(where.column, point(region.end).column);
    else if (where.known()) // of several lines, the first
      where.end_column =
          std::max<int64_t>(where.column, static_cast<int64_t>(line(region.begin.line).size()) + 1);
    return where;
  }

  std::string_view text_of(const SourceRange &where) const {
    const std::string_view whole = line(where.line - first_line + 1);
    const auto begin = std::min(static_cast<size_t>(where.column - 1), whole.size());
    return whole.substr(begin, static_cast<size_t>(where.end_column - where.column));
  }

private:
  std::string_view line(int64_t number) const {
    if (number < 1 || number > static_cast<int64_t>(lines.size()))
      return {};
    std::string_view text = lines[static_cast<size_t>(number - 1)];
    return text.ends_with('\r') ? text.substr(0, text.size() - 1) : text;
  }

  SourceRange point(const toml::source_position &position) {
    if (position.line == 0)
      return {file, 0, 0, 0};
    const int64_t column = 1 + bytes_before(position.line, position.column > 0 ? position.column - 1 : 0);
    return {file, first_line + static_cast<int64_t>(position.line) - 1, column, column};
  }

  // Bytes of the first `count` code points of a line. Lines that are not ASCII keep their table, so that a
  // line of a megabyte with many values costs one pass.
  int64_t bytes_before(int64_t number, size_t count) {
    auto [it, fresh] = offsets.try_emplace(number);
    std::vector<uint32_t> &starts = it->second;
    const std::string_view text = line(number);
    if (fresh && std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }))
      for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes)
        starts.push_back(static_cast<uint32_t>(at));
    if (starts.empty())
      return static_cast<int64_t>(std::min(count, text.size()));
    return count < starts.size() ? starts[count] : static_cast<int64_t>(text.size());
  }

  std::vector<std::string_view> lines;
  std::unordered_map<int64_t, std::vector<uint32_t>> offsets; // line → byte of each code point
  std::string file;
  int64_t first_line;
};

bool before(const SourceRange &a, const SourceRange &b) {
  return a.line != b.line ? a.line < b.line : a.column < b.column;
}

Value convert(const toml::node &node, Positions &positions) {
  Value value;
  value.where = positions.range(node.source());
  value.inside = value.where;
  switch (node.type()) {
  case toml::node_type::string: {
    value.kind = Value::Kind::string;
    value.text = node.as_string()->get();
    const std::string_view token = positions.text_of(value.where);
    if (token.size() == value.text.size() + 2 && token.substr(1, value.text.size()) == value.text) {
      ++value.inside.column;
      --value.inside.end_column;
    }
    break;
  }
  case toml::node_type::integer:
    value.kind = Value::Kind::integer;
    value.integer = node.as_integer()->get();
    break;
  case toml::node_type::floating_point:
    value.kind = Value::Kind::number;
    value.number = node.as_floating_point()->get();
    break;
  case toml::node_type::boolean:
    value.kind = Value::Kind::boolean;
    value.boolean = node.as_boolean()->get();
    break;
  case toml::node_type::array:
    value.kind = Value::Kind::array;
    for (const toml::node &item : *node.as_array())
      value.items.push_back(convert(item, positions));
    break;
  case toml::node_type::table:
    value.kind = Value::Kind::table;
    for (auto &&[key, item] : *node.as_table())
      value.entries.push_back(
          {std::string(key.str()), positions.range(key.source()), convert(item, positions)});
    std::stable_sort(value.entries.begin(), value.entries.end(),
                     [](const Entry &a, const Entry &b) { return before(a.where, b.where); });
    break;
  default:
    value.kind = Value::Kind::date;
    break;
  }
  return value;
}

// The place of an offset of the text.
SourceRange place(std::string_view text, size_t offset, const std::string &file, int64_t first_line) {
  const std::string_view head = text.substr(0, offset);
  const size_t newline = head.rfind('\n');
  const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  const auto column = static_cast<int64_t>(offset - begin) + 1;
  return {file, first_line + static_cast<int64_t>(std::count(head.begin(), head.end(), '\n')), column,
          column};
}

bool check_encoding(std::string_view text, const std::string &file, int64_t first_line,
                    Diagnostics &diagnostics) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid) {
      SourceRange where = place(text, at, file, first_line);
      ++where.end_column;
      Diagnostic &error = diagnostics.error(
          "not-utf8", where,
          fmt::format("expected UTF-8 text, got the byte 0x{:02x}", static_cast<unsigned char>(text[at])));
      if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
        error.fix = "save the file as UTF-8; it begins like UTF-16";
      return false;
    }
    at += point.bytes;
  }
  return true;
}

// What the parser must not be given, found by a lexer that knows only strings, comments and the rest. Up to
// the parser's first error the two agree on which is which; after it nothing matters.
struct Scan {
  std::optional<size_t>
      too_deep;                // dotted keys nest a table for each dot, and tables are destroyed recursively
  std::optional<size_t> stray; // the first character outside strings and comments that is not ASCII
  std::string safe;            // the text with '?' for those, which is no TOML there either: toml++ 3.3 takes
                               // most of them for unreachable when it looks for blanks
};

Scan scan(std::string_view text) {
  Scan result;
  int dots = 0;
  auto skip_to = [&](size_t &at, size_t end) {
    end = std::min(end, text.size());
    result.safe += text.substr(at, end - at);
    at = end;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::string triple(3, c);
      const bool many = text.substr(at).starts_with(triple);
      size_t end = at + (many ? 3 : 1);
      while (end < text.size() &&
             (many ? !text.substr(end).starts_with(triple) : text[end] != c && text[end] != '\n'))
        end += c == '"' && text[end] == '\\' ? 2 : 1;
      end += many ? 3 : end < text.size() && text[end] == '\n' ? 0 : 1;
      for (int extra = 0; many && extra < 2 && end < text.size() && text[end] == c; ++extra)
        ++end; // """a"""" ends in a quote of its own
      skip_to(at, end);
    } else if (c == '#') {
      skip_to(at, text.find('\n', at));
    } else if (c & 0x80) {
      if (!result.stray)
        result.stray = at;
      result.safe += '?';
      at += decode_utf8(text, at).bytes;
    } else {
      if (c == '.' && ++dots > most_dots && !result.too_deep)
        result.too_deep = at;
      if (std::string_view("=\n[]{},").find(c) != std::string_view::npos)
        dots = 0;
      skip_to(at, at + 1);
    }
  }
  return result;
}

// The parser's sentence in our form: without "Error while parsing X: ", lowercase, on one line.
std::string syntax_message(std::string_view description) {
  constexpr std::string_view opening = "Error while parsing ";
  std::string message(description);
  if (description.starts_with(opening))
    message = "in a " + message.substr(opening.size());
  else if (!message.empty())
    message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
  if (message.starts_with("in a root table: "))
    message.erase(0, std::strlen("in a root table: "));
  while (message.ends_with('.'))
    message.pop_back();
  return message;
}

} // namespace

const Entry *Value::find(std::string_view key) const {
  auto it =
      std::find_if(entries.begin(), entries.end(), [&](const Entry &entry) { return entry.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

Entry *Value::find(std::string_view key) {
  auto it =
      std::find_if(entries.begin(), entries.end(), [&](const Entry &entry) { return entry.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

bool same_value(const Value &a, const Value &b) {
  if (a.kind != b.kind)
    return false;
  switch (a.kind) {
  case Value::Kind::string:
    return a.text == b.text;
  case Value::Kind::integer:
    return a.integer == b.integer;
  case Value::Kind::number:
    return a.number == b.number;
  case Value::Kind::boolean:
    return a.boolean == b.boolean;
  case Value::Kind::date:
    return false; // no key takes one
  case Value::Kind::array:
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value);
  case Value::Kind::table:
    return a.entries.size() == b.entries.size() &&
           std::all_of(a.entries.begin(), a.entries.end(), [&](const Entry &entry) {
             const Entry *other = b.find(entry.key);
             return other && same_value(entry.value, other->value);
           });
  }
  return false;
}

std::string describe_value(const Value &value) {
  switch (value.kind) {
  case Value::Kind::string:
    return fmt::format("the string \"{}\"",
                       value.text.size() <= 80 ? value.text : value.text.substr(0, 80) + "…");
  case Value::Kind::integer:
    return fmt::format("the integer {}", value.integer);
  case Value::Kind::number: {
    const std::string digits = fmt::format("{}", value.number);
    return fmt::format("the number {}{}", digits,
                       digits.find_first_of(".eni") == std::string::npos ? ".0" : "");
  }
  case Value::Kind::boolean:
    return fmt::format("the boolean {}", value.boolean);
  case Value::Kind::date:
    return "a date or time";
  case Value::Kind::array:
    return "an array";
  case Value::Kind::table:
    return "a table";
  }
  return {};
}

std::optional<Value> parse_document(std::string_view text, const std::string &file, Diagnostics &diagnostics,
                                    int64_t first_line) {
  if (text.starts_with("\xEF\xBB\xBF"))
    text.remove_prefix(3);
  if (text.size() > most_bytes) {
    diagnostics.error("file-too-large", {file, 0, 0, 0},
                      fmt::format("expected a file of at most {} bytes, got {}", most_bytes, text.size()));
    return std::nullopt;
  }
  if (!check_encoding(text, file, first_line, diagnostics))
    return std::nullopt;
  const Scan scanned = scan(text);
  if (scanned.too_deep) {
    diagnostics.error("nested-too-deep", place(text, *scanned.too_deep, file, first_line),
                      fmt::format("expected a key of at most {} dots, got more", most_dots));
    return std::nullopt;
  }
  Positions positions(text, file, first_line);
  const toml::parse_result result = toml::parse(scanned.safe);
  if (!result) {
    SourceRange where = positions.range(result.error().source());
    where.end_column = std::max(where.end_column, where.column);
    std::string message = syntax_message(result.error().description());
    if (scanned.stray) {
      SourceRange stray = place(text, *scanned.stray, file, first_line);
      const size_t bytes = decode_utf8(text, *scanned.stray).bytes;
      stray.end_column += static_cast<int64_t>(bytes);
      if (!before(where, stray)) {
        where = stray;
        message = fmt::format("only strings and comments may hold characters beyond ASCII, got '{}'",
                              text.substr(*scanned.stray, bytes));
      }
    }
    diagnostics.error("toml-syntax", where, message);
    return std::nullopt;
  }
  Value document = convert(result.table(), positions);
  document.where = document.inside = {file, 0, 0, 0};
  return document;
}

std::optional<std::string> read_text(const std::string &file, const SourceRange &mention,
                                     Diagnostics &diagnostics) {
  std::error_code ignored;
  auto fail = [&](const char *code, const std::string &reason) {
    Diagnostic &found = diagnostics.error(code, mention, fmt::format("cannot read {}: {}", file, reason));
    if (!std::filesystem::exists(std::filesystem::status(file, ignored)))
      if (auto near = nearest_file(file))
        found.fix = fmt::format("write {}", *near);
    return std::nullopt;
  };
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (std::filesystem::is_directory(status))
    return fail("file-unreadable", "it is a directory");
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> in(std::fopen(file.c_str(), "rb"), std::fclose);
  if (!in)
    return fail("file-unreadable", std::strerror(errno));
  std::string text;
  char block[1 << 16];
  while (const size_t got = std::fread(block, 1, sizeof block, in.get())) {
    text.append(block, got);
    if (text.size() > most_bytes) // also the end of /dev/zero
      return fail("file-too-large", fmt::format("expected at most {} bytes", most_bytes));
  }
  if (std::ferror(in.get()))
    return fail("file-unreadable", std::strerror(errno));
  if (!std::filesystem::is_regular_file(status))
    diagnostics.add_source(file, text); // cannot be read twice
  return text;
}

} // namespace paratope
