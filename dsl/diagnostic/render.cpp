// SPDX-License-Identifier: Apache-2.0
//
// The picture under a message has two lines: the source, cut to a width and made printable, and the carets.
// Both are built by one walk over the line's code points, which is what keeps them aligned:
//
//     bytes      e p   =  "  日  本  "        column 6 … 12, a stretch of bytes
//     terminal   ep  = "日本"                 wide characters take two columns, combining marks none
//                     ^~~~~~
#include "dsl/diagnostic/render.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>

#include <fmt/format.h>

#include "dsl/diagnostic/utf8.h"

namespace paratope {
namespace {

constexpr int tab_width = 4;
constexpr int64_t shown_before = 60; // bytes kept left of the range of a long line
constexpr int64_t shown_bytes = 160;

class SourceLines {
public:
  explicit SourceLines(const std::map<std::string, std::string> &given) : given(given) {}

  std::optional<std::string> line(const SourceRange &where) {
    if (!where.known() || where.file.empty())
      return std::nullopt;
    const std::vector<std::string> &lines = lines_of(where.file);
    if (where.line > static_cast<int64_t>(lines.size()))
      return std::nullopt;
    return lines[static_cast<size_t>(where.line - 1)];
  }

private:
  const std::vector<std::string> &lines_of(const std::string &file) {
    auto [it, fresh] = read.try_emplace(file);
    if (!fresh)
      return it->second;
    std::istringstream memory;
    std::ifstream disk;
    std::istream *in = &disk;
    if (auto text = given.find(file); text != given.end()) {
      memory.str(text->second);
      in = &memory;
    } else {
      disk.open(file, std::ios::binary);
    }
    for (std::string line; std::getline(*in, line);) {
      if (!line.empty() && line.back() == '\r')
        line.pop_back();
      if (it->second.empty() && line.starts_with("\xEF\xBB\xBF"))
        line.erase(0, 3); // a byte order mark has no column
      it->second.push_back(std::move(line));
    }
    return it->second;
  }

