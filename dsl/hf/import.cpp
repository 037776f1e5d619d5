// SPDX-License-Identifier: Apache-2.0
#include "dsl/hf/import.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/diagnostic/nearest.h"
#include "dsl/hf/architecture.h"
#include "dsl/spec/describe.h"

namespace paratope {

using namespace hf;

namespace {

using Kind = JsonValue::Kind;

JsonValue literal(const char *json) {
  Diagnostics none;
  return parse_json(json, "", none).value_or(JsonValue{});
}

// ---- the table ----------------------------------------------------------------------------------------

// One configuration against its architecture's rows.
class Reader {
public:
  Reader(const Architecture &architecture, std::string prefix, Diagnostics &diagnostics)
      : architecture(architecture), prefix(std::move(prefix)), diagnostics(diagnostics) {
    for (const KeyRule &rule : common_rules())
      rules[rule.key] = &rule;
    for (const KeyRule &rule : architecture.rules) // an architecture's own row stands before the common one
      rules[rule.key] = &rule;
  }

  std::vector<Assigned> read(const JsonValue &keys) {
    walk(keys, "");
    std::vector<std::string> missing;
    for (const auto &[key, rule] : rules)
      if (rule->treat == Treat::copy && !seen.contains(key)) {
        if (*rule->usual == '\0')
          missing.push_back(prefix + key);
        else if (std::string_view(rule->usual) != "null")
          assigned.push_back({rule->to, prefix + key, literal(rule->usual)});
      }
    if (!missing.empty())
      diagnostics.error("missing-key", keys.where,
                        fmt::format("a {} has the {} {}", architecture.model_type,
                                    missing.size() == 1 ? "key" : "keys", fmt::join(missing, ", ")));
    for (const Constant &constant : architecture.constants) {
      Assigned fixed{constant.to, prefix + "model_type", literal(constant.value)};
      const JsonValue *type = keys.find("model_type");
      fixed.value.where = type ? type->where : keys.where;
      assigned.push_back(std::move(fixed));
    }
    Config config{keys, prefix, diagnostics};
    if (architecture.derive) {
      const size_t from = assigned.size();
      architecture.derive(config, assigned);
      for (size_t i = from; i < assigned.size(); ++i)
        assigned[i].key = prefix + assigned[i].key;
    }
    return std::move(assigned);
  }

private:
  void walk(const JsonValue &object, const std::string &path) {
    for (const JsonEntry &entry : object.entries) {
      const std::string key = path + entry.key;
      const auto rule = rules.find(key);
      if (rule != rules.end())
        apply(*rule->second, entry);
      else if (const auto inside = rules.lower_bound(key + "."); inside != rules.end() &&
                                                                 inside->first.starts_with(key + ".") &&
                                                                 entry.value.kind == Kind::object)
        walk(entry.value, key + ".");
      else if (inside != rules.end() && inside->first.starts_with(key + ".")) {
        if (entry.value.kind != Kind::null)
          diagnostics.error(
              "wrong-type", entry.value.where,
              fmt::format("{}{} expects an object, got {}", prefix, key, describe_value(entry.value)));
      } else
        unknown(key, entry);
    }
  }

  void apply(const KeyRule &rule, const JsonEntry &entry) {
    const JsonValue &value = entry.value;
    const bool absent = value.kind == Kind::null;
    switch (rule.treat) {
    case Treat::copy:
      if (!absent) {
        seen.insert(rule.key);
        assigned.push_back({rule.to, prefix + rule.key, value});
      }
      break;
    case Treat::require:
      if (!absent && !same_value(value, literal(rule.usual)))
        diagnostics.error(
            "unsupported", value.where,
            fmt::format("{}{} expects {}: {}, got {}", prefix, rule.key, rule.usual, rule.why, shown(value)));
      break;
    case Treat::leave_out:
      if (!absent && !same_value(value, literal(rule.usual)))
        diagnostics.add(
            Severity::warning, "left-out", value.where,
            fmt::format("computed without {}{} = {}: {}", prefix, rule.key, shown(value), rule.why));
      break;
    case Treat::ignore:
    case Treat::derive:
      break;
    }
  }

  void unknown(const std::string &key, const JsonEntry &entry) {
    constexpr size_t most_reported = 100;
    if (++num_unknown > most_reported)
      return;
    Diagnostic &error =
        diagnostics.error("unknown-key", entry.where,
                          fmt::format("{}{} is not known of a {}, and may change what is computed", prefix,
                                      key, architecture.model_type));
    std::vector<std::string> known;
    for (const auto &[name, rule] : rules)
      known.push_back(name);
    if (auto guess = nearest(key, known))
      error.fix = fmt::format("write \"{}\"", *guess);
  }

  const Architecture &architecture;
  std::string prefix;
  Diagnostics &diagnostics;
  std::map<std::string, const KeyRule *> rules;
  std::set<std::string> seen;
  std::vector<Assigned> assigned;
  size_t num_unknown = 0;
};

// ---- the spec -----------------------------------------------------------------------------------------

// Sets the fields of a ModelSpec that have a value, and checks it as the language does.
class Filler final : public FieldVisitor {
public:
  Filler(const std::vector<Assigned> &assigned, const SourceRange &file, Diagnostics &diagnostics)
      : file(file), diagnostics(diagnostics) {
    for (const Assigned &each : assigned)
      values[each.to] = &each;
  }

