// SPDX-License-Identifier: Apache-2.0
#include "keys.h"

#include "dsl/spec/describe.h"

namespace paratope::random {

namespace {

using Type = LanguageKey::Type;

class Lister final : public FieldVisitor {
public:
  std::vector<LanguageKey> keys;

  void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need, const char *) override {
    add(key, Type::integer, need, Item::of(*field)).integers = range;
  }
  void number(const char *key, Field<double> &field, NumberRange range, Need need, const char *) override {
    add(key, Type::number, need, Item::of(*field)).numbers = range;
  }
  void boolean(const char *key, Field<bool> &field, Need need, const char *) override {
    add(key, Type::boolean, need, Item::of(*field));
  }
  void text(const char *key, Field<std::string> &field, Need need, const char *) override {
    add(key, Type::text, need, Item::of(*field));
  }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
              const char *) override {
    add(key, Type::choice, need, Item::of(*field)).choices = std::move(choices);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                const char *) override {
    add(key, Type::integers, need, Item::of(*field)).integers = each;
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &field, IntegerRange each, Need need,
                       const char *) override {
    Item value = field->size() == 1 ? Item::of(field->front()) : Item::of(*field);
    add(key, Type::integer_or_list, need, std::move(value)).integers = each;
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange each,
                    Need need, const char *) override {
    add(key, Type::integer_rows, need, Item::of(*field)).integers = each;
  }
  void texts(const char *key, Field<std::vector<std::string>> &field, Need need, const char *) override {
    add(key, Type::texts, need, Item::of(*field));
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &field, Need need,
                 const char *) override {
    add(key, Type::text_rows, need, Item::of(*field));
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &field,
                       std::vector<std::string> choices, Need need, const char *) override {
    bool automatic = field->size() == 1 && field->front() == "auto";
    add(key, Type::auto_or_choices, need, automatic ? Item::of("auto") : Item::of(*field)).choices =
        std::move(choices);
  }
  void axis_sizes(const char *, std::vector<NamedAxis> &, const char *) override {}
  void groups(const char *, std::vector<NamedGroup> &, const char *) override {}
  void table(const char *key, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    std::string outer = section;
    section = section.empty() ? key : section + "." + key;
    body(*this);
    section = outer;
  }

private:
  std::string section;

  LanguageKey &add(const char *key, Type type, Need need, Item value) {
    LanguageKey &added = keys.emplace_back();
    added.section = section;
    added.key = key;
    added.type = type;
    added.required = need == Need::required;
    added.value = std::move(value);
    return added;
  }
};

} // namespace

std::vector<LanguageKey> language_keys(TopologySpec &topology) {
  Lister lister;
  describe(lister, topology);
  return std::move(lister.keys);
}

const LanguageKey *find_key(const std::vector<LanguageKey> &keys, const std::string &section,
                            const std::string &key) {
  for (const LanguageKey &each : keys)
    if (each.section == section && each.key == key)
      return &each;
  return nullptr;
}

} // namespace paratope::random
