// SPDX-License-Identifier: Apache-2.0
#include "dsl/toml/section.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/diagnostic/nearest.h"
#include "dsl/spec/describe.h"

namespace paratope {
namespace {

std::string spelled(const IntegerRange &range) {
  const IntegerRange everything;
  if (range.least == range.most)
    return fmt::format("{}", range.least);
  if (range.most == everything.most)
    return range.least == everything.least ? "an integer"
                                           : fmt::format("an integer of at least {}", range.least);
  return fmt::format("an integer from {} to {}", range.least, range.most);
}

std::string spelled(const NumberRange &range) {
  std::string least = range.above ? fmt::format("a number above {}", range.least)
                                  : fmt::format("a number of at least {}", range.least);
  return std::isinf(range.most) ? least : fmt::format("{} and at most {}", least, range.most);
}

} // namespace

Diagnostic &Section::error(const char *code, const SourceRange &where, std::string message) {
  rules.unsound.insert(path.substr(0, path.find('.')));
  return rules.diagnostics.error(code, where, std::move(message));
}

template <class T> const Value *Section::ask(const char *key, const Field<T> &field, Need need) {
  known.push_back(key);
  const Entry *entry = values ? values->find(key) : nullptr;
  if (!entry && need == Need::required && !field.where.known())
    missing.push_back(key);
  return entry ? &entry->value : nullptr;
}

template <class T> void Section::set(Field<T> &field, T value, const Value &source) {
  field.value = std::move(value);
  field.where = source.where;
  field.written = rules.written;
}

// ---- one value ----------------------------------------------------------------------------------------

Diagnostic &Section::wrong_type(const std::string &key, const Value &got, const std::string &expected) {
  Diagnostic &diagnostic = error("wrong-type", got.where,
                                 fmt::format("{} expects {}, got {}", key, expected, describe_value(got)));
  if (expected.starts_with("an integer") || expected.starts_with("a number")) {
    const bool digits =
        !got.text.empty() && got.text.size() < 19 &&
        std::all_of(got.text.begin(), got.text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (got.kind == Value::Kind::string && digits)
      diagnostic.fix = fmt::format("write {} without quotes", got.text);
    if (got.kind == Value::Kind::number && std::abs(got.number) < 1e15 &&
        got.number == std::floor(got.number))
      diagnostic.fix = fmt::format("write {}", static_cast<int64_t>(got.number));
  }
  return diagnostic;
}

bool Section::read_integer(const std::string &key, const Value &value, const IntegerRange &range,
                           int64_t &result) {
  if (value.kind != Value::Kind::integer) {
    wrong_type(key, value, spelled(range).starts_with("an") ? "an integer" : "the integer " + spelled(range));
    return false;
  }
  if (value.integer < range.least || value.integer > range.most) {
    if (range.least == range.most) { // only versions are fixed
      error("unsupported-version", value.where,
            fmt::format("this tool reads version {} of the language, got {} = {}", range.least, key,
                        value.integer))
          .fix =
          fmt::format("write {} = {}, or use a tool that knows version {}", key, range.least, value.integer);
      return false;
    }
    error("out-of-range", value.where,
          fmt::format("{} expects {}, got {}", key, spelled(range), value.integer));
    return false;
  }
  result = value.integer;
  return true;
}

bool Section::read_text(const std::string &key, const Value &value, std::string &result) {
  if (value.kind != Value::Kind::string) {
    wrong_type(key, value, "a string");
    return false;
  }
  result = value.text;
  return true;
}

void Section::integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need, const char *) {
  const Value *value = ask(key, field, need);
  int64_t result = 0;
  if (value && read_integer(key, *value, range, result))
    set(field, result, *value);
}

void Section::number(const char *key, Field<double> &field, NumberRange range, Need need, const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  double number = value->number;
  if (value->kind == Value::Kind::integer)
    number = static_cast<double>(value->integer);
  else if (value->kind != Value::Kind::number) {
    wrong_type(key, *value, "a number");
    return;
  }
  const bool low = range.above ? !(number > range.least) : !(number >= range.least);
  if (!std::isfinite(number) || low || number > range.most) {
    error("out-of-range", value->where, fmt::format("{} expects {}, got {}", key, spelled(range), number));
    return;
  }
  set(field, number, *value);
}

void Section::boolean(const char *key, Field<bool> &field, Need need, const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  if (value->kind != Value::Kind::boolean)
    wrong_type(key, *value, "true or false");
  else
    set(field, value->boolean, *value);
}

void Section::text(const char *key, Field<std::string> &field, Need need, const char *) {
  if (rules.in_used_file && (std::string_view(key) == "use" || std::string_view(key) == "hf"))
    return; // not asked for, so unknown where it is written
  const Value *value = ask(key, field, need);
  std::string result;
  if (value && read_text(key, *value, result))
    set(field, std::move(result), *value);
}

void Section::choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
                     const char *) {
  const Value *value = ask(key, field, need);
  std::string result;
  if (!value || !read_text(key, *value, result))
    return;
  if (std::find(choices.begin(), choices.end(), result) == choices.end()) {
    Diagnostic &unknown =
        error("unknown-choice", value->where,
              fmt::format("{} expects one of {}, got '{}'", key, fmt::join(choices, ", "), result));
    if (auto guess = nearest(result, choices))
      unknown.fix = fmt::format("write \"{}\"", *guess);
    return;
  }
  set(field, std::move(result), *value);
}

