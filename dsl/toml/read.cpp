// SPDX-License-Identifier: Apache-2.0
//
// The order of one reading, each step adding what it finds and none stopping the next:
//
//   1  parse the file                              (a syntax error ends it here)
//   2  take out [variant.*], check every one of them, selected or not, against the language
//   3  lay the selected variants over the file, then the settings; conflicts between them are errors
//   4  read the layout, machine and model that the result names, with their own locations
//   5  let `describe` fill the spec from the result
//   6  check what must agree (dsl/spec), where the sections are sound
#include "dsl/toml/read.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/diagnostic/nearest.h"
#include "dsl/hf/import.h"
#include "dsl/spec/check.h"
#include "dsl/spec/describe.h"
#include "dsl/toml/document.h"
#include "dsl/toml/find.h"
#include "dsl/toml/merge.h"
#include "dsl/toml/section.h"
#include "dsl/toml/settings.h"

namespace paratope {
namespace {

SourceRange whole(const std::string &file) { return {file, 0, 0, 0}; }

// ---- the files a topology names -----------------------------------------------------------------------

// Reads a layout, model or machine file; `kind.noun` is also the key of its version.
template <class Spec>
bool read_library_file(const LibraryKind &kind, const std::string &file, const SourceRange &mention,
                       Spec &spec, Diagnostics &diagnostics) {
  const size_t errors = diagnostics.count(Severity::error);
  const std::optional<std::string> text = read_text(file, mention, diagnostics);
  if (!text)
    return false;
  const std::optional<Value> document = parse_document(*text, file, diagnostics);
  if (!document)
    return false;
  Field<int64_t> version;
  auto describe_file = [&](FieldVisitor &visitor) {
    visitor.integer(kind.noun, version, {language_version, language_version}, Need::required, "");
    describe(visitor, spec);
  };
  const std::map<std::string, std::string> homes = key_homes(describe_file);
  SectionRules rules{.diagnostics = diagnostics, .written = false, .in_used_file = true, .homes = &homes};
  if (!document->find(kind.noun) && document->find("topology")) {
    diagnostics.error("wrong-file-kind", document->find("topology")->where,
                      fmt::format("expected a {} file, got a topology", kind.noun));
    return false;
  }
  Section section(rules, &*document, whole(file), "");
  describe_file(section);
  section.finish();
  return diagnostics.count(Severity::error) == errors;
}

template <class Spec>
std::optional<Spec> read_alone(const LibraryKind &kind, const std::string &file, Diagnostics &diagnostics) {
  Spec spec;
  Diagnostics found;
  if (read_library_file(kind, file, whole(file), spec, found))
    check(spec, found);
  for (const Diagnostic &diagnostic : found.all())
    diagnostics.add(diagnostic);
  if (found.has_errors())
    return std::nullopt;
  return spec;
}

// The string at section.key of a document, as a field; empty where there is none (Section reports wrong
// types).
Field<std::string> mention_in(const Value &document, const char *section, const char *key) {
  Field<std::string> mention;
  const Value *table = &document;
  if (*section) {
    const Entry *entry = document.find(section);
    table = entry ? &entry->value : nullptr;
  }
  const Entry *entry = table ? table->find(key) : nullptr;
  if (entry && entry->value.kind == Value::Kind::string) {
    mention.value = entry->value.text;
    mention.where = entry->value.where;
  }
  return mention;
}

struct Library {
  const std::vector<std::string> &search;
  Diagnostics &diagnostics;

  // Reads what `mention` names into `spec`. False when that failed; then the errors say where it was named.
  template <class Spec> bool load(const LibraryKind &kind, const Field<std::string> &mention, Spec &spec) {
    if (!mention.where.known())
      return true;
    const std::optional<std::string> path = find_named(kind, *mention, mention.where, search, diagnostics);
    if (!path)
      return false;
    Diagnostics found;
    const bool good = read_library_file(kind, *path, mention.where, spec, found);
    hand_on(found, mention);
    return good;
  }

