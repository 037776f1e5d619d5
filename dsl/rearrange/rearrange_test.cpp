// SPDX-License-Identifier: Apache-2.0
//
// Held against einops itself (tests/golden/einops_rearrange.json), then against the laws a rearrangement
// obeys.
#include "dsl/rearrange/rearrange.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "dsl/rearrange/sha256_for_test.h"

namespace paratope {
namespace {

std::string sha256_of(const std::vector<int64_t> &values) {
  std::vector<uint8_t> bytes;
  for (int64_t value : values)
    for (int shift = 0; shift < 64; shift += 8)
      bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> shift));
  return sha256(bytes);
}

TEST(Sha256, StandardVectors) {
  const std::string abc = "abc", long_text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  auto digest = [](const std::string &text) {
    return sha256({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest(abc), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest(long_text), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

// Parses and rearranges; the errors of both steps.
std::optional<Rearrangement> run(const std::string &text, const std::vector<int64_t> &shape,
                                 const std::vector<SizedAxis> &sizes, PatternErrors &errors) {
  std::optional<Pattern> pattern = parse_pattern(text, errors);
  return pattern ? rearrange(*pattern, shape, sizes, errors) : std::nullopt;
}

TEST(Rearrange, AgreesWithEinops) {
  std::ifstream file(PARATOPE_SOURCE_DIR "/tests/golden/einops_rearrange.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  // What einops refuses, by the code we refuse it with. The tab is the one difference: einops calls it an
  // unknown character, here it separates axes like a blank.
  const std::map<std::string, std::string> refused = {
      {"a 1 b -> (a b)", "size-mismatch"},
      {"(a b) -> b a", "size-unknown"},
      {"(a b) -> a b", "size-mismatch"}, // a = 4, b = 5
      {"a b c -> a b c", "dim-count"},
      {"a b -> a b c", "pattern-one-sided-axis"},
      {"a b -> a b", "unused-size"},
      {"(a (b)) c -> a b c", "pattern-nested-parentheses"},
      {"(a b -> a b", "pattern-unbalanced-parenthesis"},
      {"a 4 -> a 4", "pattern-number"},
      {"... -> a ...", "pattern-one-sided-axis"},
      {"... ... -> ...", "pattern-repeated-ellipsis"},
      {"a _b -> a _b", "pattern-axis-name"},
      {"a-b -> a b", "pattern-bad-character"},
      {"a b", "pattern-missing-arrow"},
      {"a b c ... -> a b c ...", "dim-count"},
      {"a b -> (a, b)", "pattern-bad-character"},
  };
  int same = 0, both_refuse = 0, tabs = 0;
  for (const nlohmann::json &entry : golden["cases"]) {
    SCOPED_TRACE(entry.dump());
    const std::string text = entry["pattern"];
    std::vector<SizedAxis> sizes;
    for (const auto &[name, size] : entry["sizes"].items())
      sizes.push_back({name, size, ""});
    PatternErrors errors;
    const auto result = run(text, entry["shape"], sizes, errors);
    if (text.find('\t') != std::string::npos) {
      ASSERT_TRUE(result);
      EXPECT_EQ(result->out_shape, (std::vector<int64_t>{4, 4}));
      EXPECT_EQ(result->layout(1), 4);
      ++tabs;
    } else if (entry.contains("error")) {
      ASSERT_FALSE(result);
      const bool negative = !sizes.empty() && sizes[0].size < 0;
      EXPECT_EQ(errors.at(0).code, negative ? "axis-size" : refused.at(text));
      ++both_refuse;
    } else {
      ASSERT_TRUE(result);
      EXPECT_EQ(result->out_shape, entry["out_shape"].get<std::vector<int64_t>>());
      const std::vector<int64_t> values = values_on_iota(*result);
      if (entry.contains("sha256"))
        EXPECT_EQ(sha256_of(values), entry["sha256"]);
      else
        EXPECT_EQ(values, entry["flat"].get<std::vector<int64_t>>());
      ++same;
    }
  }
  EXPECT_EQ(same, 23);
  EXPECT_EQ(both_refuse, 17);
  EXPECT_EQ(tabs, 1);
}

struct SizeSlip {
  const char *text;
  std::vector<int64_t> shape;
  std::vector<SizedAxis> sizes;
  const char *code;
  int64_t begin, end;
  const char *message;
  const char *fix;
};

const int64_t big = int64_t{1} << 40;

const std::vector<SizeSlip> size_slips = {
    {"(a b) -> a b",
     {16},
     {{"a", 3, ""}},
     "not-divisible",
     1,
     2,
     "dim 0 = 16 is not divisible by a = 3",
     "set a to one of 1, 2, 4, 8, 16"},
    {"x (a b c) -> x a b c",
     {2, 12},
     {{"a", 2, ""}, {"b", 4, ""}},
     "not-divisible",
     5,
     6,
     "dim 1 = 12 is not divisible by a · b = 2 · 4 = 8",
     "set a to one of 1, 3, or b to one of 1, 2, 3, 6"},
    {"(a b) -> a b",
     {16},
     {{"a", 4, ""}, {"b", 5, ""}},
     "size-mismatch",
     3,
     4,
     "dim 0 = 16 is not a · b = 4 · 5 = 20",
     "set b = 4"},
    {"(a b) -> a b",
     {16},
     {{"a", 3, ""}, {"b", 5, ""}},
     "size-mismatch",
     1,
     2,
     "dim 0 = 16 is not a · b = 3 · 5 = 15",
     "choose sizes whose product is dim 0 = 16: 16"},
    {"a 1 -> a", {2, 3}, {}, "size-mismatch", 2, 3, "the pattern wants size 1, got dim 1 = 3", ""},
    {"a () -> a", {2, 3}, {}, "size-mismatch", 2, 4, "the pattern wants size 1, got dim 1 = 3", ""},
    {"(a b c) -> a b c",
     {16},
     {{"a", 2, ""}},
     "size-unknown",
     5,
     6,
     "cannot infer more than one size of dim 0 = 16, got 2 axes without one: b, c",
     "give all of them but one a size"},
    {"a b -> a b", {4}, {}, "dim-count", 0, 3, "the pattern wants 2 dims, got 1: [4]", ""},
    {"a b ... -> a b ...", {4}, {}, "dim-count", 0, 7, "the pattern wants at least 2 dims, got 1: [4]", ""},
    {"-> ", {4}, {}, "dim-count", 0, 0, "the pattern wants 0 dims, got 1: [4]", ""},
    {"head dim -> dim head",
     {4, 4},
     {{"heads", 4, ""}},
     "unused-size",
     0,
     8,
     "a size is given for an axis the pattern does not have: heads",
     "write 'head' for 'heads'"},
    {"(a b) -> a b",
     {16},
     {{"a", -4, ""}},
     "axis-size",
     0,
     0,
     "size of axis a: expected at least 0, got -4",
     ""},
    {"a -> a",
     {16},
     {{"a", 16, "x"}, {"a", 8, "y"}},
     "conflicting-sizes",
     0,
     0,
     "axis a has two sizes: 16, 8",
     ""},
    {"a b -> b a", {-1, 2}, {}, "shape-size", 0, 3, "sizes of a shape are at least 0, got [-1, 2]", ""},
    {"(a b) -> a b",
     {0},
     {{"a", 0, ""}},
     "size-ambiguous",
     3,
     4,
     "cannot infer b: any size would do beside a = 0",
     "give b a size"},
    {"(a b) -> a b",
     {16},
     {{"a", 0, ""}},
     "not-divisible",
     1,
     2,
     "dim 0 = 16 is not divisible by a = 0",
     "set a to one of 1, 2, 4, 8, 16"},
    {"a b -> (a b)",
     {big, big},
     {},
     "size-overflow",
     0,
     3,
     "more than 2^63 - 1 elements in shape [1099511627776, 1099511627776]",
     ""},
    {"a b c -> (a b) c",
     {big, big, 0},
     {},
     "size-overflow",
     0,
     5,
     "more than 2^63 - 1 elements in shape [1099511627776, 1099511627776, 0]",
     ""},
    {"(a b) -> a b",
     {16},
     {{"a", big, ""}, {"b", big, ""}},
     "size-overflow",
     0,
     5,
     "product of sizes is beyond 2^63 - 1: a · b = 1099511627776 · 1099511627776",
     ""},
};

TEST(Rearrange, EverySizeSlipIsOneLocatedError) {
  for (const SizeSlip &slip : size_slips) {
    SCOPED_TRACE(slip.message);
    PatternErrors errors;
    EXPECT_FALSE(run(slip.text, slip.shape, slip.sizes, errors));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, slip.code);
    EXPECT_EQ(errors[0].begin, slip.begin);
    EXPECT_EQ(errors[0].end, slip.end);
    EXPECT_EQ(errors[0].message, slip.message);
    EXPECT_EQ(errors[0].fix, slip.fix);
  }
}

TEST(Rearrange, EveryDimIsCheckedAtOnce) {
  PatternErrors errors;
  EXPECT_FALSE(run("(a b) (c d) -> a b c d", {10, 10}, {{"a", 3, ""}, {"c", 4, ""}}, errors));
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].axis, "a");
  EXPECT_EQ(errors[1].axis, "c");
}

TEST(Rearrange, ErrorsSayWhereNumbersCameFrom) {
  PatternErrors errors;
  EXPECT_FALSE(run("(a b) -> a b", {10}, {{"a", 4, "decode.toml:14"}}, errors));
  ASSERT_EQ(errors.at(0).notes.size(), 2u);
  EXPECT_EQ(errors[0].notes[0].message, "a = 4 (decode.toml:14)");
  EXPECT_EQ(errors[0].notes[0].axis, "a");
  EXPECT_EQ(errors[0].notes[1].message, "dim 0 = 10 (of shape [10])");
}

TEST(Rearrange, SizeZeroAndOne) {
  PatternErrors errors;
  const auto empty = run("(a b) -> b a", {0}, {{"a", 4, ""}}, errors);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->out_shape, (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(values_on_iota(*empty).empty());
  const auto given = run("(a b) -> a b", {0}, {{"a", 0, ""}, {"b", 3, ""}}, errors);
  ASSERT_TRUE(given);
  EXPECT_EQ(given->out_shape, (std::vector<int64_t>{0, 3}));
  const auto wide = run("a (b c) -> a b c", {big, 0}, {{"b", 0, ""}, {"c", 1, ""}}, errors);
  ASSERT_TRUE(wide);
  EXPECT_EQ(element_count(*wide), 0);
  const auto scalar = run("->", {}, {}, errors);
  ASSERT_TRUE(scalar);
  EXPECT_EQ(values_on_iota(*scalar), (std::vector<int64_t>{0}));
  const auto flat = run("a ... -> (... a)", {2, 3, 5}, {}, errors);
  ASSERT_TRUE(flat);
  EXPECT_EQ(flat->out_shape, (std::vector<int64_t>{30}));
  EXPECT_EQ(to_string(flat->layout), "(3,5,2):(5,1,15)");
  EXPECT_TRUE(errors.empty());
}

// A random pattern over a few axes: each side lists all of them in its own order and its own parentheses.
struct RandomPattern {
  std::vector<std::string> names;
  std::vector<SizedAxis> sizes;
  std::string left, right, text;
  std::vector<int64_t> shape;

  static std::string side(std::mt19937_64 &random, std::vector<std::string> names) {
    std::shuffle(names.begin(), names.end(), random);
    std::string text;
    for (size_t i = 0; i < names.size();) {
      const size_t count = std::min(names.size() - i, static_cast<size_t>(random() % 3 + 1));
      const bool parenthesised = count > 1 || random() % 4 == 0;
      text += parenthesised ? "(" : "";
      for (size_t j = 0; j < count; ++j)
        text += (j ? " " : "") + names[i++];
      text += parenthesised ? ") " : " ";
      if (random() % 6 == 0)
        text += "1 ";
    }
    return text;
  }

  explicit RandomPattern(std::mt19937_64 &random) {
    const size_t count = random() % 5 + 1;
    for (size_t i = 0; i < count; ++i) {
      names.push_back(std::string(1, static_cast<char>('a' + i)));
      sizes.push_back({names.back(), static_cast<int64_t>(random() % 4 + 1), ""});
    }
    left = side(random, names);
    right = side(random, names);
    text = left + "-> " + right;
    PatternErrors errors;
    const Pattern pattern = parse_pattern(text, errors).value();
    for (const PatternDim &dim : pattern.left.dims) {
      int64_t size = 1;
      for (const PatternAxis &axis : dim.axes)
        if (axis.kind == PatternAxis::Kind::named)
          size *= sizes[static_cast<size_t>(axis.name[0] - 'a')].size;
      shape.push_back(size);
    }
  }
};

std::vector<int64_t> picked(const std::vector<int64_t> &from, const std::vector<int64_t> &at) {
  std::vector<int64_t> values;
  for (int64_t i : at)
    values.push_back(from[static_cast<size_t>(i)]);
  return values;
}

TEST(Rearrange, LawsHoldForRandomPatterns) {
  const uint64_t seed = 41;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 3000; ++trial) {
    const RandomPattern drawn(random);
    SCOPED_TRACE(drawn.text);
    PatternErrors errors;
    const auto forward = run(drawn.text, drawn.shape, drawn.sizes, errors);
    ASSERT_TRUE(forward) << errors.at(0).message;
    std::vector<int64_t> values = values_on_iota(*forward), sorted = values;

    // a permutation of the input
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> iota(values.size());
    std::iota(iota.begin(), iota.end(), 0);
    ASSERT_EQ(sorted, iota);

    // the inverse pattern restores
    const auto backward = rearrange(inverse(parse_pattern(drawn.text, errors).value()).value(),
                                    forward->out_shape, drawn.sizes, errors);
    ASSERT_TRUE(backward);
    ASSERT_EQ(backward->out_shape, drawn.shape);
    ASSERT_EQ(picked(values, values_on_iota(*backward)), iota);

    // two patterns in turn equal the fused one; where it has a layout, so does the layout
    const std::string further = RandomPattern::side(random, drawn.names);
    const auto second = run(drawn.right + "-> " + further, forward->out_shape, drawn.sizes, errors);
    const auto fused = run(drawn.left + "-> " + further, drawn.shape, drawn.sizes, errors);
    ASSERT_TRUE(second && fused);
    ASSERT_EQ(second->out_shape, fused->out_shape);
    ASSERT_EQ(picked(values, values_on_iota(*second)), values_on_iota(*fused));
    const auto composed = compose(forward->layout, second->layout);
    ASSERT_TRUE(composed);
    ASSERT_EQ(coalesce(*composed), coalesce(fused->layout));

    // leaving out one size of a dim changes nothing: it is inferred
    std::vector<SizedAxis> fewer = drawn.sizes;
    fewer.erase(fewer.begin() + static_cast<int64_t>(random() % fewer.size()));
    const auto inferred = run(drawn.text, drawn.shape, fewer, errors);
    ASSERT_TRUE(inferred);
    ASSERT_EQ(inferred->out_shape, forward->out_shape);
    ASSERT_EQ(inferred->layout, forward->layout);
  }
}

} // namespace
} // namespace paratope