  const std::map<std::string, std::string> &given;
  std::map<std::string, std::vector<std::string>> read;
};

struct Picture {
  std::string source;
  std::string carets;
};

Picture draw(std::string_view line, const SourceRange &where) {
  const auto size = static_cast<int64_t>(line.size());
  const int64_t begin = std::clamp<int64_t>(where.column - 1, 0, size);
  const int64_t end = std::clamp<int64_t>(where.end_column - 1, begin, size);
  int64_t first = size <= shown_bytes ? 0 : std::max<int64_t>(0, begin - shown_before);
  int64_t last = std::min(size, first + shown_bytes);
  auto inside_character = [&](int64_t at) {
    return at < size && (line[static_cast<size_t>(at)] & 0xC0) == 0x80;
  };
  while (first > 0 && inside_character(first))
    --first;
  while (last < size && inside_character(last))
    ++last;

  Picture picture;
  int column = 0;
  bool caret_drawn = false;
  auto put = [&](std::string_view shown, int width, int64_t at) {
    picture.source += shown;
    for (int i = 0; i < width; ++i) {
      const bool under = at >= begin && at < end;
      picture.carets += !under ? ' ' : caret_drawn ? '~' : '^';
      caret_drawn |= under;
    }
    column += width;
  };
  if (first > 0)
    put("…", 1, -1);
  for (int64_t at = first; at < last;) {
    if (at >= begin && begin == end && !caret_drawn) { // a point: one caret, whatever stands there
      picture.carets.resize(static_cast<size_t>(column), ' ');
      picture.carets += '^';
      caret_drawn = true;
    }
    const CodePoint point = decode_utf8(line, static_cast<size_t>(at));
    const std::string_view bytes = line.substr(static_cast<size_t>(at), point.bytes);
    if (point.code == '\t') {
      const int width = tab_width - column % tab_width;
      put(std::string(static_cast<size_t>(width), ' '), width, at);
    } else if (!point.valid || point.code < 0x20 || (point.code >= 0x7F && point.code < 0xA0)) {
      const std::string escaped = printable(bytes);
      put(escaped, static_cast<int>(escaped.size()), at);
    } else {
      put(bytes, terminal_width(point.code), at);
    }
    at += static_cast<int64_t>(point.bytes);
  }
  if (last < size)
    picture.source += "…";
  if (!caret_drawn) { // past the end of the line: something is missing there
    picture.carets.resize(static_cast<size_t>(column), ' ');
    picture.carets += '^';
  }
  picture.carets.erase(picture.carets.find_last_not_of(' ') + 1);
  return picture;
}

struct Style {
  const char *label;
  const char *colour;
};

Style style_of(Severity severity) {
  switch (severity) {
  case Severity::error:
    return {"error", "\033[1;31m"};
  case Severity::warning:
    return {"warning", "\033[1;35m"};
  case Severity::remark:
    return {"remark", "\033[1;34m"};
  }
  return {"error", "\033[1;31m"};
}

constexpr Style note_style{"note", "\033[1;36m"};
constexpr Style fix_style{"fix", "\033[1;32m"};

void render_message(std::ostream &out, SourceLines &sources, const SourceRange &where, const Style &style,
                    const std::string &message, const std::string &code, const RenderOptions &options) {
  auto paint = [&](const char *colour) { return options.colour ? colour : ""; };
  std::string place = printable(where.file);
  if (where.known())
    place += fmt::format(":{}:{}", where.line, where.column);
  if (!place.empty())
    out << paint("\033[1m") << place << ":" << paint("\033[0m") << " ";
  out << paint(style.colour) << style.label << ":" << paint("\033[0m") << " " << printable(message);
  if (!code.empty())
    out << " [" << code << "]";
  out << "\n";
  if (const std::optional<std::string> line = sources.line(where)) {
    const Picture picture = draw(*line, where);
    out << fmt::format("{:>5} | {}\n", where.line, picture.source);
    out << "      | " << paint(style.colour) << picture.carets << paint("\033[0m") << "\n";
  }
}

const char *name_of(Severity severity) { return style_of(severity).label; }

void place_to_json(nlohmann::json &json, const SourceRange &where) {
  json["file"] = where.file.empty() ? nlohmann::json() : nlohmann::json(valid_utf8(where.file));
  json["line"] = where.known() ? nlohmann::json(where.line) : nlohmann::json();
  json["column"] = where.known() ? nlohmann::json(where.column) : nlohmann::json();
  json["end_column"] = where.known() ? nlohmann::json(where.end_column) : nlohmann::json();
}

} // namespace

void render(std::ostream &out, const Diagnostics &diagnostics, const RenderOptions &options) {
  SourceLines sources(diagnostics.sources());
  for (const Diagnostic &diagnostic : diagnostics.all()) {
    render_message(out, sources, diagnostic.where, style_of(diagnostic.severity), diagnostic.message,
                   diagnostic.code, options);
    for (const Note &note : diagnostic.notes)
      render_message(out, sources, note.where, note_style, note.message, "", options);
    if (!diagnostic.fix.empty())
      render_message(out, sources, {}, fix_style, diagnostic.fix, "", options);
  }
}

nlohmann::json to_json(const Diagnostics &diagnostics) {
  nlohmann::json list = nlohmann::json::array();
  for (const Diagnostic &diagnostic : diagnostics.all()) {
    nlohmann::json item;
    item["severity"] = name_of(diagnostic.severity);
    item["code"] = valid_utf8(diagnostic.code);
    item["message"] = valid_utf8(diagnostic.message);
    place_to_json(item, diagnostic.where);
    item["notes"] = nlohmann::json::array();
    for (const Note &note : diagnostic.notes) {
      nlohmann::json entry;
      entry["message"] = valid_utf8(note.message);
      place_to_json(entry, note.where);
      item["notes"].push_back(std::move(entry));
    }
    item["fix"] = diagnostic.fix.empty() ? nlohmann::json() : nlohmann::json(valid_utf8(diagnostic.fix));
    list.push_back(std::move(item));
  }
  return list;
}

} // namespace paratope
