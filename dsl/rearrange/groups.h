// SPDX-License-Identifier: Apache-2.0
//
// Communicator groups from patterns. The left side says how rank numbers factor, the right side says which
// factors number the groups and which number the members of one:
//
//     (replica dp cp) -> (replica cp) dp        8 ranks, dp = 4, cp = 2
//      └ rank = (replica·4 + dp)·2 + cp          └ groups   └ members
//
//     rank     0 1 2 3 4 5 6 7
//     color    0 1 0 1 0 1 0 1    = r % 2        groups [0 2 4 6] [1 3 5 7]
//     key      0 0 1 1 2 2 3 3    = r / 2 % 4
//
// Order of groups and order inside a group are what the pattern says. Nothing is enumerated: color and key
// are sums of digits of the rank, two groups are compared digit by digit, and 2⁴⁰ ranks cost what 8 do. Only
// a rank map or a list of patterns whose digits do not align falls back to a table, of at most 65,536 ranks.
#pragma once

#include "dsl/rearrange/digits.h"
#include "dsl/rearrange/rearrange.h"

namespace paratope {

// The largest world for which a table of ranks may stand in for a closed form.
inline constexpr int64_t max_table_ranks = 65536;

// What all groups of a topology share.
struct Mesh {
  int64_t world = 1;        // ranks
  std::string world_origin; // in words: "max(dp·cp, enp)"
  // Sizes of the named axes. A pattern may use any of them; names that are not here are inferred, and local
  // to their pattern.
  std::vector<SizedAxis> axes;
  // Names that mean an axis but have no size: a pattern that would infer one is an error, for its size would
  // be whatever is left over.
  std::vector<std::string> unsized_axes;
  // rank_map[i] is the rank that sits at mesh position i: a permutation of 0 … world − 1, or empty.
  std::vector<int64_t> rank_map;
  // Added to every rank: places the mesh inside a larger job.
  int64_t rank_offset = 0;
};

// The mesh alone: world ≥ 1; axis sizes ≥ 1, none given twice with different values; rank_map a permutation
// of the world (length, range, repetition; at most 65,536 entries); rank_offset ≥ 0 and rank_offset + world
// no overflow. Returns whether it is good; build_group checks it again and reports the same errors.
bool check_mesh(const Mesh &mesh, PatternErrors &errors);

struct GroupLayout {
  int64_t world = 1;       // = count · size: every rank is in exactly one group
  int64_t count = 1;       // groups
  int64_t size = 1;        // ranks of one
  int64_t rank_offset = 0; // the mesh's
  DigitSum color;          // r − rank_offset → which group; canonical
  DigitSum key;            // r − rank_offset → which member; canonical
  std::vector<int64_t>
      ranks; // only when color and key are tables: position color·size + key → r − rank_offset
  std::vector<Factor> inferred; // the local names and the sizes they took, in order of appearance

  bool closed_form() const { return ranks.empty(); }
};

// Groups of one pattern, or of several applied in turn, each to the result of the one before. The first takes
// the ranks as one dim; the right side of the last has two dims, groups and members (each an axis, a
// parenthesised list, or 1). Ellipses are not allowed.
// Errors, besides those of parse_pattern and rearrange: a world that the sized axes do not divide (a note for
// each factor and where it came from, and the sizes that would do); sized axes that leave ranks uncovered, or
// number ranks outside the world; a local name that shadows an axis without a size; a right side of other
// than two dims; a list of patterns without closed form over more than max_table_ranks ranks.
std::optional<GroupLayout> build_group(const Mesh &mesh, std::span<const std::string> patterns,
                                       PatternErrors &errors);

// Which group a rank is in, and which member it is; −1 for ranks outside the mesh (NOCOLOR).
int64_t color_of(const GroupLayout &group, int64_t rank);
int64_t key_of(const GroupLayout &group, int64_t rank);

// The rank of a member, 0 ≤ group_idx < count, 0 ≤ member_idx < size.
int64_t rank_of(const GroupLayout &group, int64_t group_idx, int64_t member_idx);

// The ordered ranks of one group. Allocates 8 bytes a member.
std::vector<int64_t> members(const GroupLayout &group, int64_t group_idx);

// Do both cut the ranks into the same ordered member lists? Then they can share communicators. The order in
// which the groups are listed does not matter; same_groups wants that to agree too. Costs a comparison of
// digits; with a table on either side, one pass over the ranks.
bool same_members(const GroupLayout &a, const GroupLayout &b);
bool same_groups(const GroupLayout &a, const GroupLayout &b);

// The step from one member to the next when it is the same everywhere in every group (1 for groups of one
// rank), or nothing.
std::optional<int64_t> stride(const GroupLayout &group);

// Are the members of every group neighbours, in ascending order?
bool contiguous(const GroupLayout &group);

} // namespace paratope
