// SPDX-License-Identifier: Apache-2.0
//
// Stage "size": what follows from the file's numbers. Axes that are products, the world, engines and
// replicas, physical experts and the slot table. Each finding points at the number that caused it and names
// every factor with the place it came from.
//
//     world = max(dp·cp, enp)        an engine = the ranks of one tp (or cp) group
//     engines = world / (tp·cp)      replicas = engines / dp
#include <map>
#include <set>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"
#include "nlohmann/json.hpp"

#include "compiler/experts/eplb.h"
#include "compiler/experts/expected_load.h"
#include "compiler/experts/placement.h"
#include "compiler/experts/redundancy.h"
#include "compiler/mesh/domain.h"
#include "compiler/mesh/loads.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_TOPODERIVESIZES
#include "Passes.h.inc"

namespace {

// What one engine brings to a step.
struct Batch {
  int64_t sequences = 0, tokens = 0, mirror = 0;
};

class DeriveSizes : public impl::TopoDeriveSizesBase<DeriveSizes> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (topo::SizesOp old : llvm::make_early_inc_range(module.getOps<topo::SizesOp>()))
      old.erase();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    if (failed(derive(*module.getOps<topo::MeshOp>().begin(), module, *spec)))
      signalPassFailure();
  }

  LogicalResult derive(topo::MeshOp mesh, ModuleOp module, const TopologySpec &spec);
  LogicalResult resolve_axes(topo::MeshOp mesh);
  FailureOr<int64_t> resolve_world(topo::MeshOp mesh);
  FailureOr<int64_t> product(topo::MeshOp mesh, ArrayRef<Attribute> names, StringRef of);
  FailureOr<Batch> engine_batch(topo::MeshOp mesh, ModuleOp module, const TopologySpec &spec,
                                int64_t engine_ranks, int64_t cp, int64_t engines);
  FailureOr<std::vector<int64_t>> place(ModuleOp module, const TopologySpec &spec, const ExpertCounts &counts,
                                        int64_t world);

  std::map<std::string, int64_t> size_of; // every axis
};

int64_t axis_size(const std::map<std::string, int64_t> &sizes, const char *name) {
  auto found = sizes.find(name);
  return found == sizes.end() ? 1 : found->second;
}

FailureOr<int64_t> DeriveSizes::product(topo::MeshOp mesh, ArrayRef<Attribute> names, StringRef of) {
  int64_t total = 1;
  for (Attribute name : names) {
    auto found = size_of.find(cast<StringAttr>(name).str());
    if (found == size_of.end())
      return topo::error(topo::location_of(mesh, of), "unknown-axis")
             << of << " is a product of " << name << ", which is not an axis";
    if (__builtin_mul_overflow(total, found->second, &total))
      return topo::error(topo::location_of(mesh, of), "overflow") << of << " does not fit 64 bits";
  }
  return total;
}

// Sizes that are products of axes, in whatever order they depend on each other.
LogicalResult DeriveSizes::resolve_axes(topo::MeshOp mesh) {
  SmallVector<Attribute> sizes(mesh.getAxisSizes().begin(), mesh.getAxisSizes().end());
  std::set<std::string> known;
  for (Attribute name : mesh.getAxisNames())
    known.insert(cast<StringAttr>(name).str());
  for (bool moved = true; moved;) {
    moved = false;
    for (auto [idx, name_attr] : llvm::enumerate(mesh.getAxisNames())) {
      std::string name = cast<StringAttr>(name_attr).str();
      if (size_of.count(name))
        continue;
      if (auto number = dyn_cast<IntegerAttr>(sizes[idx])) {
        size_of[name] = number.getInt();
        moved = true;
        continue;
      }
      ArrayRef<Attribute> names = cast<ArrayAttr>(sizes[idx]).getValue();
      bool ready = true;
      for (Attribute part : names) {
        if (!known.count(cast<StringAttr>(part).str()))
          return topo::error(topo::location_of(mesh, name), "unknown-axis")
                 << "axis '" << name << "' is a product of " << part << ", which is not an axis";
        ready = ready && size_of.count(cast<StringAttr>(part).str());
      }
      if (!ready)
        continue;
      FailureOr<int64_t> value = product(mesh, names, name);
      if (failed(value))
        return failure();
      size_of[name] = *value;
      sizes[idx] = IntegerAttr::get(IntegerType::get(&getContext(), 64), *value);
      moved = true;
    }
  }
  for (Attribute name : mesh.getAxisNames())
    if (!size_of.count(cast<StringAttr>(name).str()))
      return topo::error(topo::location_of(mesh, cast<StringAttr>(name).getValue()), "axis-cycle")
             << "axis " << name << " is a product of itself, by way of other axes";
  mesh.setAxisSizesAttr(ArrayAttr::get(&getContext(), sizes));
  return success();
}

