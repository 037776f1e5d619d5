// SPDX-License-Identifier: Apache-2.0
//
// A value a user wrote (or left to its default), with the place it came from, and the visitor that walks
// the fields of a section. Each section has one `describe` function (describe.h); the TOML reader, the
// TOML writer, the JSON Schema, `--set` and the `topo` dialect's attributes are all visitors of it, so a
// key exists once.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"

namespace paratope {

template <class T> struct Field {
  T value{};
  SourceRange where;    // of the value (not of its key)
  bool written = false; // by the topology file, an overlay or --set, rather than by a used file or a default

  Field() = default;
  Field(T initial) : value(std::move(initial)) {}
  const T &operator*() const { return value; }
  const T *operator->() const { return &value; }
};

// An axis size as written: a number, or a product of other axes (`enp = ["dp", "cp"]`).
struct AxisSize {
  int64_t size = 0; // when product_of is empty
  std::vector<std::string> product_of;
  bool operator==(const AxisSize &) const = default;
};

struct NamedAxis {
  std::string name;
  Field<AxisSize> size;
  SourceRange where;                     // of the name
  std::vector<SourceRange> factor_where; // of each name of product_of; empty where that is not known
};

// A group: one pattern, or several applied in turn.
struct NamedGroup {
  std::string name;
  Field<std::vector<std::string>> patterns;
  std::vector<SourceRange>
      pattern_where; // of each pattern's text, inside the quotes; same length as patterns
  SourceRange where; // of the name
};

// The place of bytes [begin, end) of a pattern, for the errors of the pattern engine. A string written with
// escapes has no such place: its range is longer than the pattern, and is returned whole.
inline SourceRange range_in_pattern(const NamedGroup &group, size_t pattern_idx, size_t begin, size_t end) {
  if (pattern_idx >= group.pattern_where.size())
    return group.patterns.where;
  SourceRange where = group.pattern_where[pattern_idx];
  const size_t size = group.patterns.value[pattern_idx].size();
  if (!where.known() || where.end_column - where.column != static_cast<int64_t>(size))
    return where;
  where.end_column = where.column + static_cast<int64_t>(end < size ? end : size);
  where.column += static_cast<int64_t>(begin < size ? begin : size);
  return where;
}

// Inclusive bounds of a number; with `above`, `least` itself is outside.
struct IntegerRange {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
};
struct NumberRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;
};

enum class Need { required, optional };

// One call per key, in the order a person would write them. `doc` is one sentence for hover text and the
// language reference. A visitor leaves a field untouched when the key is absent.
class FieldVisitor {
public:
  virtual ~FieldVisitor() = default;
  virtual void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need,
                       const char *doc) = 0;
  virtual void number(const char *key, Field<double> &field, NumberRange range, Need need,
                      const char *doc) = 0;
  virtual void boolean(const char *key, Field<bool> &field, Need need, const char *doc) = 0;
  virtual void text(const char *key, Field<std::string> &field, Need need, const char *doc) = 0;
  virtual void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
                      const char *doc) = 0;
  virtual void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                        const char *doc) = 0;
  // A number or a list of numbers: kept as a list of one or more.
  virtual void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each,
                               Need need, const char *doc) = 0;
  // A list of lists; a flat list is one row.
  virtual void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field,
                            IntegerRange each, Need need, const char *doc) = 0;
  virtual void texts(const char *key, Field<std::vector<std::string>> &field, Need need, const char *doc) = 0;
  virtual void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need need,
                         const char *doc) = 0;
  // "auto", or a list of some of the choices, each at most once (`fuse`): kept as {"auto"} or the list.
  virtual void auto_or_choices(const char *key, Field<std::vector<std::string>> &field,
                               std::vector<std::string> choices, Need need, const char *doc) = 0;
  // name → size tables and name → pattern(s) tables, whose keys the user chooses
  virtual void axis_sizes(const char *key, std::vector<NamedAxis> &axes, const char *doc) = 0;
  virtual void groups(const char *key, std::vector<NamedGroup> &groups, const char *doc) = 0;
  // A nested table: `body` visits its keys.
  virtual void table(const char *key, Need need, const char *doc,
                     const std::function<void(FieldVisitor &)> &body) = 0;
};

} // namespace paratope
