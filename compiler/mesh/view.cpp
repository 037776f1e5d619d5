// SPDX-License-Identifier: Apache-2.0
//
// Axes are told apart by their digits, not by their names: where "outside ep" and "dp" number the ranks
// alike, they are one axis and carry one name, so that comparing names in types compares meanings.
#include "compiler/mesh/view.h"

#include <algorithm>
#include <cassert>

#include "mlir/IR/AffineExpr.h"

#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope {

int64_t MeshView::size_of(const std::string &group) const {
  auto found = groups.find(group);
  return found == groups.end() ? 1 : found->second.size;
}

bool MeshView::has_axis(const std::string &name) const {
  return std::any_of(axes.begin(), axes.end(), [&](const ShardAxis &axis) { return axis.name == name; });
}

const ShardAxis &MeshView::axis(const std::string &name) const {
  auto found =
      std::find_if(axes.begin(), axes.end(), [&](const ShardAxis &axis) { return axis.name == name; });
  assert(found != axes.end() && "no such axis");
  return *found;
}

std::vector<std::string> MeshView::outside(const std::string &group) const {
  auto found = outside_axis.find(group);
  return found == outside_axis.end() ? std::vector<std::string>{} : std::vector<std::string>{found->second};
}

// Axes without a closed form: which combinations of their blocks the ranks have, and how often. Tables end at
// max_table_ranks, so ranks may be counted here.
static std::map<std::vector<int64_t>, int64_t> combinations(const std::vector<const ShardAxis *> &axes,
                                                            int64_t world) {
  std::map<std::vector<int64_t>, int64_t> counts;
  std::vector<int64_t> blocks(axes.size());
  for (int64_t rank = 0; rank < world; ++rank) {
    for (size_t i = 0; i < axes.size(); ++i)
      blocks[i] = axes[i]->block(rank);
    ++counts[blocks];
  }
  return counts;
}

std::optional<MeshView::Together> MeshView::together(const std::vector<std::string> &names) const {
  Together all;
  all.closed_form = true;
  for (const std::string &name : names) {
    if (!has_axis(name))
      return std::nullopt;
    const ShardAxis &one = axis(name);
    if (__builtin_mul_overflow(all.blocks, one.size, &all.blocks))
      return std::nullopt;
    all.axes.push_back(&one);
    all.closed_form = all.closed_form && one.block.closed_form();
    all.digits.insert(all.digits.end(), one.block.digits.begin(), one.block.digits.end());
  }
  std::sort(all.digits.begin(), all.digits.end(),
            [](const Digit &a, const Digit &b) { return a.div < b.div; });
  return all;
}

bool MeshView::covers_world(const std::vector<std::string> &names) const {
  std::optional<Together> all = together(names);
  if (!all || all->blocks != world)
    return false;
  if (!all->closed_form)
    return static_cast<int64_t>(combinations(all->axes, world).size()) == world;
  // Together the digits must take the rank apart without overlap: [div, div·mod) one after the other.
  int64_t next = 1;
  for (const Digit &digit : all->digits) {
    if (digit.div != next)
      return false;
    next = digit.div * digit.mod;
  }
  return next == world;
}

bool MeshView::independent(const std::vector<std::string> &names) const {
  std::optional<Together> all = together(names);
  if (!all || all->blocks > world)
    return false;
  if (!all->closed_form) { // every combination there, and as often as any other
    auto counts = combinations(all->axes, world);
    return static_cast<int64_t>(counts.size()) == all->blocks &&
           std::all_of(counts.begin(), counts.end(),
                       [&](const auto &entry) { return entry.second == world / all->blocks; });
  }
  // Each digit turns over a whole number of times before the next one moves: r mod 4 and r div 6 do not.
  for (size_t i = 1; i < all->digits.size(); ++i)
    if (all->digits[i].div % (all->digits[i - 1].div * all->digits[i - 1].mod) != 0)
      return false;
  return true;
}