FailureOr<int64_t> DeriveSizes::resolve_world(topo::MeshOp mesh) {
  std::optional<ArrayAttr> rule = mesh.getWorldMaxOf();
  if (!rule) {
    if (mesh.getWorld())
      return static_cast<int64_t>(*mesh.getWorld());
    return topo::error(mesh.getLoc(), "no-world")
           << "the layout does not say how many ranks there are: it has no [world] max_of";
  }
  int64_t world = 1;
  for (Attribute row : *rule) {
    FailureOr<int64_t> value = product(mesh, cast<ArrayAttr>(row).getValue(), "world");
    if (failed(value))
      return failure();
    world = std::max(world, *value);
  }
  if (mesh.getWorld() && static_cast<int64_t>(*mesh.getWorld()) != world)
    return topo::error(mesh.getLoc(), "world-mismatch")
           << "the mesh says " << static_cast<int64_t>(*mesh.getWorld()) << " ranks, its axes make " << world;
  return world;
}

LogicalResult report_experts(ModuleOp module, const ExpertsErrors &errors) {
  for (const ExpertsError &found : errors) {
    auto [section, key] = StringRef(found.key).split('.');
    Operation *op = module;
    if (section == "moe" && !module.getOps<topo::MoeOp>().empty())
      op = *module.getOps<topo::MoeOp>().begin();
    else if (section == "axes")
      op = *module.getOps<topo::MeshOp>().begin();
    else if (section == "model")
      op = *module.getOps<topo::ModelOp>().begin();
    else if (section == "workload" && !module.getOps<topo::WorkloadOp>().empty())
      op = *module.getOps<topo::WorkloadOp>().begin();
    InFlightDiagnostic reported = topo::error(topo::location_of(op, key), found.code) << found.message;
    if (!found.fix.empty())
      topo::set_fix(reported, found.fix);
  }
  return failure(!errors.empty());
}

// Which logical expert each slot holds: contiguous, or EPLB on measured or expected loads.
FailureOr<std::vector<int64_t>> DeriveSizes::place(ModuleOp module, const TopologySpec &spec,
                                                   const ExpertCounts &counts, int64_t world) {
  ExpertsErrors errors;
  std::optional<std::vector<int64_t>> slots;
  if (*spec.moe.placement == "contiguous") {
    slots = place_contiguous(counts, errors);
  } else {
    std::optional<std::vector<double>> loads = expert_loads(spec, counts.logical, errors);
    if (loads) {
      EplbRequest request;
      request.slots = counts.physical;
      request.groups = *spec.model.moe.groups;
      request.ranks = axis_size(size_of, "ep");
      // The domains an EP group spans, where they divide it; one otherwise.
      int64_t domain = domain_gpus(spec.machine);
      request.nodes =
          domain > 0 && request.ranks % domain == 0 && world >= domain ? request.ranks / domain : 1;
      slots = place_by_load(*loads, request, errors);
    }
  }
  if (failed(report_experts(module, errors)) || !slots)
    return failure();
  return *slots;
}

// The most that one engine brings to a step: sequences, their tokens, and the rows of a rank under cp, whose
// blocks of ⌈length/(2·cp)⌉ come in pairs.
FailureOr<Batch> DeriveSizes::engine_batch(topo::MeshOp mesh, ModuleOp module, const TopologySpec &spec,
                                           int64_t engine_ranks, int64_t cp, int64_t engines) {
  const WorkloadSpec &workload = spec.workload;
  constexpr int64_t most = int64_t{1} << 40;
  Batch batch;
  bool prefill = *workload.phase == "prefill", fits = true;
  Operation *section = module.getOps<topo::WorkloadOp>().empty()
                           ? mesh.getOperation()
                           : (*module.getOps<topo::WorkloadOp>().begin()).getOperation();
  // Entry i is engine i's: those beyond the last engine size nothing.
  auto dealt = [&](auto list, const char *key) {
    if (int64_t entries = static_cast<int64_t>(list.size()); entries > engines) {
      topo::warning(topo::location_of(section, key), "unused-entries")
          << key << " has " << entries << " entries for " << engines << " engines: the rest is not dealt";
      list.resize(static_cast<size_t>(engines));
    }
    return list;
  };
  if (prefill) {
    for (const std::vector<int64_t> &prompts : dealt(*workload.prompt_lengths, "prompt_lengths")) {
      Batch one{static_cast<int64_t>(prompts.size()), 0, 0};
      for (int64_t length : prompts) {
        one.tokens += length;
        one.mirror += 2 * ((length + 2 * cp - 1) / (2 * cp));
      }
      batch.sequences = std::max(batch.sequences, one.sequences);
      batch.tokens = std::max(batch.tokens, one.tokens);
      batch.mirror = std::max(batch.mirror, one.mirror);
    }
  } else {
    for (int64_t count : dealt(*workload.tokens_per_rank, "tokens_per_rank"))
      batch.tokens = std::max(batch.tokens, count);
    fits = !__builtin_mul_overflow(batch.tokens, engine_ranks, &batch.tokens);
    batch.sequences = batch.tokens;
  }
  // An engine without work brings one token that is thrown away.
  batch.sequences = std::max<int64_t>(batch.sequences, 1);
  batch.tokens = std::max<int64_t>(batch.tokens, 1);
  // Ranks of tp may take shares of the batch, one token more or less: with room for the larger share on each,
  // any group's shares together fit where that group's rows go.
  int64_t shared_by = prefill ? engine_ranks / cp : engine_ranks;
  batch.tokens = (batch.tokens + shared_by - 1) / shared_by * shared_by;
  batch.mirror = std::max<int64_t>(batch.mirror, 2);
  int64_t total = 0;
  if (fits && !__builtin_mul_overflow(std::max(batch.tokens, batch.mirror * cp), engines, &total) &&
      total <= most)
    return batch;
  return topo::error(topo::location_of(section, prefill ? "prompt_lengths" : "tokens_per_rank"), "overflow")
         << batch.tokens << " tokens an engine on " << engines << " engines are more than 2^40 tokens a step";
}

