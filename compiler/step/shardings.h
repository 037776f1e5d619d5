// SPDX-License-Identifier: Apache-2.0
//
// The sharding rule of every op: what it needs of its operands, and what its results then are. The step
// builder types results by it, exchange insertion mends what does not meet it, and the check proves that all
// does.
//
//     op                     operand needs                    result
//     rms_norm, gate, hc_*   [tokens, {}]                     [tokens, {}]
//     linear, W [A, B]       [tokens, B]                      [tokens, A], partial B
//     rope, attention, …     [tokens, heads]                  [tokens, heads]
//     linear, W whole        [tokens' home, {}]               the same (output groups that og had cut)
//     gate_up, W13 [·, A, ·] [tokens, {}]                     [tokens, A]
//     o_group_proj, Wo_a [A] [outside A, A]                   the same
//     routed_experts, E [A]  [outside A, {}]                  [outside A, {}], partial A
//     expert_gate_up, E [A]  [outside A + A, {}]              the same
//     kv_append, mirror_restore   [engine, ·]                 the whole engine's tokens
//
// Experts may be split over ep (which experts) and moe_tp (the inner width of each); over both, A of
// routed_experts is the group `experts`, whose ranks together hold every expert whole.
#pragma once

#include "llvm/ADT/SmallVector.h"

#include "compiler/mesh/view.h"
#include "compiler/step/dialect.h"

namespace paratope::step {

// A sharding as plain values: the axes of each dim, and the axes of an unreduced sum.
struct Sharding {
  std::vector<std::vector<std::string>> dims;
  std::vector<std::string> partial;

  bool operator==(const Sharding &) const = default;
  bool is_whole() const;
};

Sharding sharding_of(mlir::Value value);
Sharding sharding_of(mlir::Type type);
mlir::RankedTensorType with_sharding(mlir::RankedTensorType type, const Sharding &sharding);
// "[{"dp"}, {}], partial ["tp"]", or "whole"
std::string to_string(const Sharding &sharding);

// Elements of the part a rank holds: the global shape with each split dim divided (rounded up).
llvm::SmallVector<int64_t> local_shape(mlir::RankedTensorType type, const MeshView &mesh);

// What `op` needs of operand `idx`, given the others; nothing for an operand that may have any sharding (a
// weight, whose own split decides the rule).
std::optional<Sharding> needed(mlir::Operation *op, unsigned idx, const MeshView &mesh);

// The sharding of result `idx` of a compute op whose operands are as needed.
Sharding result_sharding(mlir::Operation *op, unsigned idx, const MeshView &mesh);

} // namespace paratope::step
