// SPDX-License-Identifier: Apache-2.0
//
// For tests: a spec as a flat list of values, to compare two of them whatever their places.
#pragma once

#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/spec/describe.h"

namespace paratope {

// Dotted key → value, with a '*' after what was written.
class SpecValues final : public FieldVisitor {
public:
  std::map<std::string, std::string> values;
  bool marks = true; // whether `written` is part of a value

  void integer(const char *key, Field<int64_t> &field, IntegerRange, Need, const char *) override {
    put(key, field);
  }
  void number(const char *key, Field<double> &field, NumberRange, Need, const char *) override {
    put(key, field);
  }
  void boolean(const char *key, Field<bool> &field, Need, const char *) override { put(key, field); }
  void text(const char *key, Field<std::string> &field, Need, const char *) override { put(key, field); }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string>, Need,
              const char *) override {
    put(key, field);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange, Need,
                const char *) override {
    put(key, field);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange, Need,
                       const char *) override {
    put(key, field);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange, Need,
                    const char *) override {
    put(key, field);
  }
  void texts(const char *key, Field<std::vector<std::string>> &field, Need, const char *) override {
    put(key, field);
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need,
                 const char *) override {
    put(key, field);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &field, std::vector<std::string>,
                       Need, const char *) override {
    put(key, field);
  }
  void axis_sizes(const char *key, std::vector<NamedAxis> &axes, const char *) override {
    for (const NamedAxis &axis : axes)
      values[fmt::format("{}{}.{}", path, key, axis.name)] =
          fmt::format("{} {}{}", axis.size->size, axis.size->product_of, mark(axis.size));
  }
  void groups(const char *key, std::vector<NamedGroup> &groups, const char *) override {
    for (const NamedGroup &group : groups)
      values[fmt::format("{}{}.{}", path, key, group.name)] =
          fmt::format("{}{}", *group.patterns, mark(group.patterns));
  }
  void table(const char *key, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    const std::string outer = path;
    path += fmt::format("{}.", key);
    body(*this);
    path = outer;
  }

private:
  template <class T> const char *mark(const Field<T> &field) const {
    return marks && field.written ? "*" : "";
  }
  template <class T> void put(const char *key, const Field<T> &field) {
    values[path + key] = fmt::format("{}{}", *field, mark(field));
  }
  std::string path;
};

inline std::map<std::string, std::string> values_of(TopologySpec topology, bool marks = true) {
  SpecValues values;
  values.marks = marks;
  describe(values, topology);
  return values.values;
}

// The keys whose values differ, with both; empty when none do.
inline std::string differences(const std::map<std::string, std::string> &a,
                               const std::map<std::string, std::string> &b) {
  std::string text;
  auto value = [](const std::map<std::string, std::string> &values, const std::string &key) {
    auto it = values.find(key);
    return it == values.end() ? "nothing" : it->second;
  };
  std::map<std::string, std::string> keys = a;
  keys.insert(b.begin(), b.end());
  for (const auto &[key, ignored] : keys)
    if (value(a, key) != value(b, key))
      text += fmt::format("{}: {} and {}\n", key, value(a, key), value(b, key));
  return text;
}

} // namespace paratope