  // The same for a configuration: `hf` is a path, and the file is JSON.
  bool import(const Field<std::string> &mention, ModelSpec &model) {
    if (!mention.where.known())
      return true;
    const std::string path = mentioned_path(mention.where, *mention);
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {
      diagnostics.error("file-not-found", mention.where, fmt::format("hf: no such file: {}", path));
      return false;
    }
    Diagnostics found;
    const std::optional<std::string> text = read_text(path, mention.where, found);
    const bool good = text && import_hf(*text, path, model, found);
    hand_on(found, mention);
    return good;
  }

private:
  void hand_on(const Diagnostics &found, const Field<std::string> &mention) {
    for (Diagnostic diagnostic : found.all()) {
      if (diagnostic.where != mention.where)
        diagnostic.notes.push_back({fmt::format("'{}' is used here", *mention), mention.where});
      diagnostics.add(std::move(diagnostic));
    }
  }
};

// A layer that names another source of the model takes the place of what the file names: `use` and `hf` of
// one model in one document are an error (dsl/spec), a variant or --set that turns to the other is not.
void forget_other_source(Value &document, const Value &layer) {
  Entry *model = document.find("model");
  const Entry *over = layer.find("model");
  if (!model || !over)
    return;
  for (const auto &[given, other] : {std::pair("use", "hf"), std::pair("hf", "use")})
    if (over->value.find(given) && !over->value.find(other))
      std::erase_if(model->value.entries, [&](const Entry &entry) { return entry.key == other; });
}

// ---- variants and settings ----------------------------------------------------------------------------

// Takes the `variant` table out of the document.
Value take_variants(Value &document, SectionRules &rules) {
  Value variants;
  auto it = std::find_if(document.entries.begin(), document.entries.end(),
                         [](const Entry &entry) { return entry.key == "variant"; });
  if (it == document.entries.end())
    return variants;
  if (it->value.kind == Value::Kind::table)
    variants = std::move(it->value);
  else
    rules.diagnostics.error(
        "wrong-type", it->value.where,
        fmt::format("variant expects tables [variant.NAME], got {}", describe_value(it->value)));
  document.entries.erase(it);
  return variants;
}

// A variant is a topology of which anything may be missing, except what makes it a file of its own.
void check_variant(const Entry &variant, const std::vector<std::string> &axes, SectionRules rules,
                   Library &library) {
  if (variant.key.empty() || variant.key.find_first_of("#+") != std::string::npos)
    rules.diagnostics.error(
        "bad-name", variant.where,
        fmt::format("expected a variant name without '#' and '+', got '{}'", variant.key));
  if (variant.value.kind != Value::Kind::table) {
    rules.diagnostics.error(
        "wrong-type", variant.value.where,
        fmt::format("a variant is a table of what it changes, got {}", describe_value(variant.value)));
    return;
  }
  rules.partial = true;
  TopologySpec scratch;
  Section section(rules, &variant.value, variant.value.where, "");
  describe(section, scratch);
  section.finish();
  if (const Entry *version = variant.value.find("topology"))
    rules.diagnostics.error("unknown-key", version->where,
                            "a variant has no key 'topology': its file has the version");

  auto find_only = [&](const LibraryKind &kind, const Field<std::string> &name) {
    if (name.where.known())
      find_named(kind, *name, name.where, library.search, rules.diagnostics);
  };
  find_only(layout_library, scratch.layout_name);
  find_only(model_library, scratch.model.use);
  const Field<std::string> &hf = scratch.model.hf;
  std::error_code ignored;
  if (hf.where.known() && !std::filesystem::is_regular_file(mentioned_path(hf.where, *hf), ignored))
    rules.diagnostics.error("file-not-found", hf.where,
                            fmt::format("hf: no such file: {}", mentioned_path(hf.where, *hf)));
  find_only(machine_library, scratch.machine.use);
  const std::set<std::string> legal(axes.begin(), axes.end());
  for (const NamedAxis &axis : scratch.axes) {
    if (axes.empty() || scratch.axes.size() > most_axes || legal.contains(axis.name))
      continue; // too many to suggest among; selecting the variant says so
    Diagnostic &unknown = rules.diagnostics.error(
        "unknown-axis", axis.where,
        fmt::format("no layout or pattern of this file has the axis '{}'", axis.name));
    if (auto guess = nearest(axis.name, axes))
      unknown.fix = fmt::format("write {}", *guess);
  }
}

// Every name that some layout or pattern of the file, variants included, gives a meaning: the layouts' axes
// first. Empty when a layout cannot be read: then nothing can be said.
std::vector<std::string> axes_of_file(const Value &document, const Value &variants, const Library &library) {
  std::vector<std::string> axes, locals;
  auto add_names = [&](const std::string &pattern) {
    for (std::string &name : names_in_pattern(pattern))
      locals.push_back(std::move(name));
  };
  std::vector<const Value *> tables = {&document};
  for (const Entry &variant : variants.entries)
    tables.push_back(&variant.value);
  for (const Value *table : tables) {
    Diagnostics ignored;
    LayoutSpec layout;
    Library quiet{library.search, ignored};
    if (!quiet.load(layout_library, mention_in(*table, "", "layout"), layout))
      return {};
    for (const NamedAxis &axis : layout.axes)
      axes.push_back(axis.name);
    for (const NamedGroup &group : layout.groups)
      for (const std::string &pattern : *group.patterns)
        add_names(pattern);
    const Entry *groups = table->find("group");
    if (!groups)
      continue;
    for (const Entry &group : groups->value.entries) {
      add_names(group.value.text);
      for (const Value &pattern : group.value.items)
        add_names(pattern.text);
    }
  }
  axes.insert(axes.end(), locals.begin(), locals.end());
  return axes;
}

std::vector<Layer> select(const Value &variants, const std::vector<std::string> &names,
                          const std::string &file, Diagnostics &diagnostics) {
  std::vector<std::string> offered;
  for (const Entry &entry : variants.entries)
    offered.push_back(entry.key);
  std::vector<Layer> layers;
  std::set<std::string> selected;
  for (const std::string &name : names) {
    const Entry *variant = variants.find(name);
    if (!variant) {
      Diagnostic &unknown =
          diagnostics.error("unknown-variant", whole(file),
                            offered.empty() ? fmt::format("the file has no variants, got '{}'", name)
                                            : fmt::format("expected a variant of the file ({}), got '{}'",
                                                          fmt::join(offered, ", "), name));
      if (auto guess = nearest(name, offered))
        unknown.fix = fmt::format("write #{}", *guess);
    } else if (!selected.insert(name).second) {
      diagnostics.error("repeated-variant", variant->where,
                        fmt::format("a variant is selected once, got '{}' twice", name));
    } else if (variant->value.kind == Value::Kind::table) {
      layers.push_back({fmt::format("variant '{}'", name), &variant->value});
    }
  }
  return layers;
}

// ---- the result ---------------------------------------------------------------------------------------

// Findings by place: the topology's file first, then the others as they came. A variant that is selected is
// read twice, so what is said twice is said once.
void hand_over(const Diagnostics &found, const std::string &file, Diagnostics &diagnostics) {
  std::vector<const Diagnostic *> ordered;
  std::vector<std::string> files = {file};
  std::set<std::tuple<std::string, int64_t, int64_t, std::string, std::string>> said;
  for (const Diagnostic &diagnostic : found.all()) {
    const SourceRange &where = diagnostic.where;
    const std::string words =
        diagnostic.code == "unknown-axis" ? "" : diagnostic.message; // alone, it is said otherwise
    if (said.emplace(where.file, where.line, where.column, diagnostic.code, words).second)
      ordered.push_back(&diagnostic);
    if (std::find(files.begin(), files.end(), where.file) == files.end())
      files.push_back(where.file);
  }
  auto rank = [&](const Diagnostic *diagnostic) {
    const auto index = std::find(files.begin(), files.end(), diagnostic->where.file) - files.begin();
    return std::tuple(index, diagnostic->where.line, diagnostic->where.column);
  };
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const Diagnostic *a, const Diagnostic *b) { return rank(a) < rank(b); });
  for (const Diagnostic *diagnostic : ordered)
    diagnostics.add(*diagnostic);
  for (const auto &[name, text] : found.sources())
    diagnostics.add_source(name, text);
}

