// SPDX-License-Identifier: Apache-2.0
//
// The mesh as later stages ask about it: which axes a tensor may be split over, which block of each a rank
// holds, and what is left outside a group. Everything is closed form; nothing here enumerates ranks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dsl/rearrange/groups.h"
#include "dsl/topo/dialect.h"

namespace paratope {

// An axis of sharding: `size` blocks, and the block each rank holds.
struct ShardAxis {
  std::string name;
  int64_t size = 1;
  DigitSum block;
};

class MeshView {
public:
  int64_t world = 1;
  std::map<std::string, GroupLayout> groups; // by name, every topo.group
  std::vector<ShardAxis> axes; // one a group of more than one rank, then `outside` and engine axes

  // A group's size; 1 when the topology has no such group.
  int64_t size_of(const std::string &group) const;
  // The axis of that name; asserts that there is one.
  const ShardAxis &axis(const std::string &name) const;
  bool has_axis(const std::string &name) const;
  // Axes whose blocks number the groups of `group`: {} when there is one group. Tokens gathered over a group
  // are still split over what lies outside it.
  std::vector<std::string> outside(const std::string &group) const;
  // Axes that number the engines: {} when there is one. An engine's ranks hold the same tokens.
  std::vector<std::string> engine_axes;
  // Where a token lives between sublayers: the engine, and under cp the rank that has its block of the
  // prompt.
  std::vector<std::string> token_axes;

  // Whether the axes number ranks apart: every combination of their blocks is there, on as many ranks as any
  // other.
  bool independent(const std::vector<std::string> &names) const;
  // Whether a tensor split over these axes has a different block on every rank of the world.
  bool covers_world(const std::vector<std::string> &names) const;

private:
  // Some axes side by side: the product of their sizes and, where all have a closed form, their digits by
  // `div`.
  struct Together {
    int64_t blocks = 1;
    bool closed_form = false;
    std::vector<Digit> digits;
    std::vector<const ShardAxis *> axes;
  };
  std::optional<Together> together(const std::vector<std::string> &names) const;

  std::map<std::string, std::string> outside_axis; // group → axis name, where there is more than one group
  friend mlir::FailureOr<MeshView> view_mesh(mlir::ModuleOp module);
};

// Reads mesh, groups and sizes of a module whose sizes are derived. Errors of patterns are reported at the
// offending axis name inside the pattern.
mlir::FailureOr<MeshView> view_mesh(mlir::ModuleOp module);

// The closed form as an affine map of the rank, for topo.comm.
mlir::AffineMap to_affine(mlir::MLIRContext *context, const DigitSum &sum);

} // namespace paratope