LogicalResult DeriveSizes::derive(topo::MeshOp mesh, ModuleOp module, const TopologySpec &spec) {
  if (failed(resolve_axes(mesh)))
    return failure();
  FailureOr<int64_t> world = resolve_world(mesh);
  if (failed(world))
    return failure();
  if (!spec.mesh.rank_map->empty() && static_cast<int64_t>(spec.mesh.rank_map->size()) != *world)
    return topo::error(topo::location_of(mesh, "rank_map"), "rank-map-length")
           << "rank_map lists " << spec.mesh.rank_map->size() << " ranks, the world has " << *world;
  mesh.setWorldAttr(IntegerAttr::get(IntegerType::get(&getContext(), 64), *world));

  // Ranks that serve one batch together.
  int64_t tp = axis_size(size_of, "tp"), cp = axis_size(size_of, "cp"), dp = axis_size(size_of, "dp");
  int64_t engine_ranks = 1;
  if (__builtin_mul_overflow(tp, cp, &engine_ranks) || *world % engine_ranks != 0) {
    InFlightDiagnostic wrong = topo::error(topo::location_of(mesh, tp > 1 ? "tp" : "cp"), "not-divisible")
                               << "an engine has tp·cp = " << tp << "·" << cp
                               << " ranks, which do not divide the world of " << *world;
    return wrong;
  }
  int64_t engines = *world / engine_ranks;
  StringRef engine_group = tp > 1 ? "tp" : cp > 1 ? "cp" : "";

  // Ranks beyond dp·cp·tp that enp asks for: replicas, or holders of table rows.
  int64_t serving = *world, team = 1;
  if (*spec.engram.extra_ranks == "table-only" && !spec.model.engram.layers->empty() &&
      !__builtin_mul_overflow(engine_ranks, dp, &team))
    serving = std::min(serving, team);

  FailureOr<Batch> batch = engine_batch(mesh, module, spec, engine_ranks, cp, engines);
  if (failed(batch))
    return failure();

  ExpertCounts counts;
  std::vector<int64_t> slots;
  if (*spec.model.moe.routed > 0) {
    ExpertsErrors errors;
    std::optional<ExpertCounts> counted = count_experts(
        *spec.model.moe.routed, *spec.moe.min_redundant_experts, axis_size(size_of, "ep"), errors);
    if (failed(report_experts(module, errors)) || !counted)
      return failure();
    counts = *counted;
    FailureOr<std::vector<int64_t>> placed = place(module, spec, counts, *world);
    if (failed(placed))
      return failure();
    slots = std::move(*placed);
  }
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  builder.setInsertionPointAfter(mesh);
  auto only_if = [&](bool wanted, int64_t value) {
    return wanted ? builder.getI64IntegerAttr(value) : IntegerAttr();
  };
  auto count = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
  topo::SizesOp::create(builder, mesh.getLoc(), count(*world), count(engines),
                        count(std::max<int64_t>(1, serving / engine_ranks / dp)), count(batch->tokens),
                        count(counts.logical), count(counts.extra), count(counts.physical),
                        count(counts.local), builder.getDenseI64ArrayAttr(slots),
                        builder.getStringAttr(engine_group), only_if(serving < *world, serving),
                        only_if(*spec.workload.phase == "prefill", batch->sequences),
                        only_if(cp > 1 && *spec.workload.phase == "prefill", batch->mirror));
  return success();
}

} // namespace
} // namespace paratope
