// SPDX-License-Identifier: Apache-2.0
//
// Every group list recorded from the systems we model (tests/golden/peers), reproduced by a pattern: same
// groups, same order of groups, same order inside.
#include "dsl/rearrange/groups.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

namespace paratope {
namespace {

TEST(Peers, PatternsReproduceTheirGroups) {
  std::map<std::string, int> lists; // checked, a peer
  for (const auto &entry : std::filesystem::directory_iterator(PARATOPE_SOURCE_DIR "/tests/golden/peers")) {
    if (entry.path().extension() != ".json")
      continue;
    SCOPED_TRACE(entry.path().filename());
    std::ifstream file(entry.path());
    const nlohmann::json golden = nlohmann::json::parse(file);
    Mesh mesh;
    mesh.world = golden["world"];
    for (const auto &[name, size] : golden["axes"].items())
      mesh.axes.push_back({name, size, ""});
    mesh.rank_map = golden.value("rank_map", std::vector<int64_t>{});
    for (const auto &[name, expected] : golden["groups"].items()) {
      SCOPED_TRACE(name);
      const std::vector<std::string> patterns = expected["patterns"];
      PatternErrors errors;
      const auto group = build_group(mesh, patterns, errors);
      ASSERT_TRUE(group) << to_string(errors.at(0), patterns);
      std::vector<std::vector<int64_t>> listed;
      for (int64_t i = 0; i < group->count; ++i)
        listed.push_back(members(*group, i));
      ASSERT_EQ(listed, expected["members"].get<std::vector<std::vector<int64_t>>>());
      for (int64_t i = 0; i < group->count; ++i)
        for (int64_t j = 0; j < group->size; ++j) {
          const int64_t rank = listed[static_cast<size_t>(i)][static_cast<size_t>(j)];
          ASSERT_EQ(color_of(*group, rank), i);
          ASSERT_EQ(key_of(*group, rank), j);
        }
      EXPECT_TRUE(group->closed_form()); // even the mesh with a rank map
      ++lists[golden["peer"]];
    }
  }
  EXPECT_EQ(lists, (std::map<std::string, int>{{"jax mesh_utils", 2},
                                               {"megatron-core", 72},
                                               {"sglang", 28},
                                               {"tensorrt_llm", 16},
                                               {"torch DeviceMesh", 11},
                                               {"vllm", 26}}));
}

// What the same systems accept today although some rank ends up in no group, in a group outside the world, or
// in an empty one.
struct Accepted {
  const char *by;
  int64_t world;
  std::vector<SizedAxis> axes;
  const char *pattern;
  const char *code;
};

TEST(Peers, WhatTheyAcceptIsRefused) {
  const std::vector<Accepted> accepted = {
      {"sglang: tp 8, attention dp 3 leaves ranks 6 and 7 out",
       8,
       {{"dp", 3, ""}},
       "(dp tp) -> dp tp",
       "not-divisible"},
      {"sglang: ep 3 of 8 likewise", 8, {{"ep", 3, ""}}, "(ep moe_tp) -> moe_tp ep", "not-divisible"},
      {"sglang: dp 4, cp 4 of 8: attention groups of no rank",
       8,
       {{"dp", 4, ""}, {"cp", 4, ""}},
       "(dp cp tp) -> (dp cp) tp",
       "not-divisible"},
      {"megatron: tp twice in the order, ranks up to 29 in a world of 16",
       16,
       {{"tp", 2, ""}},
       "(dp tp tp) -> dp tp tp",
       "pattern-repeated-axis"},
      {"tensorrt-llm: a list of groups that ends at rank 3 of 8",
       8,
       {{"pp", 2, ""}, {"tp", 2, ""}},
       "(pp tp) -> pp tp",
       "ranks-uncovered"},
  };
  for (const Accepted &entry : accepted) {
    Mesh mesh;
    mesh.world = entry.world;
    mesh.axes = entry.axes;
    PatternErrors errors;
    EXPECT_FALSE(build_group(mesh, std::vector<std::string>{entry.pattern}, errors)) << entry.by;
    ASSERT_FALSE(errors.empty()) << entry.by;
    EXPECT_EQ(errors[0].code, entry.code) << entry.by;
  }
}

} // namespace
} // namespace paratope
