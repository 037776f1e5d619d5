// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <fmt/format.h>
#include <numeric>

#include "dsl/rearrange/groups_for_test.h"

namespace paratope {
namespace {

const char *dp_pattern = "(replica dp cp) -> (replica cp) dp";

TEST(Groups, WorkedExampleDp4Cp2Ep8) {
  const Mesh mesh = mesh_of(8, {{"dp", 4, ""}, {"cp", 2, ""}, {"ep", 8, ""}, {"enp", 8, ""}});
  const GroupLayout dp = build(mesh, {dp_pattern});
  EXPECT_EQ(lists(dp), (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(to_string(dp.color), "r % 2");
  EXPECT_EQ(to_string(dp.key), "r / 2 % 4");
  EXPECT_EQ(stride(dp), 2);
  EXPECT_FALSE(contiguous(dp));
  ASSERT_EQ(dp.inferred.size(), 1u);
  EXPECT_EQ(dp.inferred[0].name, "replica");
  EXPECT_EQ(dp.inferred[0].size, 1);

  const GroupLayout cp = build(mesh, {"(rest cp) -> rest cp"});
  EXPECT_EQ(lists(cp), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_TRUE(contiguous(cp));

  const GroupLayout ep = build(mesh, {"(edp ep) -> edp ep"});
  EXPECT_EQ(lists(ep), (Lists{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_TRUE(contiguous(ep));
  const GroupLayout world = build(mesh, {"ranks -> 1 ranks"}), enp = build(mesh, {"(copy enp) -> copy enp"});
  EXPECT_TRUE(same_members(ep, world));
  EXPECT_TRUE(same_groups(ep, enp));
  EXPECT_FALSE(same_members(ep, dp));

  const GroupLayout local = build(mesh, {"ranks -> ranks 1"});
  EXPECT_EQ(local.count, 8);
  EXPECT_EQ(members(local, 5), (std::vector<int64_t>{5}));
  EXPECT_TRUE(contiguous(local));
}

TEST(Groups, WorkedExampleDp2Cp2Enp8) {
  const GroupLayout dp = build(mesh_of(8, {{"dp", 2, ""}, {"cp", 2, ""}, {"enp", 8, ""}}), {dp_pattern});
  EXPECT_EQ(lists(dp), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(to_string(dp.color), "r / 4 % 2 * 2 + r % 2");
}

TEST(Groups, ListsOfPatternsApplyInTurn) {
  const Patterns dcp = {"(x dp pp pcp tp) -> (x dp pp tp pcp)", "(g dcp) -> g dcp"};
  const std::vector<SizedAxis> axes = {
      {"dp", 1, ""}, {"pp", 1, ""}, {"pcp", 2, ""}, {"tp", 4, ""}, {"dcp", 4, ""}};
  const GroupLayout group = build(mesh_of(8, axes), dcp);
  EXPECT_EQ(lists(group), (Lists{{0, 4, 1, 5}, {2, 6, 3, 7}})); // as vLLM makes them for these sizes
  EXPECT_TRUE(group.closed_form());
  EXPECT_EQ(stride(group), std::nullopt);
  // Several dims may pass from one pattern to the next.
  EXPECT_EQ(lists(build(mesh_of(8, axes), {"(a tp) -> a tp", "a tp -> tp a"})),
            (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Groups, MisalignedListsFallBackToATable) {
  const std::vector<SizedAxis> axes = {{"a", 2, ""}, {"c", 2, ""}};
  const Patterns patterns = {"(a b) -> (b a)", "(c d) -> c d"};
  const GroupLayout group = build(mesh_of(6, axes), patterns);
  EXPECT_FALSE(group.closed_form());
  EXPECT_EQ(lists(group), (Lists{{0, 3, 1}, {4, 2, 5}}));
  EXPECT_EQ(stride(group), std::nullopt);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_EQ(color_of(group, rank_of(group, i, j)), i);
      EXPECT_EQ(key_of(group, rank_of(group, i, j)), j);
    }
  EXPECT_TRUE(same_members(group, group));
  EXPECT_FALSE(same_members(group, build(mesh_of(6, axes), {"(c d) -> c d"})));
  // A third pattern may align again: the table turns back into digits.
  const GroupLayout back = build(mesh_of(6, axes), {"(a b) -> (b a)", "(c d) -> (d c)", "(d c) -> (c d)",
                                                    "(b a) -> (a b)", "(c d) -> c d"});
  EXPECT_TRUE(back.closed_form());
  EXPECT_TRUE(same_groups(back, build(mesh_of(6, axes), {"(c d) -> c d"})));

  PatternErrors errors;
  EXPECT_FALSE(build_group(mesh_of(6 * 15625, axes), patterns, errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].code, "group-no-closed-form");
  EXPECT_EQ(errors[0].pattern_idx, 1);
  EXPECT_EQ(build(mesh_of(6 * 10921, axes), patterns).color.table.size(), 65526u);
}

TEST(Groups, RankMapRenumbers) {
  Mesh mesh = mesh_of(4, {{"tp", 2, ""}});
  mesh.rank_map = {0, 2, 1, 3};
  const GroupLayout tp = build(mesh, {"(rest tp) -> rest tp"});
  EXPECT_EQ(lists(tp), (Lists{{0, 2}, {1, 3}}));
  EXPECT_TRUE(tp.closed_form()); // this map is itself a rearrangement
  EXPECT_EQ(to_string(tp.key), "r / 2 % 2");
  EXPECT_TRUE(same_groups(tp, build(mesh_of(4, {{"tp", 2, ""}}), {"(tp rest) -> rest tp"})));

  mesh.rank_map = {3, 2, 0, 1};
  const GroupLayout odd = build(mesh, {"(rest tp) -> rest tp"});
  EXPECT_EQ(lists(odd), (Lists{{3, 2}, {0, 1}}));
  EXPECT_FALSE(odd.closed_form());
  EXPECT_EQ(stride(odd), std::nullopt);
  mesh.rank_map = {3, 2, 1, 0};
  EXPECT_EQ(stride(build(mesh, {"(rest tp) -> rest tp"})), -1);
  EXPECT_FALSE(contiguous(build(mesh, {"(rest tp) -> rest tp"})));
  // Groups in another order are still the same groups.
  mesh.rank_map = {0, 1, 4, 5, 2, 3};
  mesh.world = 6;
  const GroupLayout shuffled = build(mesh, {"(rest tp) -> rest tp"});
  const GroupLayout plain = build(mesh_of(6, {{"tp", 2, ""}}), {"(rest tp) -> rest tp"});
  EXPECT_FALSE(shuffled.closed_form());
  EXPECT_TRUE(contiguous(shuffled));
  EXPECT_TRUE(same_members(shuffled, plain));
  EXPECT_TRUE(same_members(plain, shuffled));
  EXPECT_FALSE(same_groups(shuffled, plain));
}

TEST(Groups, RankOffsetPlacesTheMesh) {
  Mesh mesh = mesh_of(4, {{"tp", 2, ""}});
  mesh.rank_offset = 8;
  const GroupLayout tp = build(mesh, {"(rest tp) -> rest tp"});
  EXPECT_EQ(lists(tp), (Lists{{8, 9}, {10, 11}}));
  EXPECT_EQ(color_of(tp, 10), 1);
  EXPECT_EQ(key_of(tp, 11), 1);
  for (int64_t outside : {int64_t{-1}, int64_t{0}, int64_t{7}, int64_t{12}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(color_of(tp, outside), -1);
    EXPECT_EQ(key_of(tp, outside), -1);
  }
  EXPECT_FALSE(same_members(tp, build(mesh_of(4, {{"tp", 2, ""}}), {"(rest tp) -> rest tp"})));
}

struct GroupSlip {
  int64_t world;
  std::vector<SizedAxis> axes;
  Patterns patterns;
  const char *code;
  int64_t pattern_idx, begin, end;
  const char *message;
  const char *fix;
};

const std::vector<GroupSlip> slips = {
    {10,
     {{"tp", 4, ""}},
     {"(rest tp) -> rest tp"},
     "not-divisible",
     0,
     6,
     8,
     "world = 10 is not divisible by tp = 4",
     "set tp to one of 1, 2, 5, 10"},
    {8,
     {{"dp", 3, ""}, {"cp", 2, ""}},
     {dp_pattern},
     "not-divisible",
     0,
     9,
     11,
     "world = 8 is not divisible by dp · cp = 3 · 2 = 6",
     "set dp to one of 1, 2, 4"},
    {16,
     {{"dp", 3, ""}, {"cp", 5, ""}},
     {dp_pattern},
     "not-divisible",
     0,
     9,
     11,
     "world = 16 is not divisible by dp · cp = 3 · 5 = 15",
     "choose sizes whose product divides world = 16: 1, 2, 4, 8, 16"},
    {8,
     {{"dp", 2, ""}, {"cp", 2, ""}},
     {"(dp cp) -> cp dp"},
     "ranks-uncovered",
     0,
     0,
     7,
     "no group covers ranks 4 … 7: dp · cp = 2 · 2 = 4, world = 8",
     "set dp = 4, or cp = 4, or add an axis without a size on both sides"},
    {8,
     {{"dp", 8, ""}, {"cp", 2, ""}},
     {"(dp cp) -> cp dp"},
     "rank-outside-world",
     0,
     4,
     6,
     "the pattern numbers ranks 8 … 15 outside world = 8: dp · cp = 8 · 2 = 16",
     "set dp = 4, or cp = 1"},
    {8,
     {{"cp", 2, ""}},
     {"(rest pc) -> rest pc"},
     "size-unknown",
     0,
     6,
     8,
     "cannot infer more than one size of world = 8, got 2 axes without one: rest, pc",
     "write 'cp' for 'pc'"},
    {8,
     {{"tp", 2, ""}},
     {"(tp x tp) -> tp x"},
     "pattern-repeated-axis",
     0,
     6,
     8,
     "axis stands twice on one side: tp",
     ""},
    {8,
     {{"tp", 2, ""}},
     {"rest tp -> rest tp"},
     "group-left-side",
     0,
     0,
     7,
     "the left side is one dim, the ranks, got 2",
     "put the axes into one pair of parentheses: (a b)"},
    {8,
     {{"tp", 2, ""}},
     {"(rest tp) -> (rest tp)"},
     "group-right-side",
     0,
     13,
     22,
     "the right side is two dims, groups and members, got 1",
     "each is an axis, a parenthesised list, or 1: (a b) c"},
    {8,
     {{"tp", 2, ""}},
     {"(rest tp) -> (tp rest)", "(g tp) -> g tp 1"},
     "group-right-side",
     1,
     10,
     16,
     "the right side is two dims, groups and members, got 3",
     "each is an axis, a parenthesised list, or 1: (a b) c"},
    {8,
     {{"tp", 2, ""}},
     {"(rest tp) -> rest tp", "(g tp) -> g tp"},
     "dim-count",
     1,
     0,
     6,
     "the pattern before leaves 2 dims of sizes 4, 2, got 1 on the left",
     ""},
    {8,
     {{"tp", 2, ""}, {"g", 3, ""}},
     {"(rest tp) -> rest tp", "(g h) tp -> (g tp) h"},
     "not-divisible",
     1,
     1,
     2,
     "dim 0 = 4 is not divisible by g = 3",
     "set g to one of 1, 2, 4"},
    {8,
     {{"tp", 0, "a.toml:3"}},
     {"(rest tp) -> rest tp"},
     "axis-size",
     -1,
     0,
     0,
     "size of axis tp (a.toml:3): expected at least 1, got 0",
     ""},
    {8,
     {{"tp", 2, ""}, {"tp", 4, ""}},
     {"(rest tp) -> rest tp"},
     "conflicting-sizes",
     -1,
     0,
     0,
     "axis tp has two sizes: 2, 4",
     ""},
    {0, {}, {"ranks -> 1 ranks"}, "world-size", -1, 0, 0, "a world has at least 1 rank, got 0", ""},
    {8,
     {},
     {},
     "group-empty",
     -1,
     0,
     0,
     "a group needs a pattern, got an empty list",
     "write \"ranks -> 1 ranks\""},
    {8,
     {{"a", int64_t{1} << 40, ""}, {"b", int64_t{1} << 40, ""}},
     {"(a b) -> a b"},
     "size-overflow",
     0,
     0,
     5,
     "product of sizes is beyond 2^63 - 1: a · b = 1099511627776 · 1099511627776",
     ""},
};

TEST(Groups, EverySlipIsOneLocatedError) {
  for (const GroupSlip &slip : slips) {
    SCOPED_TRACE(slip.message);
    PatternErrors errors;
    EXPECT_FALSE(build_group(mesh_of(slip.world, slip.axes), slip.patterns, errors));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, slip.code);
    EXPECT_EQ(errors[0].pattern_idx, slip.pattern_idx);
    EXPECT_EQ(errors[0].begin, slip.begin);
    EXPECT_EQ(errors[0].end, slip.end);
    EXPECT_EQ(errors[0].message, slip.message);
    EXPECT_EQ(errors[0].fix, slip.fix);
  }
}

TEST(Groups, EllipsisHasNoPlaceHere) {
  PatternErrors errors;
  EXPECT_FALSE(build_group(mesh_of(8), Patterns{"... -> 1 ..."}, errors));
  ASSERT_EQ(errors.size(), 2u); // once on each side
  EXPECT_EQ(errors[0].code, "group-ellipsis");
  EXPECT_EQ(errors[1].begin, 9);
}

TEST(Groups, NotesNameEveryFactorAndItsOrigin) {
  Mesh mesh = mesh_of(64, {{"dp", 6, "decode.toml:14"}, {"cp", 2, "default of layout deepinfer"}});
  mesh.world_origin = "max(dp·cp, enp)";
  PatternErrors errors;
  const Patterns patterns = {dp_pattern};
  EXPECT_FALSE(build_group(mesh, patterns, errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].axis, "dp");
  EXPECT_EQ(to_string(errors[0], patterns),
            "not-divisible: world = 64 is not divisible by dp · cp = 6 · 2 = 12\n"
            "  (replica dp cp) -> (replica cp) dp\n"
            "           ^~\n"
            "  note: dp = 6 (decode.toml:14)\n"
            "  (replica dp cp) -> (replica cp) dp\n"
            "           ^~\n"
            "  note: cp = 2 (default of layout deepinfer)\n"
            "  (replica dp cp) -> (replica cp) dp\n"
            "              ^~\n"
            "  note: world = 64 (max(dp·cp, enp))\n"
            "  fix: set dp to one of 1, 2, 4, 8, 16, 32\n");
  EXPECT_EQ(errors[0].notes.back().axis, "world");
}

TEST(Groups, NotesOfALaterPatternPointIntoIt) {
  PatternErrors errors;
  EXPECT_FALSE(build_group(mesh_of(8, {{"dcp", 3, ""}}), Patterns{"a -> a", "(g dcp) -> g dcp"}, errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].pattern_idx, 1);
  EXPECT_EQ(errors[0].notes.at(0).pattern_idx, 1);
  EXPECT_EQ(errors[0].message, "world = 8 is not divisible by dcp = 3");
}

TEST(Groups, LocalNamesDoNotShadowAxes) {
  // `tp` is an axis of the language without a size here: letting a pattern infer it would give it whatever is
  // left over.
  Mesh mesh = mesh_of(8, {{"cp", 2, ""}});
  mesh.unsized_axes = {"tp"};
  PatternErrors errors;
  EXPECT_FALSE(build_group(mesh, Patterns{"(tp cp) -> tp cp"}, errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].code, "shadowed-axis");
  EXPECT_EQ(errors[0].begin, 1);
  EXPECT_EQ(errors[0].axis, "tp");
  // The same local name in two patterns is two names.
  const GroupLayout group = build(mesh, {"(rest cp) -> (cp rest)", "(rest cp) -> rest cp"});
  ASSERT_EQ(group.inferred.size(), 2u);
  EXPECT_EQ(group.inferred[1].name, "rest");
}

TEST(Groups, RankMapIsChecked) {
  struct Slip {
    std::vector<int64_t> map;
    const char *code;
    int64_t entry_idx;
    const char *message;
  };
  const std::vector<Slip> map_slips = {
      {{0, 1, 2}, "rank-map-length", -1, "rank_map must have one entry a rank: expected 4 entries, got 3"},
      {{0, 1, 2, 3, 3},
       "rank-map-length",
       -1,
       "rank_map must have one entry a rank: expected 4 entries, got 5"},
      {{0, 1, 1, 3}, "rank-map-repeated", 2, "rank_map entries 1 and 2 name the same rank: 1"},
      {{0, 1, 4, 3}, "rank-map-range", 2, "rank_map entry 2 is outside the world 0 … 3, got 4"},
      {{0, -1, 2, 3}, "rank-map-range", 1, "rank_map entry 1 is outside the world 0 … 3, got -1"},
  };
  for (const Slip &slip : map_slips) {
    Mesh mesh = mesh_of(4);
    mesh.rank_map = slip.map;
    PatternErrors errors;
    EXPECT_FALSE(check_mesh(mesh, errors));
    ASSERT_FALSE(errors.empty());
    EXPECT_EQ(errors[0].code, slip.code);
    EXPECT_EQ(errors[0].entry_idx, slip.entry_idx);
    EXPECT_EQ(errors[0].message, slip.message);
    EXPECT_EQ(errors[0].pattern_idx, -1);
    EXPECT_FALSE(build_group(mesh, Patterns{"ranks -> 1 ranks"}, errors));
  }
  Mesh mesh = mesh_of(max_table_ranks + 1);
  mesh.rank_map.resize(static_cast<size_t>(mesh.world));
  std::iota(mesh.rank_map.begin(), mesh.rank_map.end(), 0);
  PatternErrors errors;
  EXPECT_FALSE(check_mesh(mesh, errors));
  EXPECT_EQ(errors.at(0).code, "rank-map-too-long");
}

TEST(Groups, RankOffsetIsChecked) {
  for (const auto &[offset, message] :
       {std::pair<int64_t, const char *>{-1, "rank_offset is at least 0, got -1"},
        {INT64_MAX - 3, "rank_offset + world is beyond 2^63 - 1: 9223372036854775804 + 4"}}) {
    Mesh mesh = mesh_of(4);
    mesh.rank_offset = offset;
    PatternErrors errors;
    EXPECT_FALSE(check_mesh(mesh, errors));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, "rank-offset");
    EXPECT_EQ(errors[0].message, message);
  }
}

TEST(Groups, CostDoesNotDependOnTheWorld) {
  // Nanoseconds to build a group, ask one rank's color and key and compare it with another: the best of
  // several rounds, so that a busy machine does not matter.
  auto measure = [](int64_t world) {
    const Mesh mesh = mesh_of(world, {{"dp", world / 4, ""}, {"cp", 2, ""}, {"ep", world, ""}});
    const Patterns dp = {dp_pattern}, ep = {"(edp ep) -> edp ep"};
    double best_ns = 1e18;
    int64_t sum = 0;
    for (int round = 0; round < 20; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; ++i) {
        PatternErrors errors;
        const auto a = build_group(mesh, dp, errors), b = build_group(mesh, ep, errors);
        sum += color_of(*a, world - 1) + key_of(*a, world - 1) + rank_of(*a, 0, 1) + same_members(*a, *b);
      }
      const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
      best_ns = std::min(best_ns, passed.count() / 100);
    }
    EXPECT_GT(sum, 0);
    return best_ns;
  };
  const double small = measure(8), large = measure(int64_t{1} << 20), huge = measure(int64_t{1} << 40);
  RecordProperty("ns_8_ranks", static_cast<int>(small));
  RecordProperty("ns_2_20_ranks", static_cast<int>(large));
  RecordProperty("ns_2_40_ranks", static_cast<int>(huge));
  fmt::print("two groups built and compared: 8 ranks {:.0f} ns, 2^20 {:.0f} ns, 2^40 {:.0f} ns\n", small,
             large, huge);
  EXPECT_LT(large, 4 * small); // enumeration would be 131,072 times
  EXPECT_LT(huge, 4 * small);
}

TEST(Groups, LargeWorldsKeepTheirNumbers) {
  const int64_t world = int64_t{1} << 60;
  const GroupLayout dp = build(mesh_of(world, {{"dp", int64_t{1} << 50, ""}, {"cp", 2, ""}}), {dp_pattern});
  EXPECT_EQ(dp.count, int64_t{1} << 10);
  EXPECT_EQ(color_of(dp, world - 1), (int64_t{1} << 10) - 1);
  EXPECT_EQ(key_of(dp, world - 1), (int64_t{1} << 50) - 1);
  EXPECT_EQ(rank_of(dp, dp.count - 1, dp.size - 1), world - 1);
  EXPECT_EQ(build(mesh_of(INT64_MAX), {"ranks -> 1 ranks"}).size, INT64_MAX);
}

TEST(Groups, FarWorldsFailFast) {
  // The list of legal sizes is found by trial division, bounded: a prime world of 61 bits must not hang.
  PatternErrors errors;
  const int64_t prime = (int64_t{1} << 61) - 1;
  EXPECT_FALSE(build_group(mesh_of(prime, {{"tp", 8, ""}}), Patterns{"(rest tp) -> rest tp"}, errors));
  EXPECT_EQ(errors.at(0).fix, fmt::format("set tp to one of 1, {}", prime));
  errors.clear();
  const int64_t smooth = int64_t{1} << 40;
  EXPECT_FALSE(build_group(mesh_of(smooth, {{"tp", 3, ""}}), Patterns{"(rest tp) -> rest tp"}, errors));
  EXPECT_EQ(errors.at(0).fix.substr(0, 40), "set tp to one of 1, 2, 4, 8, 16, 32, 64,");
}

} // namespace
} // namespace paratope
