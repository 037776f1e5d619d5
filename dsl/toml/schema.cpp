// SPDX-License-Identifier: Apache-2.0
//
// One object schema a section. Need becomes `required`, except in sections that may `use` a file (either
// `use` or all of the keys) and in variants (nothing is required there).
#include "dsl/toml/schema.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "dsl/spec/describe.h"

namespace paratope {
namespace {

using nlohmann::json;

constexpr int64_t unbounded_low = std::numeric_limits<int64_t>::min();
constexpr int64_t unbounded_high = std::numeric_limits<int64_t>::max();

json integer_schema(const IntegerRange &range) {
  json schema{{"type", "integer"}};
  if (range.least != unbounded_low)
    schema["minimum"] = range.least;
  if (range.most != unbounded_high)
    schema["maximum"] = range.most;
  return schema;
}

json array_of(json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

const json text_schema{{"type", "string"}};

class SchemaWriter final : public FieldVisitor {
public:
  explicit SchemaWriter(bool partial) : partial(partial) {}

  json object() const {
    json schema{{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
    if (partial || required.empty())
      return schema;
    if (properties.contains("use"))
      schema["anyOf"] = sources();
    else
      schema["required"] = required;
    return schema;
  }

  // The ways a section may get its required keys: from a file, or written in place.
  json sources() const {
    json ways = json::array();
    for (const char *source : {"use", "hf"})
      if (properties.contains(source))
        ways.push_back({{"required", json::array({source})}});
    ways.push_back({{"required", required}});
    return ways;
  }

  void add(const std::string &key, json schema, Need need, const char *doc) {
    schema["description"] = doc;
    properties[key] = std::move(schema);
    if (need == Need::required)
      required.push_back(key);
  }

  void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need,
               const char *doc) override {
    json schema = integer_schema(range);
    if (need == Need::optional)
      schema["default"] = *field;
    add(key, schema, need, doc);
  }
  void number(const char *key, Field<double> &field, NumberRange range, Need need, const char *doc) override {
    json schema{{"type", "number"}};
    if (!std::isinf(range.least))
      schema[range.above ? "exclusiveMinimum" : "minimum"] = range.least;
    if (!std::isinf(range.most))
      schema["maximum"] = range.most;
    if (need == Need::optional)
      schema["default"] = *field;
    add(key, schema, need, doc);
  }
  void boolean(const char *key, Field<bool> &field, Need need, const char *doc) override {
    add(key, {{"type", "boolean"}, {"default", *field}}, need, doc);
  }
  void text(const char *key, Field<std::string> &field, Need need, const char *doc) override {
    json schema = text_schema;
    if (!field->empty())
      schema["default"] = *field;
    add(key, schema, need, doc);
  }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
              const char *doc) override {
    json schema{{"type", "string"}, {"enum", choices}};
    if (!field->empty())
      schema["default"] = *field;
    add(key, schema, need, doc);
  }
  void integers(const char *key, Field<std::vector<int64_t>> &, IntegerRange each, Need need,
                const char *doc) override {
    add(key, array_of(integer_schema(each)), need, doc);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &, IntegerRange each, Need need,
                       const char *doc) override {
    json list = array_of(integer_schema(each));
    list["minItems"] = 1;
    add(key, {{"oneOf", json::array({integer_schema(each), list})}}, need, doc);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &, IntegerRange each, Need need,
                    const char *doc) override {
    json row = array_of(integer_schema(each));
    add(key, {{"oneOf", json::array({row, array_of(row)})}}, need, doc);
  }
  void texts(const char *key, Field<std::vector<std::string>> &, Need need, const char *doc) override {
    add(key, array_of(text_schema), need, doc);
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &, Need need,
                 const char *doc) override {
    add(key, array_of(array_of(text_schema)), need, doc);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &, std::vector<std::string> choices,
                       Need need, const char *doc) override {
    json list = array_of({{"enum", choices}});
    list["uniqueItems"] = true;
    add(key, {{"oneOf", json::array({json{{"const", "auto"}}, list})}, {"default", "auto"}}, need, doc);
  }
  void axis_sizes(const char *key, std::vector<NamedAxis> &, const char *doc) override {
    json product = array_of(text_schema);
    product["minItems"] = 1;
    product["uniqueItems"] = true;
    add_named(key, {{"oneOf", json::array({integer_schema({1, int64_t{1} << 31}), product})}}, doc);
  }
  void groups(const char *key, std::vector<NamedGroup> &, const char *doc) override {
    json list = array_of(text_schema);
    list["minItems"] = 1;
    add_named(key, {{"oneOf", json::array({text_schema, list})}}, doc);
  }
  void table(const char *key, Need need, const char *doc,
             const std::function<void(FieldVisitor &)> &body) override {
    SchemaWriter section(partial);
    body(section);
    add(key, section.object(), need, doc);
  }

private:
  // A table whose keys are names the user chooses.
  void add_named(const char *key, json item, const char *doc) {
    json schema{{"type", "object"}, {"additionalProperties", std::move(item)}};
    schema["propertyNames"] = {{"pattern", "^[A-Za-z_][A-Za-z0-9_]*$"}};
    add(key, std::move(schema), Need::optional, doc);
  }

  bool partial;
  json properties = json::object();
  std::vector<std::string> required;
};

template <class Spec> json library_schema(const char *kind) {
  Spec spec;
  Field<int64_t> version;
  SchemaWriter writer(false);
  writer.integer(kind, version, {language_version, language_version}, Need::required,
                 "Version of the language.");
  describe(writer, spec);
  json schema = writer.object();
  for (const char *source : {"use", "hf"}) // a file that is used uses no other
    schema["properties"].erase(source);
  if (schema.contains("anyOf")) {
    schema["required"] = schema["anyOf"].back()["required"]; // written in place: the last way there is
    schema.erase("anyOf");
  }
  return schema;
}

json topology_schema() {
  TopologySpec spec;
  SchemaWriter whole(false), partial(true);
  describe(whole, spec);
  describe(partial, spec);
  json variant = partial.object();
  variant["properties"].erase("topology");
  whole.add("variant", {{"type", "object"}, {"additionalProperties", {{"$ref", "#/$defs/variant"}}}},
            Need::optional, "Overlays by name, selected as FILE#name; each holds what it changes.");
  json schema = whole.object();
  schema["$defs"]["variant"] = std::move(variant);
  return schema;
}

json schema_of(FileKind kind) {
  switch (kind) {
  case FileKind::topology:
    return topology_schema();
  case FileKind::layout:
    return library_schema<LayoutSpec>("layout");
  case FileKind::model:
    return library_schema<ModelSpec>("model");
  case FileKind::machine:
    return library_schema<MachineSpec>("machine");
  }
  return {};
}

} // namespace

nlohmann::json json_schema(FileKind kind) {
  constexpr const char *titles[] = {"Paratope topology", "Paratope layout", "Paratope model",
                                    "Paratope machine"};
  json schema = schema_of(kind);
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = titles[static_cast<int>(kind)];
  return schema;
}

} // namespace paratope
