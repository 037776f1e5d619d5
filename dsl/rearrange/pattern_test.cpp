// SPDX-License-Identifier: Apache-2.0
#include "dsl/rearrange/pattern.h"

#include <gtest/gtest.h>

namespace paratope {
namespace {

std::string all(const PatternErrors &errors, const std::string &text) {
  std::string shown;
  for (const PatternError &error : errors)
    shown += to_string(error, std::span(&text, 1));
  return shown;
}

Pattern parsed(const std::string &text) {
  PatternErrors errors;
  std::optional<Pattern> pattern = parse_pattern(text, errors);
  EXPECT_TRUE(pattern) << all(errors, text);
  EXPECT_TRUE(errors.empty());
  return pattern.value_or(Pattern{});
}

TEST(Pattern, KeepsPartsAndPlaces) {
  const Pattern pattern = parsed("(replica dp cp) -> 1 dp (replica cp)");
  ASSERT_EQ(pattern.left.dims.size(), 1u);
  const PatternDim &ranks = pattern.left.dims[0];
  EXPECT_TRUE(ranks.parenthesised);
  EXPECT_EQ(ranks.begin, 0);
  EXPECT_EQ(ranks.end, 15);
  ASSERT_EQ(ranks.axes.size(), 3u);
  EXPECT_EQ(ranks.axes[1].name, "dp");
  EXPECT_EQ(ranks.axes[1].begin, 9);
  EXPECT_EQ(ranks.axes[1].end, 11);
  ASSERT_EQ(pattern.right.dims.size(), 3u);
  EXPECT_EQ(pattern.right.dims[0].axes[0].kind, PatternAxis::Kind::one);
  EXPECT_FALSE(pattern.right.dims[1].parenthesised);
  EXPECT_EQ(pattern.right.begin, 19);
}

TEST(Pattern, WhitespaceIsWhatSeparates) {
  // einops takes blanks only and calls a tab an unknown character; editors put tabs and line breaks in, so
  // here they separate like blanks.
  for (const char *text : {"(a b)->b a", " ( a   b ) -> b a ", "(a\tb)\t->\tb\ta", "(a b)\n->\r\n b a"})
    EXPECT_EQ(to_string(parsed(text)), "(a b) -> b a");
}

TEST(Pattern, OneSpellingParsesToItself) {
  for (const char *text :
       {"(a b) -> b a", "... a -> a ...", "a ... -> (a ...)", "1 a -> a 1", "->", "(a 1) -> a"}) {
    const std::string once = to_string(parsed(text));
    EXPECT_EQ(once, text);
    EXPECT_EQ(to_string(parsed(once)), once);
  }
  EXPECT_EQ(to_string(parsed("a -> a ()")), "a -> a 1");
}

TEST(Pattern, InverseExchangesSides) {
  EXPECT_EQ(to_string(inverse(parsed("(a b) c -> c b a")).value()), "c b a -> (a b) c");
  EXPECT_EQ(inverse(parsed("a b c -> a b c"))->right.dims[2].begin, 13);
  EXPECT_FALSE(inverse(parsed("a ... -> (a ...)")));
}

struct Slip {
  const char *text;
  const char *code;
  int64_t begin, end;
  const char *message;
  const char *fix; // "" when there is none
};

// One row for each way to get a pattern wrong: exactly this error, at exactly these bytes.
const Slip slips[] = {
    {"a b", "pattern-missing-arrow", 0, 3, "pattern has no '->'",
     "write what the dims are, '->', and what they become: (a b) -> a b"},
    {"", "pattern-missing-arrow", 0, 0, "pattern has no '->'",
     "write what the dims are, '->', and what they become: (a b) -> a b"},
    {"a -> a -> a", "pattern-repeated-arrow", 7, 9, "pattern has more than one '->'",
     "apply two patterns in turn instead: a list of patterns"},
    {"(a b -> a b", "pattern-unbalanced-parenthesis", 0, 1, "'(' is not closed", "add ')'"},
    {"a b -> (a b", "pattern-unbalanced-parenthesis", 7, 8, "'(' is not closed", "add ')'"},
    {"a b) -> a b", "pattern-unbalanced-parenthesis", 3, 4, "')' without a '(' before it", ""},
    {"(a (b)) c -> a b c", "pattern-nested-parentheses", 3, 4, "parentheses cannot stand inside parentheses",
     "list the axes side by side: (a b c)"},
    {"a b -> (a, b)", "pattern-bad-character", 9, 10, "a pattern cannot contain ','",
     "axes are set apart by blanks, commas are not used"},
    {"a-b -> a b", "pattern-bad-character", 1, 2, "a pattern cannot contain '-'",
     "write an underscore, or a blank"},
    {"a => a", "pattern-bad-character", 2, 4, "a pattern cannot contain '=>'", "the arrow is written '->'"},
    {"a → a", "pattern-bad-character", 2, 5, "a pattern cannot contain '→'", "the arrow is written '->'"},
    {"a - a", "pattern-bad-character", 2, 3, "a pattern cannot contain '-'", "the arrow is written '->'"},
    {"a] -> a", "pattern-bad-character", 1, 2, "a pattern cannot contain ']'",
     "axes are composed with round parentheses"},
    {"a -> a*1", "pattern-bad-character", 6, 7, "a pattern cannot contain '*'",
     "axes are composed with parentheses and blanks: (a b)"},
    {"é -> a", "pattern-bad-character", 0, 2, "a pattern cannot contain 'é'", ""},
    {"\x01 a -> a", "pattern-bad-character", 0, 1, "a pattern cannot contain '\\x01'", ""},
    {"\xff a -> a", "pattern-bad-character", 0, 1, "a pattern cannot contain '\\xff'", ""},
    {"(a a) -> a", "pattern-repeated-axis", 3, 4, "axis stands twice on one side: a", ""},
    {"a b -> a b b", "pattern-repeated-axis", 11, 12, "axis stands twice on one side: b", ""},
    {"a b -> a b c", "pattern-one-sided-axis", 11, 12, "axis stands on one side only: c (right)", ""},
    {"z b a -> b", "pattern-one-sided-axis", 0, 1, "axis stands on one side only: a (left), z (left)", ""},
    {"(edp ep) -> edp pe", "pattern-one-sided-axis", 5, 7,
     "axis stands on one side only: ep (left), pe (right)", "write 'ep' for 'pe'"},
    {"a 4 -> a", "pattern-number", 2, 3, "the only number a pattern can contain is 1, got 4",
     "name the axis, and give the name the size 4"},
    {"a 01 -> a", "pattern-number", 2, 4, "the only number a pattern can contain is 1, got 01",
     "name the axis, and give the name the size 01"},
    {"a _b -> a", "pattern-axis-name", 2, 4, "an axis name cannot start or end with an underscore: _b",
     "write 'b'"},
    {"a b_ -> a", "pattern-axis-name", 2, 4, "an axis name cannot start or end with an underscore: b_",
     "write 'b'"},
    {"a __ -> a", "pattern-axis-name", 2, 4, "an axis name cannot start or end with an underscore: __", ""},
    {"2d -> a", "pattern-axis-name", 0, 2, "an axis name cannot start with a digit: 2d", ""},
    {"a -> a ...", "pattern-one-sided-ellipsis", 7, 10, "'...' stands on the right side only",
     "add '...' to the other side, or remove it"},
    {"a ... -> a", "pattern-one-sided-ellipsis", 2, 5, "'...' stands on the left side only",
     "add '...' to the other side, or remove it"},
    {"... ... -> ...", "pattern-repeated-ellipsis", 4, 7, "'...' can stand once on a side", ""},
    {"(a ...) -> a ...", "pattern-ellipsis-in-parentheses", 3, 6,
     "'...' cannot stand inside parentheses on the left: nothing says how the dim factors", ""},
    {"a .. -> a", "pattern-bad-ellipsis", 2, 4, "an ellipsis is three dots, got 2", "write '...'"},
    {"a ...... -> a", "pattern-bad-ellipsis", 2, 8, "an ellipsis is three dots, got 6", "write '...'"},
};

TEST(Pattern, EverySlipIsOneLocatedError) {
  for (const Slip &slip : slips) {
    PatternErrors errors;
    EXPECT_FALSE(parse_pattern(slip.text, errors)) << slip.text;
    ASSERT_EQ(errors.size(), 1u) << slip.text << "\n" << all(errors, slip.text);
    EXPECT_EQ(errors[0].code, slip.code) << slip.text;
    EXPECT_EQ(errors[0].begin, slip.begin) << slip.text;
    EXPECT_EQ(errors[0].end, slip.end) << slip.text;
    EXPECT_EQ(errors[0].message, slip.message) << slip.text;
    EXPECT_EQ(errors[0].fix, slip.fix) << slip.text;
  }
}

TEST(Pattern, NotesPointAtTheOtherPlaces) {
  PatternErrors errors;
  EXPECT_FALSE(parse_pattern("dp x dp -> x y", errors));
  ASSERT_EQ(errors.size(), 2u); // the repetition does not hide the one-sided axes
  EXPECT_EQ(errors[0].code, "pattern-repeated-axis");
  ASSERT_EQ(errors[0].notes.size(), 1u);
  EXPECT_EQ(errors[0].notes[0].begin, 0);
  EXPECT_EQ(errors[1].message, "axis stands on one side only: dp (left), y (right)");
  ASSERT_EQ(errors[1].notes.size(), 1u);
  EXPECT_EQ(errors[1].notes[0].begin, 13);
}

TEST(Pattern, AllErrorsAtOnce) {
  PatternErrors errors;
  EXPECT_FALSE(parse_pattern("a, _b 3 -> (a (b) .. ", errors));
  std::vector<std::string> codes;
  for (const PatternError &error : errors)
    codes.push_back(error.code);
  EXPECT_EQ(codes, (std::vector<std::string>{"pattern-bad-character", "pattern-axis-name", "pattern-number",
                                             "pattern-nested-parentheses", "pattern-bad-ellipsis",
                                             "pattern-unbalanced-parenthesis"}));
}

TEST(Pattern, EarlierErrorsOfOthersDoNotCount) {
  PatternErrors errors(1);
  EXPECT_TRUE(parse_pattern("a b -> b a", errors));
  EXPECT_EQ(errors.size(), 1u);
}

TEST(Pattern, AnyByteStringIsReadOrRefused) {
  // Every two-byte text between two fixed halves: no crash, and errors stay inside the text.
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text =
          "(a b)" + std::string{static_cast<char>(first), static_cast<char>(second)} + "-> a b";
      PatternErrors errors;
      const bool good = parse_pattern(text, errors).has_value();
      EXPECT_EQ(good, errors.empty());
      for (const PatternError &error : errors) {
        EXPECT_LE(0, error.begin);
        EXPECT_LE(error.begin, error.end);
        EXPECT_LE(error.end, static_cast<int64_t>(text.size()));
      }
    }
}

TEST(Pattern, LengthIsBounded) {
  std::string text = "a -> a";
  text.insert(1, std::string(static_cast<size_t>(max_pattern_bytes) - text.size(), ' '));
  PatternErrors errors;
  EXPECT_TRUE(parse_pattern(text, errors));
  text += " ";
  EXPECT_FALSE(parse_pattern(text, errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].code, "pattern-too-long");
  EXPECT_EQ(errors[0].message, "a pattern has at most 4096 bytes, got 4097");
}

TEST(PatternError, ShowsTheTextWithCarets) {
  const std::string text = "(edp ep) -> edp pe";
  PatternErrors errors;
  EXPECT_FALSE(parse_pattern(text, errors));
  EXPECT_EQ(all(errors, text), "pattern-one-sided-axis: axis stands on one side only: ep (left), pe (right)\n"
                               "  (edp ep) -> edp pe\n"
                               "       ^~\n"
                               "  note: and here: pe\n"
                               "  (edp ep) -> edp pe\n"
                               "                  ^~\n"
                               "  fix: write 'ep' for 'pe'\n");
}

TEST(PatternError, CaretsSkipTabsOtherLinesAndWideCharacters) {
  const std::string tabs = "a\té ->\n\ta, b";
  PatternErrors errors;
  EXPECT_FALSE(parse_pattern(tabs, errors));
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(to_string(errors[0], std::span(&tabs, 1)), "pattern-bad-character: a pattern cannot contain 'é'\n"
                                                       "  a\té ->\n"
                                                       "   \t^\n");
  EXPECT_EQ(to_string(errors[1], std::span(&tabs, 1)),
            "pattern-bad-character: a pattern cannot contain ','\n"
            "  \ta, b\n"
            "  \t ^\n"
            "  fix: axes are set apart by blanks, commas are not used\n");
}

} // namespace
} // namespace paratope