// ---- lists --------------------------------------------------------------------------------------------

bool Section::read_integers(const std::string &key, const Value &value, const IntegerRange &each,
                            std::vector<int64_t> &result) {
  bool good = true;
  for (size_t i = 0; i < value.items.size(); ++i) {
    int64_t item = 0;
    good &= read_integer(fmt::format("{}[{}]", key, i), value.items[i], each, item);
    result.push_back(item);
  }
  return good;
}

bool Section::read_texts(const std::string &key, const Value &value, const char *expected,
                         std::vector<std::string> &result) {
  if (value.kind != Value::Kind::array) {
    wrong_type(key, value, expected);
    return false;
  }
  bool good = true;
  for (size_t i = 0; i < value.items.size(); ++i) {
    std::string item;
    good &= read_text(fmt::format("{}[{}]", key, i), value.items[i], item);
    result.push_back(std::move(item));
  }
  return good;
}

void Section::integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                       const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  std::vector<int64_t> result;
  if (value->kind != Value::Kind::array)
    wrong_type(key, *value, "an array of integers");
  else if (read_integers(key, *value, each, result))
    set(field, std::move(result), *value);
}

void Section::integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each,
                              Need need, const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  std::vector<int64_t> result;
  int64_t single = 0;
  if (value->kind == Value::Kind::array) {
    if (read_integers(key, *value, each, result))
      set(field, std::move(result), *value);
  } else if (value->kind != Value::Kind::integer) {
    wrong_type(key, *value, "an integer or an array of integers");
  } else if (read_integer(key, *value, each, single)) {
    set(field, {single}, *value);
  }
}

void Section::integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field,
                           IntegerRange each, Need need, const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  constexpr const char *expected = "an array of integers, or an array of such arrays";
  if (value->kind != Value::Kind::array) {
    wrong_type(key, *value, expected);
    return;
  }
  std::vector<std::vector<int64_t>> rows;
  bool good = true;
  if (!value->items.empty() &&
      value->items[0].kind == Value::Kind::integer) { // one row, written without its brackets
    rows.emplace_back();
    if (read_integers(key, *value, each, rows.back()))
      set(field, std::move(rows), *value);
    return;
  }
  for (size_t i = 0; i < value->items.size(); ++i) {
    const Value &row = value->items[i];
    rows.emplace_back();
    if (row.kind == Value::Kind::array) {
      good &= read_integers(fmt::format("{}[{}]", key, i), row, each, rows.back());
    } else {
      wrong_type(key, row, expected);
      good = false;
    }
  }
  if (good)
    set(field, std::move(rows), *value);
}

void Section::texts(const char *key, Field<std::vector<std::string>> &field, Need need, const char *) {
  const Value *value = ask(key, field, need);
  std::vector<std::string> result;
  if (value && read_texts(key, *value, "an array of strings", result))
    set(field, std::move(result), *value);
}

void Section::text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need need,
                        const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  constexpr const char *expected = "an array of arrays of strings";
  if (value->kind != Value::Kind::array) {
    wrong_type(key, *value, expected);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  bool good = true;
  for (size_t i = 0; i < value->items.size(); ++i) {
    rows.emplace_back();
    good &= read_texts(fmt::format("{}[{}]", key, i), value->items[i], "an array of strings", rows.back());
  }
  if (good)
    set(field, std::move(rows), *value);
}

void Section::auto_or_choices(const char *key, Field<std::vector<std::string>> &field,
                              std::vector<std::string> choices, Need need, const char *) {
  const Value *value = ask(key, field, need);
  if (!value)
    return;
  std::vector<std::string> result;
  if (value->kind == Value::Kind::string && value->text == "auto") {
    set(field, {"auto"}, *value);
    return;
  }
  if (!read_texts(key, *value, "\"auto\" or an array of strings", result))
    return;
  bool good = true;
  for (size_t i = 0; i < result.size(); ++i)
    if (std::optional<std::string> problem = wrong_choice(result, i, choices)) {
      Diagnostic &found =
          error("unknown-choice", value->items[i].where, fmt::format("{}[{}]: {}", key, i, *problem));
      if (auto guess = nearest(result[i], choices); guess && *guess != result[i])
        found.fix = fmt::format("write \"{}\"", *guess);
      good = false;
    }
  if (good)
    set(field, std::move(result), *value);
}