  void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need, const char *) override {
    int64_t value = 0;
    if (const Assigned *from = find(key); from && read(from->key, from->value, range, value))
      set(field, value, *from);
  }
  void number(const char *key, Field<double> &field, NumberRange range, Need, const char *) override {
    const Assigned *from = find(key);
    if (!from)
      return;
    const double value = from->value.number;
    if (from->value.kind != Kind::integer && from->value.kind != Kind::number)
      wrong_type(from->key, from->value, "a number");
    else if (!std::isfinite(value) || value < range.least || (range.above && value == range.least) ||
             value > range.most)
      diagnostics.error("out-of-range", from->value.where,
                        fmt::format("{} expects a number {} {}{}, got {}", from->key,
                                    range.above ? "above" : "of at least", range.least,
                                    std::isinf(range.most) ? "" : fmt::format(" and at most {}", range.most),
                                    value));
    else
      set(field, value, *from);
  }
  void boolean(const char *key, Field<bool> &field, Need, const char *) override {
    const Assigned *from = find(key);
    if (!from)
      return;
    if (from->value.kind == Kind::boolean)
      set(field, from->value.boolean, *from);
    else
      wrong_type(from->key, from->value, "true or false");
  }
  void text(const char *key, Field<std::string> &field, Need, const char *) override {
    const Assigned *from = find(key);
    if (!from)
      return;
    if (from->value.kind == Kind::string)
      set(field, from->value.text, *from);
    else
      wrong_type(from->key, from->value, "a string");
  }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need,
              const char *) override {
    const Assigned *from = find(key);
    if (!from)
      return;
    if (from->value.kind != Kind::string) {
      wrong_type(from->key, from->value, "a string");
    } else if (std::find(choices.begin(), choices.end(), from->value.text) == choices.end()) {
      Diagnostic &error = diagnostics.error("unknown-choice", from->value.where,
                                            fmt::format("{} expects one of {}, got '{}'", from->key,
                                                        fmt::join(choices, ", "), from->value.text));
      if (auto guess = nearest(from->value.text, choices))
        error.fix = fmt::format("write \"{}\"", *guess);
    } else {
      set(field, from->value.text, *from);
    }
  }
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need,
                const char *) override {
    const Assigned *from = find(key);
    if (!from)
      return;
    if (from->value.kind == Kind::array)
      set_list(field, each, *from);
    else
      wrong_type(from->key, from->value, "an array of integers");
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need,
                       const char *) override {
    const Assigned *from = find(key);
    int64_t single = 0;
    if (from && from->value.kind == Kind::array)
      set_list(field, each, *from);
    else if (from && read(from->key, from->value, each, single))
      set(field, {single}, *from);
  }
  // No table names a key of these kinds.
  void integer_rows(const char *, Field<std::vector<std::vector<int64_t>>> &, IntegerRange, Need,
                    const char *) override {}
  void texts(const char *, Field<std::vector<std::string>> &, Need, const char *) override {}
  void text_rows(const char *, Field<std::vector<std::vector<std::string>>> &, Need, const char *) override {}
  void auto_or_choices(const char *, Field<std::vector<std::string>> &, std::vector<std::string>, Need,
                       const char *) override {}
  void axis_sizes(const char *, std::vector<NamedAxis> &, const char *) override {}
  void groups(const char *, std::vector<NamedGroup> &, const char *) override {}
  void table(const char *key, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    const std::string outer = path;
    path += fmt::format("{}.", key);
    body(*this);
    path = outer;
  }

private:
  const Assigned *find(const char *key) const {
    const auto it = values.find(path + key);
    return it == values.end() ? nullptr : it->second;
  }
  template <class T> void set(Field<T> &field, T value, const Assigned &from) {
    field.value = std::move(value);
    field.where = from.value.where.known() ? from.value.where : file; // a default stands nowhere in the file
    field.written = false;
  }
  void set_list(Field<std::vector<int64_t>> &field, const IntegerRange &each, const Assigned &from) {
    std::vector<int64_t> list;
    bool good = true;
    for (size_t i = 0; i < from.value.items.size(); ++i) {
      list.emplace_back();
      good &= read(fmt::format("{}[{}]", from.key, i), from.value.items[i], each, list.back());
    }
    if (good)
      set(field, std::move(list), from);
  }
  bool read(const std::string &key, const JsonValue &value, const IntegerRange &range, int64_t &result) {
    if (value.kind != Kind::integer) {
      wrong_type(key, value, "an integer");
      return false;
    }
    result = value.integer;
    if (result >= range.least && result <= range.most)
      return true;
    diagnostics.error(
        "out-of-range", value.where,
        fmt::format("{} expects an integer from {} to {}, got {}", key, range.least, range.most, result));
    return false;
  }
  void wrong_type(const std::string &key, const JsonValue &got, const char *expected) {
    diagnostics.error("wrong-type", got.where,
                      fmt::format("{} expects {}, got {}", key, expected, describe_value(got)));
  }

  std::map<std::string, const Assigned *> values;
  SourceRange file;
  Diagnostics &diagnostics;
  std::string path;
};