// The document's keys say which file it is before its contents are judged as the wrong one.
bool is_other_kind(const Value &document, const std::string &file, Diagnostics &diagnostics) {
  if (document.find("topology"))
    return false;
  for (const LibraryKind &kind : {layout_library, model_library, machine_library}) {
    const Entry *version = document.find(kind.noun);
    if (version && version->value.kind == Value::Kind::integer) {
      diagnostics
          .error("wrong-file-kind", version->where,
                 fmt::format("expected a topology, got a {} file", kind.noun))
          .fix =
          fmt::format("name {} in a topology that uses it", std::filesystem::path(file).filename().string());
      return true;
    }
  }
  return false;
}

std::optional<TopologySpec> read_document(Value document, const std::string &file,
                                          const std::vector<std::string> &variant_names,
                                          const ReadOptions &options, Diagnostics &diagnostics) {
  const std::vector<std::string> search = search_from(file, options.search);
  Library library{search, diagnostics};
  SectionRules rules{.diagnostics = diagnostics};
  TopologySpec topology;
  topology.where = whole(file);
  std::map<std::string, std::string> homes =
      key_homes([&](FieldVisitor &visitor) { describe(visitor, topology); });
  rules.homes = &homes;

  const Value variants = take_variants(document, rules);
  const std::vector<std::string> axes = axes_of_file(document, variants, library);
  for (const Entry &variant : variants.entries)
    check_variant(variant, axes, rules, library);

  const std::vector<Layer> selected = select(variants, variant_names, file, diagnostics);
  check_conflicts(selected, "variant-conflict", diagnostics);
  for (const Layer &layer : selected) {
    forget_other_source(document, *layer.document);
    lay_over(document, *layer.document);
  }
  std::vector<Value> settings;
  std::vector<std::string> setting_names;
  std::string shown_settings;
  for (size_t i = 0; i < options.settings.size(); ++i) {
    if (auto setting = parse_setting(options.settings[i], static_cast<int64_t>(i) + 1, diagnostics)) {
      settings.push_back(std::move(*setting));
      setting_names.push_back(fmt::format("setting {}", i + 1));
    }
    std::string line = options.settings[i];
    std::replace(line.begin(), line.end(), '\n', ' ');
    shown_settings += line + "\n";
  }
  diagnostics.add_source(settings_file, shown_settings);
  std::vector<Layer> set_layers;
  for (size_t i = 0; i < settings.size(); ++i)
    set_layers.push_back({setting_names[i], &settings[i]});
  check_conflicts(set_layers, "setting-conflict", diagnostics);
  for (const Value &setting : settings) {
    forget_other_source(document, setting);
    lay_over(document, setting);
  }

  const bool layout_read = library.load(layout_library, mention_in(document, "", "layout"), topology.layout);
  if (!library.load(machine_library, mention_in(document, "machine", "use"), topology.machine))
    rules.settled.insert("machine");
  const Field<std::string> model_use = mention_in(document, "model", "use");
  if (!library.load(model_library, model_use, topology.model))
    rules.settled.insert("model");
  if (!model_use.where.known() && !library.import(mention_in(document, "model", "hf"), topology.model))
    rules.settled.insert("model");
  for (const NamedAxis &axis : topology.layout.axes)
    homes.try_emplace(axis.name, "axes");

  Section section(rules, &document, whole(file), "");
  section.allow("variant");
  describe(section, topology);
  section.finish();

  const bool layout_known = layout_read && topology.layout_name.where.known();
  auto sound = [&](const char *name) {
    return !rules.unsound.contains(name) && !rules.settled.contains(name);
  };
  check(topology, diagnostics,
        {.layout = layout_known,
         .machine = sound("machine"),
         .model = sound("model"),
         .axes = layout_known && sound("axes") && sound("group"),
         .mesh = sound("mesh"),
         .workload = sound("workload") && sound("moe")});
  if (diagnostics.has_errors())
    return std::nullopt;
  return topology;
}

} // namespace

