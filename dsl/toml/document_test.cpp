// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dsl/toml/document.h"
#include "dsl/toml/merge.h"
#include "dsl/toml/settings.h"

namespace paratope {
namespace {

Value parse(const std::string &text) {
  Diagnostics diagnostics;
  std::optional<Value> document = parse_document(text, "f", diagnostics);
  EXPECT_TRUE(document) << (diagnostics.all().empty() ? "" : diagnostics.all()[0].message);
  return document.value_or(Value{});
}

std::string code_of(const std::string &text, SourceRange *where = nullptr) {
  Diagnostics diagnostics;
  EXPECT_FALSE(parse_document(text, "f", diagnostics));
  EXPECT_EQ(diagnostics.all().size(), 1u);
  if (where)
    *where = diagnostics.all()[0].where;
  return diagnostics.all()[0].code;
}

TEST(Document, keeps_the_order_of_the_file) {
  const Value document = parse("z = 1\n[b]\ny = 2\nx = 3\n[a]\n");
  ASSERT_EQ(document.entries.size(), 3u);
  EXPECT_EQ(document.entries[0].key, "z");
  EXPECT_EQ(document.entries[1].key, "b");
  EXPECT_EQ(document.entries[1].value.entries[0].key, "y");
  EXPECT_EQ(document.entries[2].key, "a");
}

TEST(Document, places_are_bytes) {
  const Value document = parse("# é\naxes = { dp = 64 }  # 日\n[machine.gpu] # x\n\"k é\" = [\"é\", 1.5]\n");
  const Entry &axes = document.entries[0];
  EXPECT_EQ(axes.where, (SourceRange{"f", 2, 1, 5}));
  EXPECT_EQ(axes.value.where, (SourceRange{"f", 2, 8, 19}));
  EXPECT_EQ(axes.value.entries[0].where, (SourceRange{"f", 2, 10, 12}));
  EXPECT_EQ(axes.value.entries[0].value.where, (SourceRange{"f", 2, 15, 17}));
  const Entry &machine = document.entries[1];
  EXPECT_EQ(machine.value.where, (SourceRange{"f", 3, 1, 14}));
  const Entry &list = machine.value.entries[0].value.entries[0];
  EXPECT_EQ(list.key, "k é");
  EXPECT_EQ(list.where, (SourceRange{"f", 4, 1, 7}));
  EXPECT_EQ(list.value.items[0].where, (SourceRange{"f", 4, 11, 15}));
  EXPECT_EQ(list.value.items[0].inside, (SourceRange{"f", 4, 12, 14}));
  EXPECT_EQ(list.value.items[1].where, (SourceRange{"f", 4, 17, 20}));
}

TEST(Document, a_byte_order_mark_and_crlf_change_no_place) {
  const Value document = parse("\xEF\xBB\xBF"
                               "a = 1\r\nb = \"x\"\r\n");
  EXPECT_EQ(document.entries[0].where, (SourceRange{"f", 1, 1, 2}));
  EXPECT_EQ(document.entries[1].value.where, (SourceRange{"f", 2, 5, 8}));
  EXPECT_EQ(document.entries[1].value.text, "x");
}

TEST(Document, only_a_plain_string_has_an_inside) {
  const Value document =
      parse("a = \"x y\"\nb = 'x y'\nc = \"x\\u0020y\"\nd = \"\"\"x y\"\"\"\ne = \"\"\"x\ny\"\"\"\n");
  EXPECT_EQ(document.find("a")->value.inside, (SourceRange{"f", 1, 6, 9}));
  EXPECT_EQ(document.find("b")->value.inside, (SourceRange{"f", 2, 6, 9}));
  for (const char *key : {"c", "d", "e"})
    EXPECT_EQ(document.find(key)->value.inside, document.find(key)->value.where) << key;
  EXPECT_EQ(document.find("e")->value.where, (SourceRange{"f", 5, 5, 9})); // of several lines, the first
}

TEST(Document, knows_every_kind) {
  const Value document = parse(
      "s = ''\ni = -0\nn = inf\nb = true\nd = 2020-01-01\nt = 10:00:00\na = []\no = {}\nh = 0xFF\n[[l]]\n");
  auto kind = [&](const char *key) { return document.find(key)->value.kind; };
  EXPECT_EQ(kind("s"), Value::Kind::string);
  EXPECT_EQ(kind("i"), Value::Kind::integer);
  EXPECT_EQ(kind("n"), Value::Kind::number);
  EXPECT_EQ(kind("b"), Value::Kind::boolean);
  EXPECT_EQ(kind("d"), Value::Kind::date);
  EXPECT_EQ(kind("t"), Value::Kind::date);
  EXPECT_EQ(kind("a"), Value::Kind::array);
  EXPECT_EQ(kind("o"), Value::Kind::table);
  EXPECT_EQ(kind("l"), Value::Kind::array);
  EXPECT_EQ(document.find("h")->value.integer, 255);
  EXPECT_EQ(document.find("nothing"), nullptr);
}

TEST(Document, empty_texts_are_empty_tables) {
  EXPECT_TRUE(parse("").entries.empty());
  EXPECT_TRUE(parse("\xEF\xBB\xBF").entries.empty());
  EXPECT_TRUE(parse("# only a comment").entries.empty());
}

TEST(Document, refuses_what_it_cannot_trust) {
  SourceRange where;
  EXPECT_EQ(code_of("a = 1\nb = \"\xC3\x28\"\n", &where), "not-utf8");
  EXPECT_EQ(where, (SourceRange{"f", 2, 6, 7}));
  EXPECT_EQ(code_of("a = 99999999999999999999\n"), "toml-syntax");
  EXPECT_EQ(code_of("a = 1\na = 2\n", &where), "toml-syntax");
  EXPECT_EQ(where.line, 2);
  EXPECT_EQ(code_of(std::string("a = 1\0", 6)), "toml-syntax");
  EXPECT_EQ(code_of("a = 1\rb = 2\n"), "toml-syntax");
  EXPECT_EQ(code_of("é = 1 2\n"), "toml-syntax");
  for (const char *cut :
       {"[", "[\n", "[=", "[[", "[[\n", "[a.", "[a.\n", "a.", "a.=1", "a = {\n", "a = {=", "a = {b.}"})
    EXPECT_EQ(code_of(cut), "toml-syntax") << cut;
  EXPECT_EQ(code_of(std::string(17 << 20, '\n')), "file-too-large");
}

TEST(Document, columns_of_syntax_errors_are_bytes_too) {
  SourceRange where;
  EXPECT_EQ(code_of("a = \"é\" 1\n", &where), "toml-syntax");
  EXPECT_EQ(where.column, 10);
}

TEST(Document, characters_beyond_ascii_stand_in_strings_and_comments_only) {
  // Every block that toml++ 3.3 cannot look at: Latin, Cyrillic, Arabic presentation forms, a byte order mark
  // inside.
  for (const char *stray : {"é", "я", "日", "\xEF\xBB\x80", "\xEF\xBB\xBF", "\xC2\xA0", "\xF0\x9F\x98\x80"}) {
    const std::string c = stray;
    for (const char *around : {"x = 1\n{} = 1\n", "x = 1\na{} = 1\n", "x = 1\na = {}\n", "x = 1\na = 1{}\n",
                               "x = 1\n[a{}]\n", "x = 1\na = [{}]\n"}) {
      const std::string text = fmt::format(fmt::runtime(around), c);
      SourceRange where;
      EXPECT_EQ(code_of(text, &where), "toml-syntax") << text;
      EXPECT_EQ(where.line, 2) << text;
      EXPECT_EQ(static_cast<size_t>(where.column), text.find(c) - 5) << text;
    }
    const Value fine = parse(fmt::format("# {0}\n\"{0}\" = '{0}' # {0}\nb = \"\"\"a\"\"\"\" # {0}\n", c));
    EXPECT_EQ(fine.entries.at(0).value.text, c);
    EXPECT_EQ(fine.entries.at(1).value.text, "a\"");
  }
  SourceRange where;
  EXPECT_EQ(code_of("a = = 1\né = 1\n", &where), "toml-syntax");
  EXPECT_EQ(where.line, 1); // the first error, not the first stray character
}

std::string repeated(const std::string &part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += part;
  return text;
}

TEST(Document, depth_is_bounded) {
  EXPECT_EQ(code_of("[" + repeated("a.", 100000) + "b]\n"), "nested-too-deep");
  EXPECT_EQ(code_of("x = 1 # it's\n" + repeated("\"a\" . ", 100000) + "b = 1\n"), "nested-too-deep");
  EXPECT_EQ(code_of("x = { " + repeated("a.", 100000) + "b = 1 }\n"), "nested-too-deep");
  EXPECT_EQ(code_of("s = \"unclosed\n" + repeated("a.", 100000) + "b = 1\n"), "nested-too-deep");
  EXPECT_EQ(code_of("a = " + repeated("[", 100000)), "toml-syntax");
  EXPECT_EQ(code_of("a = " + repeated("{a=", 100000)), "toml-syntax");
  const Value dots_in_a_string = parse("s = \"" + repeated(".", 1000) + "\" # " + repeated(".", 1000) + "\n");
  EXPECT_EQ(dots_in_a_string.entries[0].value.text.size(), 1000u);
  EXPECT_EQ(parse("s = '''\n" + repeated("a.", 1000) + "'''\nt = \"\\\"" + repeated(".", 99) + "\"\n")
                .entries.size(),
            2u);
}

TEST(Document, a_line_of_a_megabyte_takes_one_pass) {
  const Value document = parse("a = [\"é\", " + repeated("1, ", 300000) + "]\n");
  EXPECT_EQ(document.entries[0].value.items.size(), 300001u);
  EXPECT_EQ(document.entries[0].value.items.back().where.column, 12 + 3 * 299999);
}

TEST(Merge, tables_by_key_and_the_rest_by_replacing) {
  Value base = parse("a = 1\n[t]\nx = 1\ny = [1, 2]\n");
  lay_over(base, parse("t = { y = [3], z = 4 }\nb = 2\n"));
  EXPECT_TRUE(same_value(base, parse("a = 1\nb = 2\n[t]\nx = 1\ny = [3]\nz = 4\n")));
  EXPECT_FALSE(same_value(base, parse("a = 1\nb = 2\n[t]\nx = 1\ny = [3]\nz = 4.0\n")));
}

TEST(Merge, a_conflict_names_both) {
  const Value a = parse("[t]\nx = 1\nsame = [1]\n"), b = parse("t.x = 2\nt.same = [1]\n");
  Diagnostics diagnostics;
  check_conflicts({{"a", &a}, {"b", &b}}, "variant-conflict", diagnostics);
  ASSERT_EQ(diagnostics.all().size(), 1u);
  const Diagnostic &conflict = diagnostics.all()[0];
  EXPECT_EQ(conflict.message, "a and b set t.x to different values: got the integer 1 and the integer 2");
  EXPECT_EQ(conflict.where, (SourceRange{"f", 1, 7, 8}));
  EXPECT_EQ(conflict.notes[0].where, (SourceRange{"f", 2, 5, 6}));
}

Value setting(const std::string &text) {
  Diagnostics diagnostics;
  return parse_setting(text, 3, diagnostics).value_or(Value{});
}

TEST(Setting, is_toml_or_a_bare_word) {
  EXPECT_TRUE(same_value(setting("a.b=1"), parse("a.b = 1")));
  EXPECT_TRUE(same_value(setting("a = [1, 2] "), parse("a = [1, 2]")));
  EXPECT_TRUE(same_value(setting("a.b=true"), parse("a.b = true")));
  EXPECT_TRUE(same_value(setting("a.b=h200-nvl8-ib400"), parse("a.b = 'h200-nvl8-ib400'")));
  EXPECT_TRUE(same_value(setting("a=./x.json"), parse("a = './x.json'")));
  EXPECT_TRUE(same_value(setting("\"a=b\".c=x=y"), parse("'a=b'.c = 'x=y'")));
  EXPECT_EQ(setting("a.b = word").entries[0].value.entries[0].value.where, (SourceRange{"--set", 3, 7, 11}));
  EXPECT_EQ(setting("a.b = 12").entries[0].value.entries[0].value.where, (SourceRange{"--set", 3, 7, 9}));
}

TEST(Setting, refuses_what_it_cannot_read) {
  for (const char *text : {"", "a", "=1", "a=", "a=1\nb=2", "a b=1", "a=1x", "[t]=1", "a..b=x", "a=[1"}) {
    Diagnostics diagnostics;
    EXPECT_FALSE(parse_setting(text, 1, diagnostics)) << text;
    ASSERT_EQ(diagnostics.all().size(), 1u) << text;
    EXPECT_EQ(diagnostics.all()[0].where.file, "--set");
  }
}

} // namespace
} // namespace paratope
