// SPDX-License-Identifier: Apache-2.0
//
// From patterns to groups: rearrange the ranks symbolically, pattern after pattern, cut the resulting layout
// into groups and members, and turn it around into digits of the rank.
#include "dsl/rearrange/groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "dsl/rearrange/sizes.h"

namespace paratope {
namespace {

PatternError &add(PatternErrors &errors, std::string code, int64_t pattern_idx, std::string message) {
  PatternError &added = errors.emplace_back();
  added.code = std::move(code);
  added.message = std::move(message);
  added.pattern_idx = pattern_idx;
  return added;
}

void check_rank_map(const Mesh &mesh, PatternErrors &errors) {
  const auto length = static_cast<int64_t>(mesh.rank_map.size());
  if (length > max_table_ranks) {
    add(errors, "rank-map-too-long", -1,
        fmt::format("rank_map has at most {} entries, got {}", max_table_ranks, length));
    return;
  }
  if (length != mesh.world)
    add(errors, "rank-map-length", -1,
        fmt::format("rank_map must have one entry a rank: expected {} entries, got {}", mesh.world, length));
  std::vector<int64_t> place(mesh.rank_map.size(), -1); // of each rank
  for (int64_t i = 0; i < length; ++i) {
    const int64_t rank = mesh.rank_map[static_cast<size_t>(i)];
    if (rank < 0 || rank >= mesh.world) {
      add(errors, "rank-map-range", -1,
          fmt::format("rank_map entry {} is outside the world 0 … {}, got {}", i, mesh.world - 1, rank))
          .entry_idx = i;
      continue;
    }
    if (rank >= length)
      continue; // the length is wrong already
    int64_t &earlier = place[static_cast<size_t>(rank)];
    if (earlier >= 0)
      add(errors, "rank-map-repeated", -1,
          fmt::format("rank_map entries {} and {} name the same rank: {}", earlier, i, rank))
          .entry_idx = i;
    else
      earlier = i;
  }
}

// What a group's patterns must look like beyond what every pattern must.
void check_form(const Pattern &pattern, bool is_first, bool is_last, int64_t pattern_idx,
                PatternErrors &errors) {
  for (const PatternSide *side : {&pattern.left, &pattern.right})
    for (const PatternDim &dim : side->dims)
      for (const PatternAxis &axis : dim.axes)
        if (axis.kind == PatternAxis::Kind::ellipsis) {
          PatternError &added =
              add(errors, "group-ellipsis", pattern_idx, "a group's pattern names all its axes: '...'");
          added.begin = axis.begin;
          added.end = axis.end;
        }
  auto count = [&](const PatternSide &side, size_t expected, const char *code, const char *meaning,
                   const char *fix) {
    if (side.dims.size() == expected)
      return;
    PatternError &added =
        add(errors, code, pattern_idx, fmt::format("{}, got {}", meaning, side.dims.size()));
    added.begin = side.begin;
    added.end = side.end;
    added.fix = fix;
  };
  if (is_first)
    count(pattern.left, 1, "group-left-side", "the left side is one dim, the ranks",
          "put the axes into one pair of parentheses: (a b)");
  if (is_last)
    count(pattern.right, 2, "group-right-side", "the right side is two dims, groups and members",
          "each is an axis, a parenthesised list, or 1: (a b) c");
}

// The pattern on the shape that the ones before it left: all sizes known, nothing can fail after.
std::optional<Rearrangement> arrange(const Mesh &mesh, const Pattern &pattern, int64_t pattern_idx,
                                     const std::vector<int64_t> &shape, PatternErrors &errors) {
  if (pattern.left.dims.size() != shape.size()) {
    PatternError &added = add(errors, "dim-count", pattern_idx,
                              fmt::format("the pattern before leaves {} dims of sizes {}, got {} on the left",
                                          shape.size(), fmt::join(shape, ", "), pattern.left.dims.size()));
    added.begin = pattern.left.begin;
    added.end = pattern.left.end;
    return std::nullopt;
  }
  std::vector<SizedAxis> sizes;
  PatternErrors found;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_world = shape.size() == 1;
    auto factors =
        infer_sizes(pattern.left.dims[i],
                    {.sizes = mesh.axes,
                     .dim_name = is_world ? "world" : fmt::format("dim {}", i),
                     .dim_origin = is_world ? mesh.world_origin
                                            : fmt::format("of the result of pattern {}", pattern_idx - 1),
                     .dim_size = shape[i],
                     .is_world = is_world,
                     .unsized_axes = mesh.unsized_axes},
                    found);
    if (factors)
      for (const Factor &factor : *factors)
        sizes.push_back({factor.name, factor.size, factor.inferred ? "inferred" : ""});
  }
  std::optional<Rearrangement> result;
  if (found.empty()) {
    result = rearrange(pattern, shape, sizes, found);
    if (result)
      for (size_t i = 0; i < sizes.size(); ++i)
        result->factors[i].inferred = !sizes[i].origin.empty();
  }
  for (PatternError &error : found) {
    error.pattern_idx = pattern_idx;
    for (PatternNote &note : error.notes)
      if (note.pattern_idx >= 0)
        note.pattern_idx = pattern_idx;
    errors.push_back(std::move(error));
  }
  return result;
}

// Where the ranks lie after some patterns: position → rank, as a layout or, where none exists, as a table.
struct Positions {
  StridedLayout layout;
  std::vector<int64_t> table;

