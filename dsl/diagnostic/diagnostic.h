// SPDX-License-Identifier: Apache-2.0
//
// What the whole front end says to its user: one value per finding, with the place in the file that
// caused it. Plain C++, so the pattern engine, the TOML reader, the MLIR passes and the command line
// share one type; passes reach it through an MLIR diagnostic handler (dsl/topo).
//
// Messages are lowercase, have no full stop, and say "got X, expected Y"; the offending values come last.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace paratope {

// A half-open stretch of one line. Lines and columns count from 1, columns in bytes; line 0 means
// "the file as a whole" (or nowhere, when `file` is empty too).
struct SourceRange {
  std::string file;
  int64_t line = 0;
  int64_t column = 0;
  int64_t end_column = 0; // one past the last byte; equal to `column` for a point

  bool known() const { return line > 0; }
  bool operator==(const SourceRange &) const = default;
};

enum class Severity { error, warning, remark };

struct Note {
  std::string message;
  SourceRange where;
};

struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;    // stable, kebab-case: "unknown-key", "not-divisible"
  std::string message; // one line
  SourceRange where;
  std::vector<Note> notes;
  std::string fix; // what to write instead, or empty
};

// Collects findings in the order they were made; never stops at the first. A plain value that is passed
// by reference to whoever may find something.
class Diagnostics {
public:
  // Adds a finding and returns it, so that notes and a fix can be attached.
  Diagnostic &add(Severity severity, std::string code, SourceRange where, std::string message);
  Diagnostic &error(std::string code, SourceRange where, std::string message) {
    return add(Severity::error, std::move(code), std::move(where), std::move(message));
  }

  void add(Diagnostic diagnostic);

  // The text of an input that is no file (--set, standard input, a pattern on the command line), so that its
  // line can be shown under the message as a file's is.
  void add_source(std::string file, std::string text) { texts[std::move(file)] = std::move(text); }

  const std::vector<Diagnostic> &all() const { return items; }
  const std::map<std::string, std::string> &sources() const { return texts; }
  bool has_errors() const;
  size_t count(Severity severity) const;

private:
  std::vector<Diagnostic> items;
  std::map<std::string, std::string> texts; // file → text
};

} // namespace paratope
