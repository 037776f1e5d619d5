// SPDX-License-Identifier: Apache-2.0
//
// What the tests of groups share: a mesh in one line, groups that must build, and groups written out.
#pragma once

#include <gtest/gtest.h>

#include "dsl/rearrange/groups.h"

namespace paratope {

using Lists = std::vector<std::vector<int64_t>>;
using Patterns = std::vector<std::string>;

inline Mesh mesh_of(int64_t world, std::vector<SizedAxis> axes = {}) {
  Mesh mesh;
  mesh.world = world;
  mesh.axes = std::move(axes);
  return mesh;
}

inline GroupLayout build(const Mesh &mesh, const Patterns &patterns) {
  PatternErrors errors;
  std::optional<GroupLayout> group = build_group(mesh, patterns, errors);
  EXPECT_TRUE(group) << (errors.empty() ? "" : to_string(errors[0], patterns));
  return group.value_or(GroupLayout{});
}

inline Lists lists(const GroupLayout &group) {
  Lists all;
  for (int64_t i = 0; i < group.count; ++i)
    all.push_back(members(group, i));
  return all;
}

} // namespace paratope
