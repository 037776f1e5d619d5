// SPDX-License-Identifier: Apache-2.0
//
// The file of a random topology: what differs from the defaults and the used files, and now and then what
// does not.
#include "topology.h"

#include <set>

#include "keys.h"

namespace paratope::random {

namespace {

constexpr int64_t percent_repeated = 8; // a key that says what would hold anyway

// Whether the file may leave the section out, and does.
bool absent(const Topology &t, const std::string &section) {
  if (section == "model.engram")
    return !t.has_engram() && t.used.model.engram.layers->empty();
  return section == "machine.scale_out" && *t.spec.machine.scale_out.gb_per_s == 0;
}

bool is_empty(const Item &value) {
  return (value.kind == Item::Kind::list && value.items.empty()) ||
         (value.kind == Item::Kind::text && value.text.empty());
}

// Defaults may stand for "there is none", and such a number cannot be written.
bool in_range(const LanguageKey &key) {
  return key.value.kind != Item::Kind::integer ||
         (key.value.integer >= key.integers.least && key.value.integer <= key.integers.most);
}

// A section of a model or machine that no used file has.
bool in_place(const Topology &t, const std::string &section) {
  if (section == "model.engram")
    return t.used.model.engram.layers->empty();
  if (section.starts_with("model"))
    return t.used.model.use->empty();
  return !section.starts_with("machine") || t.used.machine.use->empty();
}

Item axis_item(Rng &rng, const Topology &t, const std::string &name, int64_t size) {
  if (name == "enp" && size == t.team && rng.percent(20))
    return Item::of(*t.spec.layout_name == "tensor-parallel" ? std::vector<std::string>{"dp", "tp"}
                                                             : std::vector<std::string>{"cp", "dp"});
  if (name == "ep" && size == t.size("dp") && rng.percent(15))
    return Item::of(std::vector<std::string>{"dp"});
  return Item::of(size);
}

void write_axes(Rng &rng, Topology &t) {
  bool tp = t.size("tp") > 1;
  for (const NamedAxis &axis : t.spec.axes) {
    bool default_size = axis.name == "enp" ? axis.size->size == t.team : axis.size->size == 1;
    bool own = true;
    for (const NamedAxis &each : t.spec.layout.axes)
      own = own && each.name != axis.name;
    if (!default_size || own || rng.percent(25)) {
      Item item = axis_item(rng, t, axis.name, axis.size->size);
      if (tp && item.kind == Item::Kind::list && axis.name == "enp")
        item = Item::of(axis.size->size);
      t.document.set("axes", axis.name, std::move(item));
    }
  }
  for (const NamedGroup &group : t.spec.groups)
    t.document.set("group", group.name,
                   group.patterns->size() == 1 ? Item::of(group.patterns->front())
                                               : Item::of(*group.patterns));
}

} // namespace

void write_document(Rng &rng, Topology &t) {
  std::vector<LanguageKey> keys = language_keys(t.spec), used = language_keys(t.used);
  static const std::set<std::string> never = {"summary", "hf", "weights"};
  bool axes_written = false;
  for (size_t i = 0; i < keys.size(); ++i) {
    const LanguageKey &key = keys[i];
    if (!axes_written && key.section == "mesh") { // where a person would write them
      write_axes(rng, t);
      axes_written = true;
    }
    if (absent(t, key.section) || never.contains(key.key))
      continue;
    bool names_file = key.key == "use" && !is_empty(key.value);
    bool needed = names_file || (key.required && in_place(t, key.section)),
         differs = key.value != used[i].value;
    bool name_of_used = key.key == "name" && !in_place(t, key.section);
    bool repeated = !is_empty(key.value) && in_range(key) && !name_of_used && rng.percent(percent_repeated);
    if (needed || differs || repeated)
      t.document.set(key.section, key.key, key.value);
  }
}

} // namespace paratope::random
