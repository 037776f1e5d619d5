// SPDX-License-Identifier: Apache-2.0
//
// Laws of groups, on random factorisations: the closed form equals dense einops, symbolic equality equals
// equality of the lists, and no input gets past both an answer and an error.
#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <random>
#include <set>

#include "dsl/rearrange/groups_for_test.h"

namespace paratope {
namespace {

// A random world, factored by random axes, split at random into groups and members.
struct RandomGroup {
  Mesh mesh;
  std::vector<std::string> names;

  RandomGroup(std::mt19937_64 &random, const char *letters) {
    for (size_t i = 0, count = random() % 5 + 1; i < count; ++i) {
      names.push_back(std::string(1, letters[i]));
      mesh.axes.push_back({names.back(), static_cast<int64_t>(random() % 4 + 1), ""});
      mesh.world *= mesh.axes.back().size;
    }
  }

  std::string list(std::vector<std::string> these) const {
    std::string text;
    for (const std::string &name : these)
      text += (text.empty() ? "" : " ") + name;
    return these.size() == 1 ? text : these.empty() ? "1" : "(" + text + ")";
  }

  std::string right(std::mt19937_64 &random) const {
    std::vector<std::string> order = names;
    std::shuffle(order.begin(), order.end(), random);
    const auto cut = static_cast<int64_t>(random() % (order.size() + 1));
    return list({order.begin(), order.begin() + cut}) + " " + list({order.begin() + cut, order.end()});
  }
};

// The groups as dense einops makes them.
Lists dense(const Mesh &mesh, const Patterns &patterns) {
  std::vector<int64_t> values(static_cast<size_t>(mesh.world)), shape = {mesh.world};
  std::iota(values.begin(), values.end(), 0);
  for (const std::string &text : patterns) {
    PatternErrors errors;
    const Pattern pattern = parse_pattern(text, errors).value();
    std::vector<SizedAxis> used;
    for (const SizedAxis &axis : mesh.axes)
      if (text.find(axis.name) != std::string::npos)
        used.push_back(axis);
    const Rearrangement step = rearrange(pattern, shape, used, errors).value();
    std::vector<int64_t> next;
    for (int64_t from : values_on_iota(step))
      next.push_back(values[static_cast<size_t>(from)]);
    values = std::move(next);
    shape = step.out_shape;
  }
  Lists all(static_cast<size_t>(shape.at(0)));
  for (size_t i = 0; i < values.size(); ++i)
    all[i / static_cast<size_t>(shape.at(1))].push_back(mesh.rank_offset + values[i]);
  return all;
}

TEST(Groups, AgreeWithDenseEinops) {
  const uint64_t seed = 2026;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int closed = 0, tables = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    RandomGroup drawn(random, "abcde");
    drawn.mesh.rank_offset = static_cast<int64_t>(random() % 3) * 100;
    Patterns patterns = {drawn.list(drawn.names) + " -> " + drawn.right(random)};
    if (trial % 2 == 0) {
      // A second factorisation of the same world, which may or may not align with the first.
      RandomGroup second(random, "vwxyz");
      second.mesh.axes[0].size = 0;
      int64_t others = 1;
      for (size_t i = 1; i < second.mesh.axes.size(); ++i)
        others *= second.mesh.axes[i].size;
      if (drawn.mesh.world % others != 0)
        continue;
      second.mesh.axes.erase(second.mesh.axes.begin()); // inferred
      drawn.mesh.axes.insert(drawn.mesh.axes.end(), second.mesh.axes.begin(), second.mesh.axes.end());
      std::vector<std::string> order = drawn.names;
      std::shuffle(order.begin(), order.end(), random);
      patterns = {drawn.list(drawn.names) + " -> " + drawn.list(order),
                  second.list(second.names) + " -> " + second.right(random)};
    }
    SCOPED_TRACE(fmt::format("{}", fmt::join(patterns, " ; ")));
    const GroupLayout group = build(drawn.mesh, patterns);
    const Lists expected = dense(drawn.mesh, patterns);
    ASSERT_EQ(lists(group), expected);
    ASSERT_EQ(group.count * group.size, group.world);
    bool is_contiguous = true;
    std::set<int64_t> steps;
    for (size_t i = 0; i < expected.size(); ++i)
      for (size_t j = 0; j < expected[i].size(); ++j) {
        ASSERT_EQ(color_of(group, expected[i][j]), static_cast<int64_t>(i));
        ASSERT_EQ(key_of(group, expected[i][j]), static_cast<int64_t>(j));
        if (j > 0) {
          is_contiguous = is_contiguous && expected[i][j] == expected[i][j - 1] + 1;
          steps.insert(expected[i][j] - expected[i][j - 1]);
        }
      }
    ASSERT_EQ(contiguous(group), is_contiguous);
    ASSERT_EQ(stride(group).has_value(), steps.size() <= 1);
    if (steps.size() == 1) {
      ASSERT_EQ(stride(group), *steps.begin());
    }
    ++(group.closed_form() ? closed : tables);
  }
  EXPECT_GT(closed, 1000);
  EXPECT_GT(tables, 20);
}

TEST(Groups, EqualExactlyWhenTheirListsAre) {
  const uint64_t seed = 99;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int equal = 0, same_order = 0, different = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const RandomGroup drawn(random, "abcde");
    std::vector<GroupLayout> groups;
    for (int i = 0; i < 6; ++i)
      groups.push_back(build(drawn.mesh, {drawn.list(drawn.names) + " -> " + drawn.right(random)}));
    Mesh mapped = drawn.mesh;
    mapped.rank_map.resize(static_cast<size_t>(mapped.world));
    std::iota(mapped.rank_map.begin(), mapped.rank_map.end(), 0);
    if (mapped.world > 1)
      std::swap(mapped.rank_map[0], mapped.rank_map[random() % mapped.rank_map.size()]);
    groups.push_back(build(mapped, {drawn.list(drawn.names) + " -> " + drawn.right(random)}));
    for (const GroupLayout &a : groups)
      for (const GroupLayout &b : groups) {
        Lists listed_a = lists(a), listed_b = lists(b);
        ASSERT_EQ(same_groups(a, b), listed_a == listed_b);
        same_order += listed_a == listed_b;
        std::sort(listed_a.begin(), listed_a.end());
        std::sort(listed_b.begin(), listed_b.end());
        ASSERT_EQ(same_members(a, b), listed_a == listed_b);
        ++(listed_a == listed_b ? equal : different);
      }
  }
  EXPECT_GT(equal, same_order);
  EXPECT_GT(different, 1000);
}