  int64_t operator()(int64_t position) const {
    return table.empty() ? layout(position) : table[static_cast<size_t>(position)];
  }

  std::vector<int64_t> listed(const StridedLayout &next, int64_t world) const {
    std::vector<int64_t> ranks(static_cast<size_t>(world));
    for (int64_t i = 0; i < world; ++i)
      ranks[static_cast<size_t>(i)] = (*this)(next(i));
    return ranks;
  }
};

// The digits of color or key: modes hold the digit (r / stride) % size, and count up from the innermost.
DigitSum digits_of_modes(std::span<const Mode> modes) {
  DigitSum sum;
  int64_t mul = 1;
  for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
    sum.digits.push_back({mode->stride, mode->size, mul});
    mul *= mode->size;
  }
  return canonical(std::move(sum));
}

// Do the digits of color and key take every rank apart exactly once, and number groups and members without
// gap?
bool take_apart(const DigitSum &color, const DigitSum &key, int64_t world, int64_t count, int64_t size) {
  auto tiles = [](std::vector<Digit> digits, int64_t Digit::*at, int64_t end) {
    std::sort(digits.begin(), digits.end(), [at](const Digit &a, const Digit &b) { return a.*at < b.*at; });
    int64_t place = 1;
    for (const Digit &digit : digits) {
      if (digit.*at != place)
        return false;
      place *= digit.mod;
    }
    return place == end;
  };
  std::vector<Digit> both = color.digits;
  both.insert(both.end(), key.digits.begin(), key.digits.end());
  return tiles(both, &Digit::div, world) && tiles(color.digits, &Digit::mul, count) &&
         tiles(key.digits, &Digit::mul, size);
}

// Color and key from a list of ranks by position. A rank map, or patterns that do not align, may still make
// groups that have a closed form; only where they do not, the tables stay.
void digits_from_list(GroupLayout &group, std::vector<int64_t> ranks) {
  std::vector<int64_t> color(ranks.size()), key(ranks.size());
  for (size_t position = 0; position < ranks.size(); ++position) {
    const auto rank = static_cast<size_t>(ranks[position]);
    color[rank] = static_cast<int64_t>(position) / group.size;
    key[rank] = static_cast<int64_t>(position) % group.size;
  }
  std::optional<DigitSum> color_digits = digits_of(color), key_digits = digits_of(key);
  if (color_digits && key_digits &&
      take_apart(*color_digits, *key_digits, group.world, group.count, group.size)) {
    group.color = std::move(*color_digits);
    group.key = std::move(*key_digits);
    return;
  }
  group.color.table = std::move(color);
  group.key.table = std::move(key);
  group.ranks = std::move(ranks);
}

// The rank whose digits give `number`.
int64_t invert(const DigitSum &sum, int64_t number) {
  int64_t rank = 0;
  for (const Digit &digit : sum.digits)
    rank += number / digit.mul % digit.mod * digit.div;
  return rank;
}

} // namespace

bool check_mesh(const Mesh &mesh, PatternErrors &errors) {
  const size_t before = errors.size();
  check_sizes(mesh.axes, 1, errors);
  int64_t end = 0;
  if (mesh.rank_offset < 0)
    add(errors, "rank-offset", -1, fmt::format("rank_offset is at least 0, got {}", mesh.rank_offset));
  else if (__builtin_add_overflow(mesh.rank_offset, mesh.world, &end))
    add(errors, "rank-offset", -1,
        fmt::format("rank_offset + world is beyond 2^63 - 1: {} + {}", mesh.rank_offset, mesh.world));
  if (mesh.world < 1)
    add(errors, "world-size", -1, fmt::format("a world has at least 1 rank, got {}", mesh.world)).axis =
        "world";
  else if (!mesh.rank_map.empty())
    check_rank_map(mesh, errors);
  return errors.size() == before;
}