static std::string name_for(const std::vector<ShardAxis> &axes, const DigitSum &block, std::string wanted,
                            const std::string &otherwise, bool &fresh) {
  for (const ShardAxis &axis : axes)
    if (axis.block == block) {
      fresh = false;
      return axis.name;
    }
  fresh = true;
  bool taken = wanted.empty() ||
               std::any_of(axes.begin(), axes.end(), [&](const ShardAxis &a) { return a.name == wanted; });
  return taken ? otherwise : wanted;
}

// Places an error of the pattern engine: at the bytes of the pattern it means, or at the axis to blame.
static void report_pattern_error(topo::GroupOp group, topo::MeshOp mesh, const PatternError &found) {
  auto place = [&](int64_t pattern_idx, int64_t begin, int64_t end, const std::string &axis) -> Location {
    if (pattern_idx < 0)
      return topo::location_of(mesh, found.code.find("rank") != std::string::npos ? "rank_map" : axis);
    SourceRange range = topo::to_range(topo::location_of(group, std::to_string(pattern_idx)));
    StringRef text = cast<StringAttr>(group.getPatterns()[static_cast<size_t>(pattern_idx)]).getValue();
    bool plain = range.known() && range.end_column - range.column == static_cast<int64_t>(text.size());
    if (!plain)
      return topo::location_of(group, std::to_string(pattern_idx));
    range.end_column = range.column + end;
    range.column += begin;
    return topo::to_location(group.getContext(), range);
  };
  Location in_pattern = place(found.pattern_idx, found.begin, found.end, found.axis), blamed = in_pattern;
  // A used layout's pattern is not the user's: the size that does not fit it is.
  bool size_is_to_blame = !group.getWritten() && !found.axis.empty() && found.pattern_idx >= 0;
  if (size_is_to_blame && topo::to_range(topo::location_of(mesh, found.axis)).known())
    blamed = topo::location_of(mesh, found.axis);
  InFlightDiagnostic reported = topo::error(blamed, found.code)
                                << "group '" << group.getSymName() << "': " << found.message;
  if (blamed != in_pattern)
    reported.attachNote(in_pattern) << "the group's pattern";
  for (const PatternNote &note : found.notes) {
    Location where = note.pattern_idx >= 0 ? place(note.pattern_idx, note.begin, note.end, note.axis)
                     : note.axis.empty()   ? group.getLoc()
                                           : topo::location_of(mesh, note.axis);
    reported.attachNote(where) << note.message;
  }
  if (!found.fix.empty())
    topo::set_fix(reported, found.fix);
}

// The closed form of sum(rank) div `by`, where one exists: `by` must fall between two of its digits, or
// inside one that it divides.
static std::optional<DigitSum> divided(const DigitSum &sum, int64_t by) {
  DigitSum result;
  for (int64_t value : sum.table)
    result.table.push_back(value / by);
  for (const Digit &digit : sum.digits) {
    if (digit.mul % by == 0)
      result.digits.push_back({digit.div, digit.mod, digit.mul / by});
    else if (by % digit.mul == 0 && (digit.mod * digit.mul) % by == 0) // some of its values, or none, remain
      result.digits.push_back({digit.div * (by / digit.mul), digit.mod * digit.mul / by, 1});
    else if (by % (digit.mod * digit.mul) != 0)
      return std::nullopt;
  }
  return canonical(result);
}

// Grouped-query attention under more ranks of tp than there are kv heads: axis "tp-kv" of one block a head,
// and the ranks of one block hold the same head.
static void add_kv_heads_axis(ModuleOp module, MeshView &view) {
  auto models = module.getOps<topo::ModelOp>();
  if (models.empty() || !view.has_axis("tp"))
    return;
  auto attention = (*models.begin()).getFields().getAs<DictionaryAttr>("attention");
  auto kv_heads = attention ? attention.getAs<IntegerAttr>("kv_heads") : IntegerAttr();
  const ShardAxis tp = view.axis("tp");
  if (!kv_heads || kv_heads.getInt() < 2 || tp.size <= kv_heads.getInt() || tp.size % kv_heads.getInt() != 0)
    return;
  if (std::optional<DigitSum> block = divided(tp.block, tp.size / kv_heads.getInt()))
    view.axes.push_back({"tp-kv", kv_heads.getInt(), *block});
}