TEST(Groups, AnythingIsBuiltOrRefused) {
  // Random tokens, and sizes from the ends of their range: whatever comes in, either groups that number every
  // rank once come out, or errors whose places lie inside their pattern.
  const uint64_t seed = 314;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> tokens = {"a", "b",   "c",  "d",   "(", ")", "(",
                                           ")", " 1 ", "->", "...", "_", "2", ","};
  const std::vector<int64_t> numbers = {1,         2, 3, 8, 12, 36, 4093, int64_t{1} << 31, int64_t{1} << 40,
                                        INT64_MAX, 0, -1};
  auto pick = [&](const auto &from) { return from[random() % from.size()]; };
  int built = 0, refused = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    Patterns patterns;
    for (uint64_t i = 0, count = random() % 2 + 1; i < count; ++i) {
      std::string text;
      if (random() % 4 != 0) { // mostly well formed, so that sizes are reached
        std::vector<std::string> names = {"a", "b", "c"};
        std::shuffle(names.begin(), names.end(), random);
        const bool is_last = i + 1 == count;
        text = "(a b c) -> " + (is_last == (random() % 8 != 0)
                                    ? fmt::format("({} {}) {}", names[0], names[1], names[2])
                                    : fmt::format("({} {} {})", names[0], names[1], names[2]));
      } else {
        for (uint64_t j = 0, length = random() % 12; j < length; ++j)
          text += pick(tokens) + (random() % 2 ? " " : "");
      }
      patterns.push_back(text);
    }
    Mesh mesh = mesh_of(pick(numbers));
    for (const char *name : {"a", "b", "c"})
      if (random() % 3 != 0)
        mesh.axes.push_back({name, numbers[random() % (random() % 2 ? 6 : numbers.size())], ""});
    if (random() % 8 == 0)
      mesh.rank_offset = pick(numbers);
    for (uint64_t i = 0, entries = random() % 8 == 0 ? random() % 5 : 0; i < entries; ++i)
      mesh.rank_map.push_back(pick(numbers) % 4);
    PatternErrors errors;
    const auto group = build_group(mesh, patterns, errors);
    ASSERT_EQ(group.has_value(), errors.empty());
    if (group) {
      ++built;
      ASSERT_EQ(group->count * group->size, mesh.world);
      for (int64_t local : {int64_t{0}, mesh.world / 2, mesh.world - 1}) {
        const int64_t rank = mesh.rank_offset + local;
        ASSERT_EQ(rank_of(*group, color_of(*group, rank), key_of(*group, rank)), rank);
      }
      continue;
    }
    ++refused;
    for (const PatternError &error : errors) {
      ASSERT_FALSE(to_string(error, patterns).empty());
      ASSERT_FALSE(error.code.empty() || error.message.empty());
      if (error.pattern_idx < 0)
        continue;
      const auto length = static_cast<int64_t>(patterns.at(static_cast<size_t>(error.pattern_idx)).size());
      ASSERT_TRUE(0 <= error.begin && error.begin <= error.end && error.end <= length) << error.message;
    }
  }
  EXPECT_GT(built, 80);
  EXPECT_GT(refused, 1500);
}

} // namespace
} // namespace paratope
