// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dsl/toml/schema.h"
#include "dsl/toml/spec_values.h"

namespace paratope {
namespace {

using nlohmann::json;

const json &property(const json &schema, const std::string &dotted) {
  const json *at = &schema;
  for (size_t begin = 0; begin <= dotted.size();) {
    const size_t end = std::min(dotted.find('.', begin), dotted.size());
    at = &at->at("properties").at(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return *at;
}

TEST(Schema, has_every_key_that_is_described) {
  const json schema = json_schema(FileKind::topology);
  for (const auto &[key, value] : values_of(TopologySpec{}))
    EXPECT_FALSE(property(schema, key).at("description").get<std::string>().empty()) << key;
}

void expect_closed(const json &schema, const std::string &where) {
  if (!schema.contains("properties"))
    return;
  EXPECT_EQ(schema.at("additionalProperties"), false) << where;
  for (const auto &[key, inner] : schema.at("properties").items())
    expect_closed(inner, where + "." + key);
}

TEST(Schema, is_a_closed_world) {
  for (FileKind kind : {FileKind::topology, FileKind::layout, FileKind::model, FileKind::machine})
    expect_closed(json_schema(kind), "file");
  expect_closed(json_schema(FileKind::topology)["$defs"]["variant"], "variant");
}

TEST(Schema, says_what_is_required) {
  const json topology = json_schema(FileKind::topology);
  EXPECT_EQ(topology.at("required"), (json{"topology", "name", "layout", "machine", "model"}));
  EXPECT_EQ(property(topology, "machine").at("anyOf")[0], (json{{"required", {"use"}}}));
  EXPECT_EQ(property(topology, "machine.gpu").at("required"), (json{"name", "memory_gb", "memory_gb_per_s"}));
  const json &variant = topology.at("$defs").at("variant");
  EXPECT_FALSE(variant.contains("required"));
  EXPECT_FALSE(variant.at("properties").contains("topology"));
  const json machine = json_schema(FileKind::machine);
  EXPECT_FALSE(machine.at("properties").contains("use"));
  EXPECT_EQ(machine.at("required"),
            (json{"machine", "name", "gpus_per_node", "scale_up_gpus", "gpu", "scale_up"}));
}

TEST(Schema, has_types_ranges_choices_and_defaults) {
  const json schema = json_schema(FileKind::topology);
  EXPECT_EQ(property(schema, "topology").at("minimum"), 1);
  EXPECT_EQ(property(schema, "topology").at("maximum"), 1);
  EXPECT_EQ(property(schema, "moe.exchange").at("enum"), (json{"auto", "two-stage", "fused", "all-gather"}));
  EXPECT_EQ(property(schema, "moe.exchange").at("default"), "auto");
  EXPECT_EQ(property(schema, "machine.gpu.memory_gb").at("minimum"), 0.001);
  EXPECT_EQ(property(schema, "workload.tokens_per_rank").at("oneOf")[1].at("type"), "array");
  EXPECT_EQ(property(schema, "axes").at("additionalProperties").at("oneOf")[0].at("minimum"), 1);
  EXPECT_EQ(property(schema, "model.attention.sink").at("type"), "boolean");
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
}

} // namespace
} // namespace paratope
