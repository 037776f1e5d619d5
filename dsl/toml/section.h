// SPDX-License-Identifier: Apache-2.0
//
// The visitor that fills a spec from a document: `describe` asks it for each key in turn, it answers from
// one table, and what nobody asked for is unknown. Types and ranges are checked here, and nowhere else.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "dsl/spec/field.h"
#include "dsl/toml/document.h"

namespace paratope {

// What all sections of one file share.
struct SectionRules {
  Diagnostics &diagnostics;
  bool written = true;                // fields become Field::written; false for used files
  bool partial = false;               // a variant: nothing is missing
  bool in_used_file = false;          // a file that is named by `use` may not use another
  std::set<std::string> settled = {}; // top-level sections whose missing keys are reported otherwise
  // Where else a key is at home: its name → the section, so that a key in the wrong section says so.
  const std::map<std::string, std::string> *homes = nullptr;
  std::set<std::string> unsound =
      {}; // top-level sections with errors, "" for the file's own keys; written here
};

class Section final : public FieldVisitor {
public:
  // `table` is null when the section is absent: then nothing is set, and the keys it lacks are only counted.
  Section(SectionRules &rules, const Value *table, SourceRange header, std::string path)
      : rules(rules), values(table), header(std::move(header)), path(std::move(path)) {}

  // A key that is read elsewhere.
  void allow(const std::string &key) { known.push_back(key); }

  // Reports keys that no one asked for, and required ones that are not there. Call last.
  void finish();

  void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need,
               const char *doc) override;
  void number(const char *key, Field<double> &field, NumberRange range, Need need, const char *doc) override;
  void boolean(const char *key, Field<bool> &field, Need need, const char *doc) override;
  void text(const char *key, Field<std::string> &field, Need need, const char *doc) override;
  void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
              const char *doc) override;
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                const char *doc) override;
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                       const char *doc) override;
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange each,
                    Need need, const char *doc) override;
  void texts(const char *key, Field<std::vector<std::string>> &field, Need need, const char *doc) override;
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need need,
                 const char *doc) override;
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &field,
                       std::vector<std::string> choices, Need need, const char *doc) override;
  void axis_sizes(const char *key, std::vector<NamedAxis> &axes, const char *doc) override;
  void groups(const char *key, std::vector<NamedGroup> &groups, const char *doc) override;
  void table(const char *key, Need need, const char *doc,
             const std::function<void(FieldVisitor &)> &body) override;

private:
  template <class T> const Value *ask(const char *key, const Field<T> &field, Need need);
  template <class T> void set(Field<T> &field, T value, const Value &source);
  Diagnostic &error(const char *code, const SourceRange &where, std::string message);
  Diagnostic &wrong_type(const std::string &key, const Value &got, const std::string &expected);
  bool read_integer(const std::string &key, const Value &value, const IntegerRange &range, int64_t &result);
  bool read_text(const std::string &key, const Value &value, std::string &result);
  bool read_integers(const std::string &key, const Value &value, const IntegerRange &each,
                     std::vector<int64_t> &result);
  bool read_texts(const std::string &key, const Value &value, const char *expected,
                  std::vector<std::string> &result);
  void report_unknown(const Entry &entry);
  void report_missing();
  std::string place() const { return path.empty() ? "the file" : "[" + path + "]"; }

  SectionRules &rules;
  const Value *values;
  SourceRange header;
  std::string path;
  std::vector<std::string> known;
  std::vector<std::string> missing;
  bool lacks_section = false; // an absent section inside an absent one
};

// The home of every key of a file: name → section, for SectionRules::homes. Names with several homes, and
// top-level ones, have none.
std::map<std::string, std::string> key_homes(const std::function<void(FieldVisitor &)> &describe_file);

} // namespace paratope
