// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/error.h"

#include <algorithm>
#include <fmt/core.h>

#include "dsl/diagnostic/utf8.h"

namespace paratope {
namespace {

// The pattern's line that holds `begin`, and a caret line under it: "^~~" for a range, "^" for a point. Tabs
// are repeated in the caret line, so that it stays aligned however wide a tab is.
std::string underlined(const std::string &text, int64_t begin, int64_t end) {
  const auto length = static_cast<int64_t>(text.size());
  begin = std::clamp<int64_t>(begin, 0, length);
  end = std::clamp<int64_t>(end, begin, length);
  const auto before = begin == 0 ? std::string::npos : text.rfind('\n', static_cast<size_t>(begin - 1));
  const int64_t line_begin = before == std::string::npos ? 0 : static_cast<int64_t>(before) + 1;
  const auto line_end =
      static_cast<int64_t>(std::min(text.find('\n', static_cast<size_t>(begin)), text.size()));
  std::string line, caret;
  for (int64_t at = line_begin; at < line_end;) {
    const CodePoint point = decode_utf8(text, static_cast<size_t>(at));
    const std::string raw = text.substr(static_cast<size_t>(at), point.bytes);
    const std::string shown = raw == "\t" ? raw : printable(raw);
    const size_t columns = shown == raw ? static_cast<size_t>(terminal_width(point.code)) : shown.size();
    line += shown;
    if (at < begin && raw == "\t")
      caret += '\t';
    else if (at < begin)
      caret.append(columns, ' ');
    else if (at == begin && columns > 0)
      caret.append(1, '^').append(columns - 1, '~');
    else if (at < end)
      caret.append(columns, '~');
    at += static_cast<int64_t>(point.bytes);
  }
  if (begin >= line_end)
    caret += '^';
  return fmt::format("  {}\n  {}\n", line, caret);
}

std::string place(std::span<const std::string> patterns, int64_t pattern_idx, int64_t begin, int64_t end) {
  if (pattern_idx < 0 || pattern_idx >= static_cast<int64_t>(patterns.size()))
    return "";
  return underlined(patterns[static_cast<size_t>(pattern_idx)], begin, end);
}

} // namespace

std::string to_string(const PatternError &error, std::span<const std::string> patterns) {
  std::string text = fmt::format("{}: {}\n", error.code, error.message);
  text += place(patterns, error.pattern_idx, error.begin, error.end);
  for (const PatternNote &note : error.notes) {
    text += fmt::format("  note: {}\n", note.message);
    text += place(patterns, note.pattern_idx, note.begin, note.end);
  }
  if (!error.fix.empty())
    text += fmt::format("  fix: {}\n", error.fix);
  return text;
}

} // namespace paratope