std::optional<GroupLayout> build_group(const Mesh &mesh, std::span<const std::string> patterns,
                                       PatternErrors &errors) {
  const size_t before = errors.size();
  check_mesh(mesh, errors);
  if (patterns.empty())
    add(errors, "group-empty", -1, "a group needs a pattern, got an empty list").fix =
        "write \"ranks -> 1 ranks\"";
  std::vector<Pattern> parsed;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const size_t already = errors.size();
    std::optional<Pattern> pattern = parse_pattern(patterns[i], errors);
    for (size_t e = already; e < errors.size(); ++e) {
      errors[e].pattern_idx = static_cast<int64_t>(i);
      for (PatternNote &note : errors[e].notes)
        note.pattern_idx = static_cast<int64_t>(i);
    }
    if (!pattern)
      continue;
    check_form(*pattern, i == 0, i + 1 == patterns.size(), static_cast<int64_t>(i), errors);
    parsed.push_back(std::move(*pattern));
  }
  if (errors.size() != before)
    return std::nullopt;

  GroupLayout group;
  group.world = mesh.world;
  group.rank_offset = mesh.rank_offset;
  std::vector<int64_t> shape = {mesh.world};
  Positions positions;
  positions.layout.modes = {{mesh.world, 1}};
  for (size_t i = 0; i < parsed.size(); ++i) {
    std::optional<Rearrangement> step = arrange(mesh, parsed[i], static_cast<int64_t>(i), shape, errors);
    if (!step)
      return std::nullopt;
    for (const Factor &factor : step->factors)
      if (factor.inferred)
        group.inferred.push_back(factor);
    std::optional<StridedLayout> composed;
    if (positions.table.empty())
      composed = compose(positions.layout, step->layout);
    if (composed) {
      positions.layout = std::move(*composed);
    } else if (mesh.world <= max_table_ranks) {
      positions.table = positions.listed(step->layout, mesh.world);
    } else {
      PatternError &added = add(
          errors, "group-no-closed-form", static_cast<int64_t>(i),
          fmt::format("factors do not align with those of the pattern before, which is supported up to {} "
                      "ranks, got world = {}",
                      max_table_ranks, mesh.world));
      added.begin = parsed[i].left.begin;
      added.end = parsed[i].left.end;
      added.fix = "cut the ranks where the pattern before cuts them";
      return std::nullopt;
    }
    shape = step->out_shape;
  }
  group.count = shape[0];
  group.size = shape[1];

  if (positions.table.empty() && mesh.rank_map.empty()) {
    // The outer modes number groups, the inner ones members; a mode never spans both.
    const std::span<const Mode> modes = positions.layout.modes;
    size_t cut = 0;
    for (int64_t groups = 1; groups < group.count; ++cut)
      groups *= modes[cut].size;
    group.color = digits_of_modes(modes.first(cut));
    group.key = digits_of_modes(modes.subspan(cut));
    return group;
  }
  std::vector<int64_t> ranks = positions.listed({{{mesh.world, 1}}}, mesh.world);
  if (!mesh.rank_map.empty())
    for (int64_t &rank : ranks)
      rank = mesh.rank_map[static_cast<size_t>(rank)];
  digits_from_list(group, std::move(ranks));
  return group;
}

int64_t color_of(const GroupLayout &group, int64_t rank) {
  if (rank < group.rank_offset || rank - group.rank_offset >= group.world)
    return -1;
  return group.color(rank - group.rank_offset);
}

int64_t key_of(const GroupLayout &group, int64_t rank) {
  if (rank < group.rank_offset || rank - group.rank_offset >= group.world)
    return -1;
  return group.key(rank - group.rank_offset);
}

int64_t rank_of(const GroupLayout &group, int64_t group_idx, int64_t member_idx) {
  const int64_t local = group.closed_form()
                            ? invert(group.color, group_idx) + invert(group.key, member_idx)
                            : group.ranks[static_cast<size_t>(group_idx * group.size + member_idx)];
  return group.rank_offset + local;
}

std::vector<int64_t> members(const GroupLayout &group, int64_t group_idx) {
  std::vector<int64_t> ranks(static_cast<size_t>(group.size));
  for (int64_t i = 0; i < group.size; ++i)
    ranks[static_cast<size_t>(i)] = rank_of(group, group_idx, i);
  return ranks;
}

// In closed form the digits of the key are the steps from member to member, and the first member of a rank's
// group is the rank without them: equal keys are equal lists, and canonical sums are equal exactly when the
// functions are. A table is compared rank by rank.
bool same_members(const GroupLayout &a, const GroupLayout &b) {
  if (a.world != b.world || a.size != b.size || a.rank_offset != b.rank_offset)
    return false;
  if (a.closed_form() && b.closed_form())
    return a.key == b.key;
  for (int64_t rank = 0; rank < a.world; ++rank)
    if (a.key(rank) != b.key(rank) || rank_of(a, a.color(rank), 0) != rank_of(b, b.color(rank), 0))
      return false;
  return true;
}

bool same_groups(const GroupLayout &a, const GroupLayout &b) {
  return a.world == b.world && a.size == b.size && a.rank_offset == b.rank_offset && a.color == b.color &&
         a.key == b.key;
}

std::optional<int64_t> stride(const GroupLayout &group) {
  if (group.size == 1)
    return 1;
  if (group.closed_form())
    return group.key.digits.size() == 1 ? std::optional(group.key.digits[0].div) : std::nullopt;
  const int64_t step = rank_of(group, 0, 1) - rank_of(group, 0, 0);
  for (int64_t i = 0; i < group.count; ++i)
    for (int64_t j = 1; j < group.size; ++j)
      if (rank_of(group, i, j) - rank_of(group, i, j - 1) != step)
        return std::nullopt;
  return step;
}

bool contiguous(const GroupLayout &group) { return stride(group) == 1; }

} // namespace paratope