std::optional<TopologySpec> read_topology_text(std::string_view text, const std::string &file,
                                               const std::vector<std::string> &variants,
                                               const ReadOptions &options, Diagnostics &diagnostics) {
  Diagnostics found;
  std::optional<TopologySpec> topology;
  std::optional<Value> document = parse_document(text, file, found);
  if (document && !is_other_kind(*document, file, found))
    topology = read_document(std::move(*document), file, variants, options, found);
  hand_over(found, file, diagnostics);
  return topology;
}

std::optional<TopologySpec> read_topology(const std::string &file_and_variants, const ReadOptions &options,
                                          Diagnostics &diagnostics) {
  std::string file = file_and_variants;
  std::vector<std::string> variants;
  std::error_code ignored;
  const size_t hash = file.rfind('#');
  if (hash != std::string::npos && !std::filesystem::exists(file, ignored)) { // a '#' may be part of a name
    const std::string names = file.substr(hash + 1);
    file.erase(hash);
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find('+', begin), names.size());
      variants.push_back(names.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const std::optional<std::string> text = read_text(file, whole(file), diagnostics);
  if (!text)
    return std::nullopt;
  return read_topology_text(*text, file, variants, options, diagnostics);
}

std::optional<LayoutSpec> read_layout(const std::string &file, Diagnostics &diagnostics) {
  return read_alone<LayoutSpec>(layout_library, file, diagnostics);
}

std::optional<ModelSpec> read_model(const std::string &file, Diagnostics &diagnostics) {
  return read_alone<ModelSpec>(model_library, file, diagnostics);
}

std::optional<MachineSpec> read_machine(const std::string &file, Diagnostics &diagnostics) {
  return read_alone<MachineSpec>(machine_library, file, diagnostics);
}

std::vector<std::string> list_variants(const std::string &file) {
  Diagnostics ignored;
  std::vector<std::string> names;
  const std::optional<std::string> text = read_text(file, whole(file), ignored);
  const std::optional<Value> document = text ? parse_document(*text, file, ignored) : std::nullopt;
  if (const Entry *variants = document ? document->find("variant") : nullptr)
    for (const Entry &variant : variants->value.entries)
      names.push_back(variant.key);
  return names;
}

namespace {

std::vector<Listed> list(const LibraryKind &kind, const std::vector<std::string> &search) {
  std::vector<Listed> result;
  for (const auto &[name, path] : list_library(kind, search)) {
    Diagnostics ignored;
    const std::optional<std::string> text = read_text(path, whole(path), ignored);
    const std::optional<Value> document = text ? parse_document(*text, path, ignored) : std::nullopt;
    result.push_back({name, document ? *mention_in(*document, "", "summary") : "", path});
  }
  return result;
}

} // namespace

std::vector<Listed> list_layouts(const std::vector<std::string> &search) {
  return list(layout_library, search);
}
std::vector<Listed> list_models(const std::vector<std::string> &search) {
  return list(model_library, search);
}
std::vector<Listed> list_machines(const std::vector<std::string> &search) {
  return list(machine_library, search);
}

} // namespace paratope