// ---- tables whose keys the user chooses ---------------------------------------------------------------

namespace {

// Lists are sorted by name. Keys of one table are unique, so only what was there before can be replaced:
// `sorted` of them; new ones wait at the end until sort_by_name.
template <class Named> Named &at_name(std::vector<Named> &list, size_t sorted, const std::string &name) {
  const auto end = list.begin() + static_cast<std::ptrdiff_t>(sorted);
  auto it = std::lower_bound(list.begin(), end, name,
                             [](const Named &item, const std::string &wanted) { return item.name < wanted; });
  if (it != end && it->name == name)
    return *it;
  list.emplace_back().name = name;
  return list.back();
}

template <class Named> void sort_by_name(std::vector<Named> &list) {
  std::sort(list.begin(), list.end(), [](const Named &a, const Named &b) { return a.name < b.name; });
}

} // namespace

void Section::axis_sizes(const char *key, std::vector<NamedAxis> &axes, const char *) {
  known.push_back(key);
  const Entry *section = values ? values->find(key) : nullptr;
  if (!section)
    return;
  if (section->value.kind != Value::Kind::table) {
    wrong_type(key, section->value, "a table of axis sizes");
    return;
  }
  const size_t sorted = axes.size();
  for (const Entry &entry : section->value.entries) {
    AxisSize size;
    bool good = false;
    if (entry.value.kind == Value::Kind::array)
      good = read_texts(entry.key, entry.value, "", size.product_of);
    else if (entry.value.kind == Value::Kind::integer)
      good = read_integer(entry.key, entry.value, {1, int64_t{1} << 31}, size.size);
    else
      wrong_type(entry.key, entry.value, "an integer or an array of axis names");
    if (!good)
      continue;
    NamedAxis &axis = at_name(axes, sorted, entry.key);
    axis.where = entry.where;
    axis.factor_where.clear();
    for (const Value &factor : entry.value.items)
      axis.factor_where.push_back(factor.where);
    set(axis.size, std::move(size), entry.value);
  }
  sort_by_name(axes);
}

void Section::groups(const char *key, std::vector<NamedGroup> &groups, const char *) {
  known.push_back(key);
  const Entry *section = values ? values->find(key) : nullptr;
  if (!section)
    return;
  if (section->value.kind != Value::Kind::table) {
    wrong_type(key, section->value, "a table of patterns");
    return;
  }
  const size_t sorted = groups.size();
  for (const Entry &entry : section->value.entries) {
    std::vector<std::string> patterns;
    std::vector<SourceRange> places;
    if (entry.value.kind == Value::Kind::string) {
      patterns.push_back(entry.value.text);
      places.push_back(entry.value.inside);
    } else if (read_texts(entry.key, entry.value, "a pattern or an array of patterns", patterns)) {
      for (const Value &item : entry.value.items)
        places.push_back(item.inside);
    } else {
      continue;
    }
    NamedGroup &group = at_name(groups, sorted, entry.key);
    group.where = entry.where;
    group.pattern_where = std::move(places);
    set(group.patterns, std::move(patterns), entry.value);
  }
  sort_by_name(groups);
}

void Section::table(const char *key, Need need, const char *,
                    const std::function<void(FieldVisitor &)> &body) {
  known.push_back(key);
  const std::string inner = path.empty() ? key : path + "." + key;
  const Entry *entry = values ? values->find(key) : nullptr;
  if (entry && entry->value.kind != Value::Kind::table) {
    Diagnostic &diagnostic = wrong_type(key, entry->value, "a table");
    rules.unsound.insert(inner.substr(0, inner.find('.')));
    if (entry->value.kind == Value::Kind::string && (inner == "machine" || inner == "model"))
      diagnostic.fix = fmt::format("write {} = {{ use = \"{}\" }}", key, entry->value.text);
    return;
  }
  if (!entry && need == Need::optional)
    return;
  Section section(rules, entry ? &entry->value : nullptr, entry ? entry->value.where : header, inner);
  body(section);
  if (entry) {
    section.finish();
    return;
  }
  if (section.missing.empty() && !section.lacks_section)
    return; // a used file has it all
  lacks_section = true;
  if (!values || rules.partial || rules.settled.contains(inner.substr(0, inner.find('.'))))
    return; // the enclosing section is what is missing
  rules.unsound.insert(inner.substr(0, inner.find('.')));
  const bool usable = std::find(section.known.begin(), section.known.end(), "use") != section.known.end();
  Diagnostic &diagnostic =
      error("missing-section", header,
            usable || section.missing.empty() ? fmt::format("missing section [{}]", inner)
                                              : fmt::format("missing section [{}] with its keys {}", inner,
                                                            fmt::join(section.missing, ", ")));
  if (usable)
    diagnostic.fix =
        fmt::format("write [{}] and a line use = \"…\"; `paratope {}s` lists what there is", inner, key);
}

