// SPDX-License-Identifier: Apache-2.0
#include "dsl/toml/write.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>

#include "dsl/diagnostic/utf8.h"
#include "dsl/spec/describe.h"

namespace paratope {
namespace {

std::string spelled(const std::string &text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      quoted += fmt::format("\\{}", c);
    else if (c == '\n')
      quoted += "\\n";
    else if (c == '\t')
      quoted += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    else
      quoted += c;
  }
  return quoted + "\"";
}

std::string spelled(int64_t value) { return fmt::format("{}", value); }
std::string spelled(bool value) { return value ? "true" : "false"; }

std::string spelled(double value) {
  const std::string digits = fmt::format("{}", value); // the shortest that reads back as the same number
  return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;
}

template <class T> std::string spelled(const std::vector<T> &list) {
  std::string text = "[";
  for (const T &item : list)
    text += (text.size() > 1 ? ", " : "") + spelled(item);
  return text + "]";
}

std::string spelled_key(const std::string &key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  return bare ? key : spelled(key);
}

// Which fields to write.
struct Selection {
  bool in_full = false;
  std::map<std::string, std::string>
      defaults; // "moe.exchange" → "\"auto\""; in full, what is equal is left out
};

class Writer final : public FieldVisitor {
public:
  Writer(const Selection &selection, std::string path) : selection(selection), path(std::move(path)) {}

  std::string text() const { return lines + sections; }

  // Every key with its value, however it came to be: what Selection::defaults is made from.
  std::map<std::string, std::string> values;

  void integer(const char *key, Field<int64_t> &field, IntegerRange, Need need, const char *) override {
    put(key, field, spelled(*field), need);
  }
  void number(const char *key, Field<double> &field, NumberRange, Need need, const char *) override {
    put(key, field, spelled(*field), need);
  }
  void boolean(const char *key, Field<bool> &field, Need need, const char *) override {
    put(key, field, spelled(*field), need);
  }
  void text(const char *key, Field<std::string> &field, Need need, const char *) override {
    put(key, field, spelled(*field), need);
  }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string>, Need need,
              const char *) override {
    put(key, field, spelled(*field), need);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange, Need need,
                const char *) override {
    put(key, field, spelled(*field), need);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange, Need need,
                       const char *) override {
    put(key, field, field->size() == 1 ? spelled(field->front()) : spelled(*field), need);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange, Need need,
                    const char *) override {
    put(key, field, spelled(*field), need);
  }
  void texts(const char *key, Field<std::vector<std::string>> &field, Need need, const char *) override {
    put(key, field, spelled(*field), need);
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need need,
                 const char *) override {
    put(key, field, spelled(*field), need);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &field, std::vector<std::string>,
                       Need need, const char *) override {
    put(key, field, *field == std::vector<std::string>{"auto"} ? "\"auto\"" : spelled(*field), need);
  }

  void axis_sizes(const char *key, std::vector<NamedAxis> &axes, const char *) override {
    Writer section(selection, path_of(key));
    for (NamedAxis &axis : axes) {
      const AxisSize &size = *axis.size;
      section.put(axis.name, axis.size,
                  size.product_of.empty() ? spelled(size.size) : spelled(size.product_of), Need::optional);
    }
    close(section);
  }

  void groups(const char *key, std::vector<NamedGroup> &groups, const char *) override {
    Writer section(selection, path_of(key));
    for (NamedGroup &group : groups)
      section.put(group.name, group.patterns,
                  group.patterns->size() == 1 ? spelled(group.patterns->front()) : spelled(*group.patterns),
                  Need::optional);
    close(section);
  }

  void table(const char *key, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    Writer section(selection, path_of(key));
    body(section);
    close(section);
  }

private:
  std::string path_of(const std::string &key) const {
    return path.empty() ? spelled_key(key) : path + "." + spelled_key(key);
  }

  template <class T>
  void put(const std::string &key, const Field<T> &field, const std::string &value, Need need) {
    const std::string full = path_of(key);
    values[full] = value;
    auto usual = selection.defaults.find(full);
    const bool differs = usual == selection.defaults.end() || usual->second != value;
    // A required key is one that has no default, so what a spec holds for it was meant; but not nothing.
    const bool chosen = selection.in_full ? differs || (need == Need::required && value != "\"\"" &&
                                                        value != "0" && value != "[]")
                                          : field.written;
    if (chosen)
      lines += fmt::format("{} = {}\n", spelled_key(key), value);
  }

  void close(const Writer &section) {
    if (!section.lines.empty())
      sections += fmt::format("\n[{}]\n{}", section.path, section.lines);
    sections += section.sections;
    values.insert(section.values.begin(), section.values.end());
  }

  const Selection &selection;
  std::string path;
  std::string lines;
  std::string sections;
};

// `own`, and what else `base` has by name and `known` does not say alike.
template <class Named, class Value>
std::vector<Named> combined(const std::vector<Named> &base, const std::vector<Named> &own,
                            const std::vector<Named> &known, Field<Value> Named::*value) {
  std::map<std::string, Named> by_name;
  for (const Named &item : base)
    by_name[item.name] = item;
  for (const Named &item : known) {
    auto same = by_name.find(item.name);
    if (same != by_name.end() && *(same->second.*value) == *(item.*value))
      by_name.erase(same);
  }
  for (const Named &item : own)
    by_name[item.name] = item;
  std::vector<Named> result;
  for (auto &[name, item] : by_name)
    result.push_back(std::move(item));
  return result;
}

} // namespace

std::string write_topology(const TopologySpec &topology) {
  TopologySpec copy = topology; // describe takes fields it may set
  const Selection written;
  Writer writer(written, "");
  describe(writer, copy);
  return writer.text();
}

std::string write_full(const TopologySpec &topology, const LayoutSpec &known_layout) {
  TopologySpec plain;
  const Selection everything;
  Writer defaults(everything, "");
  describe(defaults, plain);
  const Selection in_full{.in_full = true, .defaults = std::move(defaults.values)};

  TopologySpec copy = topology;
  copy.axes = combined(topology.layout.axes, topology.axes, known_layout.axes, &NamedAxis::size);
  copy.groups = combined(topology.layout.groups, topology.groups, known_layout.groups, &NamedGroup::patterns);
  if (*copy.machine.gpus_per_node > 0)
    copy.machine.use.value.clear();
  if (*copy.model.hidden > 0) {
    copy.model.use.value.clear();
    copy.model.hf.value.clear();
  }
  Writer writer(in_full, "");
  describe(writer, copy);
  return writer.text();
}

} // namespace paratope