FailureOr<MeshView> view_mesh(ModuleOp module) {
  MeshView view;
  auto meshes = module.getOps<topo::MeshOp>();
  auto sizes = module.getOps<topo::SizesOp>();
  if (meshes.empty() || sizes.empty())
    return topo::error(module.getLoc(), "missing-section")
           << "the module has no topo.mesh with sizes: run --topo-derive-sizes first";
  topo::MeshOp mesh_op = *meshes.begin();
  topo::SizesOp sizes_op = *sizes.begin();

  Mesh mesh;
  mesh.world = view.world = static_cast<int64_t>(sizes_op.getWorld());
  mesh.world_origin = "world";
  for (auto [name, size] : llvm::zip(mesh_op.getAxisNames(), mesh_op.getAxisSizes())) {
    auto number = dyn_cast<IntegerAttr>(size);
    if (!number)
      return topo::error(mesh_op.getLoc(), "missing-section")
             << "axis " << name << " has no size yet: run --topo-derive-sizes first";
    SizedAxis axis;
    axis.name = cast<StringAttr>(name).str();
    axis.size = number.getInt();
    SourceRange where = topo::to_range(topo::location_of(mesh_op, axis.name));
    if (where.known())
      axis.origin = where.file + ":" + std::to_string(where.line);
    mesh.axes.push_back(axis);
  }
  if (auto map = mesh_op.getRankMap())
    mesh.rank_map.assign(map->begin(), map->end());
  if (auto offset = mesh_op.getRankOffset())
    mesh.rank_offset = static_cast<int64_t>(*offset);

  bool good = true;
  for (topo::GroupOp group : module.getOps<topo::GroupOp>()) {
    std::vector<std::string> patterns;
    for (Attribute pattern : group.getPatterns())
      patterns.push_back(cast<StringAttr>(pattern).str());
    PatternErrors errors;
    std::optional<GroupLayout> layout = build_group(mesh, patterns, errors);
    for (const PatternError &found : errors)
      report_pattern_error(group, mesh_op, found);
    if (!layout) {
      good = false;
      continue;
    }
    view.groups[group.getSymName().str()] = std::move(*layout);
  }
  if (!good)
    return failure();

  // A group's own name always names its axis, even where another numbers the ranks alike; the control plane's
  // groups split no tensor.
  for (const auto &[name, layout] : view.groups)
    if (layout.size > 1 && name.rfind("cpu_", 0) != 0 && name != "world")
      view.axes.push_back({name, layout.size, layout.key});
  for (const auto &[name, layout] : view.groups)
    if (layout.count > 1) {
      bool fresh = true;
      std::string wanted = layout.inferred.size() == 1 && layout.inferred[0].size == layout.count
                               ? layout.inferred[0].name
                               : "";
      std::string axis = name_for(view.axes, layout.color, wanted, "outside-" + name, fresh);
      if (fresh)
        view.axes.push_back({axis, layout.count, layout.color});
      view.outside_axis[name] = axis;
    }
  int64_t engines = static_cast<int64_t>(sizes_op.getEngines());
  if (engines > 1) {
    std::string engine_group = sizes_op.getEngineGroup().str();
    if (!engine_group.empty()) {
      view.engine_axes = view.outside(engine_group);
    } else {
      DigitSum block;
      block.digits.push_back({1, view.world, 1});
      bool fresh = true;
      std::string axis = "dp";
      if (view.has_axis("dp") && view.axis("dp").block == canonical(block))
        fresh = false;
      else
        axis = name_for(view.axes, canonical(block), "engine", "engine", fresh);
      if (fresh)
        view.axes.push_back({axis, engines, canonical(block)});
      view.engine_axes = {axis};
    }
  }
  view.token_axes = view.engine_axes;
  if (view.has_axis("cp"))
    view.token_axes.push_back("cp");
  add_kv_heads_axis(module, view);
  return view;
}

AffineMap to_affine(MLIRContext *context, const DigitSum &sum) {
  AffineExpr rank = getAffineDimExpr(0, context), total = getAffineConstantExpr(0, context);
  for (const Digit &digit : sum.digits)
    total = total + (rank.floorDiv(digit.div) % digit.mod) * digit.mul;
  return AffineMap::get(1, 0, total);
}

} // namespace paratope