// ---- the end of a section -----------------------------------------------------------------------------

void Section::report_unknown(const Entry &entry) {
  const bool is_table = entry.value.kind == Value::Kind::table;
  Diagnostic &unknown = error(is_table ? "unknown-section" : "unknown-key", entry.where,
                              is_table ? fmt::format("{} has no section '{}'", place(), entry.key)
                                       : fmt::format("{} has no key '{}'", place(), entry.key));
  auto home =
      rules.homes ? rules.homes->find(entry.key) : std::map<std::string, std::string>::const_iterator{};
  if (rules.in_used_file && (entry.key == "use" || (entry.key == "hf" && path.empty())))
    unknown.fix = "leave it out: a file that is used cannot use another";
  else if (rules.homes && !is_table && home != rules.homes->end() && home->second != path)
    unknown.fix = fmt::format("move it to [{}]", home->second);
  else if (auto guess = nearest(entry.key, known))
    unknown.fix = fmt::format("write {}", *guess);
  else if (known.size() <= 24)
    unknown.notes.push_back({fmt::format("{} knows {}", place(), fmt::join(known, ", ")), {}});
}

void Section::report_missing() {
  if (missing.empty() || rules.partial || rules.settled.contains(path.substr(0, path.find('.'))))
    return;
  Diagnostic &diagnostic = error("missing-key", header,
                                 fmt::format("{} lacks the {} {}", place(),
                                             missing.size() == 1 ? "key" : "keys", fmt::join(missing, ", ")));
  if (std::find(known.begin(), known.end(), "use") != known.end())
    diagnostic.fix = fmt::format("write them, or use = \"…\"; `paratope {}s` lists what there is", path);
}

void Section::finish() {
  constexpr size_t most_reported = 100; // a file of another kind has thousands
  size_t num_unknown = 0;
  if (values)
    for (const Entry &entry : values->entries) {
      if (std::find(known.begin(), known.end(), entry.key) != known.end())
        continue;
      if (++num_unknown > most_reported) {
        error("unknown-key", entry.where,
              fmt::format("{} has more than {} unknown keys, from here on not reported", place(),
                          most_reported));
        break;
      }
      report_unknown(entry);
    }
  report_missing();
}

// ---- homes --------------------------------------------------------------------------------------------

namespace {

class HomeFinder final : public FieldVisitor {
public:
  std::map<std::string, std::string> homes;
  std::set<std::string> ambiguous;

  void integer(const char *key, Field<int64_t> &, IntegerRange, Need, const char *) override { note(key); }
  void number(const char *key, Field<double> &, NumberRange, Need, const char *) override { note(key); }
  void boolean(const char *key, Field<bool> &, Need, const char *) override { note(key); }
  void text(const char *key, Field<std::string> &, Need, const char *) override { note(key); }
  void choice(const char *key, Field<std::string> &, std::vector<std::string>, Need, const char *) override {
    note(key);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &, IntegerRange, Need, const char *) override {
    note(key);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &, IntegerRange, Need,
                       const char *) override {
    note(key);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &, IntegerRange, Need,
                    const char *) override {
    note(key);
  }
  void texts(const char *key, Field<std::vector<std::string>> &, Need, const char *) override { note(key); }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &, Need,
                 const char *) override {
    note(key);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &, std::vector<std::string>, Need,
                       const char *) override {
    note(key);
  }
  void axis_sizes(const char *, std::vector<NamedAxis> &, const char *) override {}
  void groups(const char *, std::vector<NamedGroup> &, const char *) override {}
  void table(const char *key, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    const std::string outer = path;
    path = path.empty() ? key : path + "." + key;
    body(*this);
    path = outer;
  }

private:
  void note(const std::string &key) {
    if (!homes.try_emplace(key, path).second || path.empty())
      ambiguous.insert(key);
  }
  std::string path;
};

} // namespace

std::map<std::string, std::string> key_homes(const std::function<void(FieldVisitor &)> &describe_file) {
  HomeFinder finder;
  describe_file(finder);
  for (const std::string &key : finder.ambiguous)
    finder.homes.erase(key);
  return finder.homes;
}

} // namespace paratope
