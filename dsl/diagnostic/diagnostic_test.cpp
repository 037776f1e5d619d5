// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dsl/diagnostic/diagnostic.h"
#include "dsl/diagnostic/nearest.h"
#include "dsl/diagnostic/render.h"
#include "dsl/diagnostic/utf8.h"

namespace paratope {
namespace {

// Renders one error over one line of text.
std::string picture(const std::string &line, int64_t column, int64_t end_column, bool colour = false) {
  Diagnostics diagnostics;
  diagnostics.add_source("f", line + "\n");
  diagnostics.error("code", {"f", 1, column, end_column}, "message");
  std::ostringstream out;
  render(out, diagnostics, {.colour = colour});
  return out.str();
}

std::string picture_of(const std::string &source, const std::string &carets, int64_t column) {
  return "f:1:" + std::to_string(column) + ": error: message [code]\n    1 | " + source + "\n      | " +
         carets + "\n";
}

TEST(Render, underlines_the_range) {
  EXPECT_EQ(picture("ep = 60", 6, 8), picture_of("ep = 60", "     ^~", 6));
}

TEST(Render, a_point_is_one_caret) {
  EXPECT_EQ(picture("ep = 60", 6, 6), picture_of("ep = 60", "     ^", 6));
  EXPECT_EQ(picture("ep =", 5, 5), picture_of("ep =", "    ^", 5)); // something is missing at the end
  EXPECT_EQ(picture("", 1, 1), picture_of("", "^", 1));
}

TEST(Render, a_range_past_the_line_is_cut) {
  EXPECT_EQ(picture("ep = 60", 6, 99), picture_of("ep = 60", "     ^~", 6));
  EXPECT_EQ(picture("ep", 50, 60), picture_of("ep", "  ^", 50));
}

TEST(Render, tabs_are_spaces_to_the_next_stop) {
  EXPECT_EQ(picture("\tep\t= 60", 7, 9), picture_of("    ep  = 60", "          ^~", 7));
  EXPECT_EQ(picture("\tx", 1, 2), picture_of("    x", "^~~~", 1)); // the tab itself
}

TEST(Render, utf8_keeps_the_carets_aligned) {
  // é is two bytes and one column; 日 is three bytes and two columns; the combining acute is none.
  EXPECT_EQ(picture("é = 1", 6, 7), picture_of("é = 1", "    ^", 6));
  EXPECT_EQ(picture("\"日本\" x", 10, 11), picture_of("\"日本\" x", "       ^", 10));
  EXPECT_EQ(picture("\"日本\"", 2, 8), picture_of("\"日本\"", " ^~~~", 2));
  EXPECT_EQ(picture("e\xCC\x81 = 1", 7, 8), picture_of("e\xCC\x81 = 1", "    ^", 7));
}

TEST(Render, a_file_cannot_drive_the_terminal) {
  EXPECT_EQ(picture("a\x1b[31m = 1", 1, 2), picture_of("a\\x1b[31m = 1", "^", 1));
  EXPECT_EQ(picture("a\xff\xfe = 1", 2, 3), picture_of("a\\xff\\xfe = 1", " ^~~~", 2));
  Diagnostics diagnostics;
  diagnostics.error("code", {}, "got 'a\n\x1b[0m'");
  std::ostringstream out;
  render(out, diagnostics, {});
  EXPECT_EQ(out.str(), "error: got 'a\\n\\x1b[0m' [code]\n");
}

TEST(Render, long_lines_show_the_stretch_around_the_range) {
  const std::string line = std::string(10000, 'a') + "BAD" + std::string(10000, 'b');
  const std::string shown = picture(line, 10001, 10004);
  EXPECT_LT(shown.size(), 600u);
  EXPECT_NE(shown.find("aBADb"), std::string::npos);
  std::istringstream lines(shown);
  std::string head, source, carets;
  std::getline(lines, head);
  std::getline(lines, source);
  std::getline(lines, carets);
  // "…" is three bytes and one column.
  EXPECT_EQ(source.find("BAD") - 2, carets.find("^~~"));
}

TEST(Render, reads_files_with_crlf_and_a_byte_order_mark) {
  const std::string file = testing::TempDir() + "paratope_render.toml";
  std::ofstream(file, std::ios::binary) << "\xEF\xBB\xBF" << "ep = 1\r\ndp = 2\r\n";
  Diagnostics diagnostics;
  diagnostics.error("code", {file, 1, 6, 7}, "first").notes.push_back({"second", {file, 2, 6, 7}});
  std::ostringstream out;
  render(out, diagnostics, {});
  EXPECT_EQ(out.str(), file + ":1:6: error: first [code]\n    1 | ep = 1\n      |      ^\n" + file +
                           ":2:6: note: second\n    2 | dp = 2\n      |      ^\n");
}

TEST(Render, without_the_file_there_is_no_picture) {
  Diagnostics diagnostics;
  diagnostics.error("gone", {"/no/such/file.toml", 3, 1, 2}, "message").fix = "do this";
  diagnostics.add(Severity::warning, "whole", {"/no/such/file.toml", 0, 0, 0}, "about the file");
  diagnostics.add(Severity::remark, "", {}, "about nothing");
  std::ostringstream out;
  render(out, diagnostics, {});
  EXPECT_EQ(out.str(), "/no/such/file.toml:3:1: error: message [gone]\n"
                       "fix: do this\n"
                       "/no/such/file.toml: warning: about the file [whole]\n"
                       "remark: about nothing\n");
}

TEST(Render, colours_only_when_asked) {
  EXPECT_EQ(picture("ep = 60", 6, 8).find('\033'), std::string::npos);
  const std::string coloured = picture("ep = 60", 6, 8, true);
  EXPECT_NE(coloured.find("\033[1;31merror:\033[0m"), std::string::npos);
  EXPECT_NE(coloured.find("\033[1;31m     ^~\033[0m"), std::string::npos);
}

TEST(Json, has_every_field_and_null_where_nothing_is_known) {
  Diagnostics diagnostics;
  Diagnostic &error = diagnostics.error("not-divisible", {"a.toml", 14, 6, 8}, "message");
  error.notes.push_back({"because", {"b.toml", 0, 0, 0}});
  error.fix = "write 64";
  diagnostics.add(Severity::remark, "why", {}, "other");
  const nlohmann::json expected = nlohmann::json::parse(R"([
    {"severity": "error", "code": "not-divisible", "message": "message", "file": "a.toml", "line": 14, "column": 6,
     "end_column": 8, "fix": "write 64",
     "notes": [{"message": "because", "file": "b.toml", "line": null, "column": null, "end_column": null}]},
    {"severity": "remark", "code": "why", "message": "other", "file": null, "line": null, "column": null,
     "end_column": null, "fix": null, "notes": []}])");
  EXPECT_EQ(to_json(diagnostics), expected);
}

TEST(Json, is_utf8_whatever_the_message_quotes) {
  Diagnostics diagnostics;
  diagnostics.error("c", {"f\xff", 1, 1, 1}, "got '\xff'");
  EXPECT_EQ(nlohmann::json::parse(to_json(diagnostics).dump())[0]["message"], "got '\xEF\xBF\xBD'");
}

TEST(Diagnostics, counts_by_severity) {
  Diagnostics diagnostics;
  EXPECT_FALSE(diagnostics.has_errors());
  diagnostics.add(Severity::warning, "w", {}, "");
  EXPECT_FALSE(diagnostics.has_errors());
  diagnostics.error("e", {}, "");
  EXPECT_TRUE(diagnostics.has_errors());
  EXPECT_EQ(diagnostics.count(Severity::warning), 1u);
  EXPECT_EQ(diagnostics.count(Severity::remark), 0u);
}

std::string guess(const std::string &word, std::vector<std::string> candidates) {
  return nearest(word, candidates).value_or("");
}

TEST(Nearest, finds_one_slip) {
  EXPECT_EQ(guess("dispach_dtype", {"exchange", "dispatch_dtype"}), "dispatch_dtype"); // left out
  EXPECT_EQ(guess("noodes", {"nodes", "name"}), "nodes");                              // doubled
  EXPECT_EQ(guess("nodse", {"name", "nodes"}), "nodes");                               // swapped
  EXPECT_EQ(guess("modes", {"nodes"}), "nodes");                                       // replaced
  EXPECT_EQ(guess("dq", {"ep", "dp"}), "dp");
}

TEST(Nearest, case_and_dashes_and_doubled_letters_weigh_half) {
  EXPECT_EQ(guess("two_stage", {"two-stages", "two-stage"}), "two-stage");
  EXPECT_EQ(guess("EP", {"cp", "ep"}), "ep");
  EXPECT_EQ(guess("epp", {"cp", "enp", "ep"}), "ep");
}

TEST(Nearest, is_silent_when_nothing_is_near) {
  EXPECT_EQ(guess("zzz", {"nodes", "name"}), "");
  EXPECT_EQ(guess("x", {"s"}), "");
  EXPECT_EQ(guess("", {"s"}), "");
  EXPECT_EQ(guess("word", {}), "");
  EXPECT_EQ(guess("layout", {"input"}), "");
}

TEST(Nearest, the_first_of_equals_wins) { EXPECT_EQ(guess("ap", {"cp", "dp", "ep"}), "cp"); }

TEST(Nearest, a_word_of_a_million_letters_is_cheap) {
  EXPECT_EQ(guess(std::string(1000000, 'a'), {"axes"}), "");
}

TEST(Utf8, decodes_and_refuses) {
  EXPECT_EQ(decode_utf8("é", 0).code, U'é');
  EXPECT_EQ(decode_utf8("日", 0).bytes, 3u);
  EXPECT_EQ(decode_utf8("\xF0\x9F\x98\x80", 0).code, char32_t{0x1F600});
  for (const char *bad :
       {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8", "\xC3", "\xE6\x97"})
    EXPECT_FALSE(decode_utf8(bad, 0).valid) << printable(bad);
}

} // namespace
} // namespace paratope
