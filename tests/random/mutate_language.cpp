// SPDX-License-Identifier: Apache-2.0
//
// Mutations that need no meaning: every key the file has, misspelt, of a wrong type, or out of its range; and
// patterns that are none.
#include "mutations.h"

#include <algorithm>

#include "keys.h"

namespace paratope::random {

namespace {

using Keys = std::vector<KeyName>;
using Type = LanguageKey::Type;

// A key that stands in the file and passes `wanted`.
std::optional<LanguageKey> some_key(Rng &rng, Topology &t,
                                    const std::function<bool(const LanguageKey &)> &wanted) {
  std::vector<LanguageKey> found;
  for (LanguageKey &key : language_keys(t.spec))
    if (t.document.has(key.section, key.key) && wanted(key))
      found.push_back(std::move(key));
  if (found.empty())
    return std::nullopt;
  return rng.of(found);
}

std::optional<Keys> misspelt_key(Rng &rng, Topology &t) {
  auto key = some_key(rng, t, [](const LanguageKey &) { return true; });
  auto cut = static_cast<size_t>(rng.between(1, static_cast<int64_t>(key->key.size())));
  std::string wrong = key->key.substr(0, cut) + "q" + key->key.substr(cut);
  t.document.append(key->section, wrong, key->value);
  return Keys{{key->section, wrong}};
}

std::optional<Keys> unknown_section(Rng &rng, Topology &t) {
  std::string wrong =
      rng.of<std::string>({"wrkload", "machine.gpus", "model.atention", "moe.routing", "axis"});
  t.document.set(wrong, "x", Item::of(int64_t{1}));
  return Keys{{wrong, ""}, {wrong, "x"}};
}

std::optional<Keys> wrong_type(Rng &rng, Topology &t) {
  auto key = some_key(rng, t, [](const LanguageKey &) { return true; });
  Item wrong;
  switch (key->type) {
  case Type::integer:
    wrong = rng.of<Item>({Item::of(true), Item::of(1.0), Item::of("1"), Item::of(std::vector<int64_t>{1})});
    break;
  case Type::number:
    wrong = rng.of<Item>({Item::of(true), Item::of("1"), Item::of(std::vector<int64_t>{1})});
    break;
  case Type::boolean:
    wrong = rng.of<Item>({Item::of(int64_t{1}), Item::of("true")});
    break;
  case Type::text:
  case Type::choice:
    wrong = rng.of<Item>({Item::of(int64_t{1}), Item::of(false), Item::of(std::vector<std::string>{"auto"})});
    break;
  case Type::integers:
    wrong =
        rng.of<Item>({Item::of(int64_t{1}), Item::of(std::vector<std::string>{"1"}), Item::raw("[1, 2.0]")});
    break;
  case Type::integer_or_list:
    wrong = rng.of<Item>({Item::of(2.0), Item::of("2"), Item::raw("[1, true]")});
    break;
  case Type::integer_rows:
    wrong = rng.of<Item>({Item::of(int64_t{2}), Item::raw("[[1], 2]"), Item::raw("[1, [2]]"), Item::of("2")});
    break;
  case Type::texts:
  case Type::text_rows:
  case Type::auto_or_choices:
    wrong = rng.of<Item>({Item::of(int64_t{1}), Item::raw("[1]")});
    break;
  }
  t.document.set(key->section, key->key, wrong);
  return Keys{{key->section, key->key}};
}

bool bounded(const LanguageKey &key) {
  bool integers = key.type == Type::integer || key.type == Type::integers ||
                  key.type == Type::integer_or_list || key.type == Type::integer_rows;
  IntegerRange all;
  return (integers && (key.integers.least != all.least || key.integers.most != all.most)) ||
         key.type == Type::number;
}

std::optional<Keys> out_of_range(Rng &rng, Topology &t) {
  auto key = some_key(rng, t, bounded);
  if (!key)
    return std::nullopt;
  Item wrong;
  if (key->type == Type::number) {
    double least = key->numbers.least;
    wrong = Item::of(key->numbers.above ? least : least - 1);
  } else {
    IntegerRange all;
    bool above = key->integers.most != all.most && (key->integers.least == all.least || rng.percent(50));
    wrong = Item::of(above ? key->integers.most + 1 : key->integers.least - 1);
    if (key->type == Type::integers || key->type == Type::integer_rows)
      wrong = Item::of(std::vector<int64_t>{key->integers.least, wrong.integer});
  }
  t.document.set(key->section, key->key, wrong);
  return Keys{{key->section, key->key}};
}

std::optional<Keys> unknown_choice(Rng &rng, Topology &t) {
  auto key = some_key(rng, t, [](const LanguageKey &each) { return each.type == Type::choice; });
  if (!key)
    return std::nullopt;
  t.document.set(key->section, key->key, Item::of(rng.of(key->choices) + "x"));
  return Keys{{key->section, key->key}};
}

std::optional<Keys> unknown_fusion(Rng &rng, Topology &t) {
  t.document.set(
      "schedule", "fuse",
      rng.of<Item>({Item::raw("[\"mega-mo\"]"), Item::raw("[\"qkv\", \"qkv\"]"), Item::of("all")}));
  return Keys{{"schedule", "fuse"}};
}

// A section that is there without a key it needs.
std::optional<Keys> missing_key(Rng &rng, Topology &t) {
  bool shipped_model = !t.used.model.use->empty(), shipped_machine = !t.used.machine.use->empty();
  auto key = some_key(rng, t, [&](const LanguageKey &each) {
    bool used = (each.section.starts_with("model") && shipped_model) ||
                (each.section.starts_with("machine") && shipped_machine);
    return each.required && !each.section.empty() && !used;
  });
  if (!key)
    return std::nullopt;
  std::vector<std::string> siblings;
  for (const Table &table : t.document.tables)
    if (table.name == key->section)
      for (const Entry &entry : table.entries)
        siblings.push_back(entry.key);
  if (siblings.size() < 2)
    return std::nullopt; // the section would be empty, which is another fault
  t.document.erase(key->section, key->key);
  return Keys{{key->section, ""}};
}

std::optional<Keys> twice(Rng &rng, Topology &t) {
  auto key = some_key(rng, t, [](const LanguageKey &) { return true; });
  t.document.append(key->section, key->key, key->value);
  return Keys{{key->section, key->key}};
}

std::optional<Keys> broken_syntax(Rng &rng, Topology &t) {
  auto key = some_key(rng, t, [](const LanguageKey &) { return true; });
  t.document.set(key->section, key->key,
                 Item::raw(rng.of<std::string>({"@", "1 2", "[1, 2 3]", "\"open", "= 1", "nul"})));
  return Keys{{key->section, key->key}};
}

std::optional<Keys> unknown_name(Rng &rng, Topology &t) {
  KeyName key = rng.of<KeyName>({{"", "layout"}, {"model", "use"}, {"machine", "use"}});
  if (!t.document.has(key.first, key.second))
    key = {"", "layout"};
  t.document.set(key.first, key.second,
                 Item::of(rng.of<std::string>({"deepinfr", "no-such", "", "a/b.toml"})));
  return Keys{key};
}

// ---- axes and groups as words ---------------------------------------------------------------------------

std::optional<Keys> unknown_axis(Rng &rng, Topology &t) {
  std::string wrong = rng.of<std::string>({"epp", "dpx", "moetp", "pp2"});
  t.document.set("axes", wrong, Item::of(int64_t{1}));
  return Keys{{"axes", wrong}};
}

std::optional<Keys> unknown_factor(Rng &, Topology &t) {
  t.document.set("axes", "enp", Item::of(std::vector<std::string>{"dp", "nowhere"}));
  return Keys{{"axes", "enp"}};
}

std::optional<Keys> repeated_factor(Rng &, Topology &t) {
  t.document.set("axes", "enp", Item::of(std::vector<std::string>{"dp", "dp"}));
  return Keys{{"axes", "enp"}};
}

std::optional<Keys> cycle(Rng &, Topology &t) {
  t.document.set("axes", "dp", Item::of(std::vector<std::string>{"ep"}));
  t.document.set("axes", "ep", Item::of(std::vector<std::string>{"dp"}));
  return Keys{{"axes", "dp"}, {"axes", "ep"}};
}

std::optional<Keys> wrong_axis_size(Rng &rng, Topology &t) {
  t.document.set("axes", "ep",
                 rng.of<Item>({Item::of(2.0), Item::of("2"), Item::of(true), Item::raw("{ size = 2 }")}));
  return Keys{{"axes", "ep"}};
}

std::optional<Keys> axis_out_of_range(Rng &rng, Topology &t) {
  std::string axis = rng.of<std::string>({"dp", "ep", "enp"});
  t.document.set("axes", axis, Item::of(rng.one_of({0, -1, (int64_t{1} << 31) + 1})));
  return Keys{{"axes", axis}};
}

std::optional<Keys> empty_list(Rng &rng, Topology &t) {
  if (rng.percent(50)) {
    t.document.set("group", "mine", Item::raw("[]"));
    return Keys{{"group", "mine"}};
  }
  t.document.set("axes", "enp", Item::raw("[]"));
  return Keys{{"axes", "enp"}};
}

std::optional<Keys> bad_group_name(Rng &rng, Topology &t) {
  std::string wrong = rng.of<std::string>({"1st", "a-b"});
  t.document.set("group", wrong, Item::of("ranks -> 1 ranks"));
  return Keys{{"group", wrong}};
}

// ---- patterns -------------------------------------------------------------------------------------------

Mutation pattern(std::string name, std::vector<std::string> codes, Item value) {
  return {"pattern-" + name, std::move(codes), [value](Rng &, Topology &t) -> std::optional<Keys> {
            t.document.set("group", "mine", value);
            return Keys{{"group", "mine"}};
          }};
}

// A size that does not divide the world.
std::optional<Keys> remainder(Rng &, Topology &t) {
  int64_t part = 2;
  while (t.world % part == 0)
    ++part;
  t.document.set("axes", "share", Item::of(part));
  t.document.set("group", "mine", Item::of("(rest share) -> rest share"));
  return Keys{{"axes", "share"}, {"group", "mine"}};
}

} // namespace

std::vector<Mutation> language_mutations() {
  return {
      {"misspelt-key", {"unknown-key"}, misspelt_key},
      {"unknown-section", {"unknown-section"}, unknown_section},
      {"wrong-type", {"wrong-type"}, wrong_type},
      {"out-of-range", {"out-of-range", "unsupported-version"}, out_of_range},
      {"unknown-choice", {"unknown-choice"}, unknown_choice},
      {"unknown-fusion", {"unknown-choice", "wrong-type"}, unknown_fusion},
      {"missing-key", {"missing-key"}, missing_key},
      {"duplicate-key", {"toml-syntax"}, twice},
      {"toml-syntax", {"toml-syntax"}, broken_syntax},
      {"unknown-name", {"unknown-layout", "unknown-model", "unknown-machine"}, unknown_name},
      {"unknown-axis", {"unknown-axis"}, unknown_axis},
      {"unknown-factor", {"unknown-axis"}, unknown_factor},
      {"repeated-factor", {"repeated-axis"}, repeated_factor},
      {"axis-cycle", {"axis-cycle"}, cycle},
      {"axis-type", {"wrong-type"}, wrong_axis_size},
      {"axis-range", {"out-of-range"}, axis_out_of_range},
      {"empty-list", {"empty-list"}, empty_list},
      {"group-name", {"bad-name"}, bad_group_name},
      {"pattern-remainder", {"not-divisible"}, remainder},
      pattern("arrow", {"pattern-missing-arrow"}, Item::of("(rest ep) rest ep")),
      pattern("two-arrows", {"pattern-repeated-arrow"}, Item::of("(rest ep) -> rest -> ep")),
      pattern("parenthesis", {"pattern-unbalanced-parenthesis"}, Item::of("(rest ep -> rest ep")),
      pattern("nested", {"pattern-nested-parentheses"}, Item::of("(rest (ep)) -> rest ep")),
      pattern("repeated", {"pattern-repeated-axis"}, Item::of("(rest ep ep) -> rest ep")),
      pattern("one-sided", {"pattern-one-sided-axis"}, Item::of("(rest ep) -> rest 1")),
      pattern("right-side", {"group-right-side"}, Item::of("(rest ep) -> (rest ep)")),
      pattern("three-sides", {"group-right-side"}, Item::of("(a b ep) -> a b ep")),
      pattern("left-side", {"group-left-side"}, Item::of("rest ep -> rest ep")),
      pattern("two-unsized", {"size-unknown"}, Item::of("(rest other ep) -> (rest other) ep")),
      pattern("ellipsis", {"group-ellipsis"}, Item::of("... -> ... 1")),
      pattern("character", {"pattern-bad-character"}, Item::of("(rest; ep) -> rest ep")),
      pattern("second", {"dim-count"},
              Item::of(std::vector<std::string>{"(rest ep) -> rest ep", "(a b) -> a b"})),
  };
}

} // namespace paratope::random
