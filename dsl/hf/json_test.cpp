// SPDX-License-Identifier: Apache-2.0
#include "dsl/hf/json.h"

#include <gtest/gtest.h>

namespace paratope::hf {
namespace {

JsonValue parsed(std::string_view text) {
  Diagnostics diagnostics;
  std::optional<JsonValue> value = parse_json(text, "a.json", diagnostics);
  EXPECT_TRUE(value) << text << ": " << (diagnostics.all().empty() ? "" : diagnostics.all()[0].message);
  return value.value_or(JsonValue{});
}

// line:column-end_column
std::string at(const SourceRange &where) {
  return std::to_string(where.line) + ":" + std::to_string(where.column) + "-" +
         std::to_string(where.end_column);
}

TEST(Json, EveryKindOfValueKnowsItsPlace) {
  const JsonValue root =
      parsed("{\"a\": 12,\n \"b\" : -1.5e3 ,\n\t\"c\": [true, null,\"x\"], \"d\": {\"e\":0}}");
  EXPECT_EQ(at(root.where), "1:1-2");
  ASSERT_EQ(root.entries.size(), 4u);
  EXPECT_EQ(at(root.entries[0].where), "1:2-5");
  EXPECT_EQ(at(root.entries[0].value.where), "1:7-9");
  EXPECT_EQ(root.entries[0].value.integer, 12);
  EXPECT_EQ(at(root.entries[1].value.where), "2:8-14");
  EXPECT_EQ(root.entries[1].value.number, -1500);
  const JsonValue &list = root.entries[2].value;
  EXPECT_EQ(at(list.where), "3:7-8");
  EXPECT_EQ(at(list.items.at(0).where), "3:8-12");
  EXPECT_EQ(at(list.items.at(1).where), "3:14-18");
  EXPECT_EQ(at(list.items.at(2).where), "3:19-22");
  EXPECT_EQ(at(root.entries[3].value.entries.at(0).value.where), "3:35-36");
}

TEST(Json, ANumberAtTheEndOfTheTextEndsThere) {
  EXPECT_EQ(at(parsed("71").where), "1:1-3");
  EXPECT_EQ(at(parsed(" 7 ").where), "1:2-3");
}

TEST(Json, StringsWithQuotesAndBackslashesAreFoundWhole) {
  const JsonValue list = parsed(R"(["a\"b", "\\", "\\\"", ""])");
  EXPECT_EQ(at(list.items[0].where), "1:2-8");
  EXPECT_EQ(at(list.items[1].where), "1:10-14");
  EXPECT_EQ(at(list.items[2].where), "1:16-22");
  EXPECT_EQ(at(list.items[3].where), "1:24-26");
  EXPECT_EQ(list.items[0].text, "a\"b");
}

TEST(Json, AnIntegerThatDoesNotFitIsANumber) {
  EXPECT_EQ(parsed("18446744073709551615").kind, JsonValue::Kind::number);
  EXPECT_EQ(parsed("9223372036854775807").integer, std::numeric_limits<int64_t>::max());
}

TEST(Json, FaultsHaveAPlace) {
  struct Case {
    std::string text, code, where;
  };
  const Case cases[] = {
      {"{\"a\": 1,\n \"b\" 2}", "json-syntax", "2:6-7"},
      {"", "json-syntax", "1:1-1"},
      {"{\"a\": 1} x", "json-syntax", "1:10-11"},
      {"{\"a\": 1, \"a\": 2}", "duplicate-key", "1:10-13"},
      {std::string(70, '['), "nested-too-deep", "1:65-66"},
      {"[1e999]", "json-syntax", "1:6-7"},
      {"[\"\xff\"]", "json-syntax", "1:3-4"},
  };
  for (const Case &each : cases) {
    Diagnostics diagnostics;
    EXPECT_FALSE(parse_json(each.text, "a.json", diagnostics)) << each.text;
    ASSERT_EQ(diagnostics.all().size(), 1u) << each.text;
    EXPECT_EQ(diagnostics.all()[0].code, each.code) << each.text;
    EXPECT_EQ(at(diagnostics.all()[0].where), each.where)
        << each.text << ": " << diagnostics.all()[0].message;
  }
}

TEST(Json, EqualValuesAreEqualWhateverTheirSpelling) {
  EXPECT_TRUE(same_value(parsed("[1, {\"a\": 2.0, \"b\": null}]"), parsed("[1.0,{\"b\":null,\"a\":2}]")));
  EXPECT_FALSE(same_value(parsed("[1]"), parsed("[1, 1]")));
  EXPECT_FALSE(same_value(parsed("\"1\""), parsed("1")));
  EXPECT_FALSE(same_value(parsed("{\"a\": 1}"), parsed("{\"b\": 1}")));
}

TEST(Json, LongValuesAreShownShort) {
  EXPECT_EQ(shown(parsed("{\"type\": \"yarn\", \"factor\": 40}")), "{type: \"yarn\", factor: 40}");
  EXPECT_LT(shown(parsed("[\"" + std::string(500, '1') + "\"]")).size(), 60u);
}

} // namespace
} // namespace paratope::hf