const Architecture *find_architecture(const JsonValue &root, Diagnostics &diagnostics) {
  const std::vector<std::string> known = hf_architectures();
  const JsonValue *type = root.find("model_type");
  if (!type || type->kind == Kind::null) {
    Diagnostic &missing = diagnostics.error("missing-key", root.where,
                                            "a configuration says what it is of by the key model_type");
    missing.notes.push_back({fmt::format("there are {}", fmt::join(known, ", ")), {}});
    return nullptr;
  }
  if (type->kind != Kind::string) {
    diagnostics.error("wrong-type", type->where,
                      fmt::format("model_type expects a string, got {}", describe_value(*type)));
    return nullptr;
  }
  for (const Architecture &architecture : architectures())
    if (type->text == architecture.model_type)
      return &architecture;
  Diagnostic &unknown = diagnostics.error("unknown-architecture", type->where,
                                          fmt::format("no model of type '{}' can be imported", type->text));
  unknown.notes.push_back({fmt::format("there are {}", fmt::join(known, ", ")), {}});
  if (auto guess = nearest(type->text, known))
    unknown.fix = fmt::format("write \"{}\", if it is one", *guess);
  return nullptr;
}

// A file's own keys around the object that has the model's.
void check_wrapper(const JsonValue &root, const Architecture &architecture, Diagnostics &diagnostics) {
  constexpr KeyRule around[] = {
      {"vision_config", Treat::leave_out, "", "null", "a step takes tokens, no pictures"},
      {"image_token_id", Treat::ignore, "", "", "text"},
  };
  std::map<std::string, const KeyRule *> rules;
  for (const KeyRule &rule : common_rules())
    rules[rule.key] = &rule;
  for (const KeyRule &rule : around)
    rules[rule.key] = &rule;
  for (const JsonEntry &entry : root.entries) {
    if (entry.key == architecture.wrapper)
      continue;
    const auto rule = rules.find(entry.key);
    if (rule == rules.end() || rule->second->treat == Treat::copy)
      diagnostics.error("unknown-key", entry.where,
                        fmt::format("{} is not known of a {} outside {}, and may change what is computed",
                                    entry.key, architecture.model_type, architecture.wrapper));
    else if (rule->second->treat == Treat::leave_out &&
             !same_value(entry.value, literal(rule->second->usual)) && entry.value.kind != Kind::null)
      diagnostics.add(Severity::warning, "left-out", entry.value.where,
                      fmt::format("computed without {}: {}", entry.key, rule->second->why));
  }
}

std::string name_of(const std::string &file) {
  const std::filesystem::path path(file);
  if (path.filename() != "config.json")
    return path.stem().string();
  const std::string folder = path.parent_path().filename().string();
  return folder.empty() || folder == "." || folder == ".." ? "imported" : folder;
}

} // namespace

bool import_hf(std::string_view text, const std::string &file, ModelSpec &model, Diagnostics &diagnostics) {
  const size_t errors = diagnostics.count(Severity::error);
  const std::optional<JsonValue> root = parse_json(text, file, diagnostics);
  if (!root)
    return false;
  if (root->kind != Kind::object) {
    diagnostics.error("wrong-type", root->where,
                      fmt::format("a configuration is an object, got {}", describe_value(*root)));
    return false;
  }
  const Architecture *architecture = find_architecture(*root, diagnostics);
  if (!architecture)
    return false;
  const JsonValue *keys = &*root;
  std::string prefix;
  if (*architecture->wrapper) {
    keys = root->find(architecture->wrapper);
    prefix = fmt::format("{}.", architecture->wrapper);
    check_wrapper(*root, *architecture, diagnostics);
    if (!keys || keys->kind != Kind::object) {
      diagnostics.error(
          keys ? "wrong-type" : "missing-key", keys ? keys->where : root->where,
          fmt::format("a {} has an object {}", architecture->model_type, architecture->wrapper));
      return false;
    }
  }
  for (const char *missing : architecture->left_out)
    diagnostics.add(Severity::warning, "left-out", root->find("model_type")->where,
                    fmt::format("a {} is not computed in full: {}", architecture->model_type, missing));
  Reader reader(*architecture, prefix, diagnostics);
  std::vector<Assigned> assigned = reader.read(*keys);
  Assigned name{"name", "model_type", {}};
  name.value.kind = Kind::string;
  name.value.text = name_of(file);
  name.value.where = root->find("model_type")->where;
  assigned.push_back(std::move(name));
  Filler filler(assigned, root->where, diagnostics);
  describe(filler, model);
  return diagnostics.count(Severity::error) == errors;
}

std::vector<std::string> hf_architectures() {
  std::vector<std::string> names;
  for (const Architecture &architecture : architectures())
    names.emplace_back(architecture.model_type);
  return names;
}

} // namespace paratope
