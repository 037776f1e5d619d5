// SPDX-License-Identifier: Apache-2.0
//
// Stage "check", legality: what axes, model, machine and phase allow together. Each rule is one function,
// finds its own fault, points at the key to change, and says what would be legal.
#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "compiler/check/topology_check.h"
#include "compiler/fuse/match.h"
#include "compiler/mesh/domain.h"
#include "compiler/mesh/view.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_TOPOCHECKLEGALITY
#include "Passes.h.inc"

namespace {

// Divisors of n, for "write one of".
std::string divisors(int64_t n, int64_t most = 64) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n && d <= 4096; ++d)
    if (n % d == 0)
      found.push_back(d);
  if (static_cast<int64_t>(found.size()) > most)
    found.resize(static_cast<size_t>(most));
  return fmt::format("{}", fmt::join(found, ", "));
}

class Legality : public TopologyCheck {
public:
  using TopologyCheck::TopologyCheck;

  void run() {
    world_fits_machine();
    axes_divide_world();
    phase_is_decode();
    heads_divide();
    output_groups_divide();
    axes_combine();
    extra_ranks_hold_rows_only();
    experts_fit();
    if (!good)
      return; // what follows builds groups, whose own errors would say the same again
    fused_exchange_is_possible();
    groups_match_axes();
  }

private:
  void world_fits_machine() {
    int64_t nodes = *spec->machine.nodes, gpus = *spec->machine.gpus_per_node, total = 0;
    if (__builtin_mul_overflow(nodes, gpus, &total) || world() <= total)
      return;
    wrong(section<topo::MachineOp>(), "nodes", "too-few-gpus",
          fmt::format("the topology has {} ranks, the machine {} nodes of {} GPUs: {}", world(), nodes, gpus,
                      total),
          fmt::format("write nodes = {}", (world() + gpus - 1) / gpus),
          {{mesh.getLoc(), fmt::format("world = {} ranks", world())}});
  }

  void axes_divide_world() {
    for (const char *axis : {"ep", "enp", "dp", "tp", "cp", "og", "moe_tp", "pp"})
      if (world() % size(axis) != 0)
        wrong(mesh, axis, "not-divisible",
              fmt::format("{} = {} does not divide the world of {} ranks", axis, size(axis), world()),
              fmt::format("write one of {}", divisors(world())), world_factors());
  }

  // Groups that the step compiler gives a meaning to are as large as the axis they are named after: a pattern
  // that says otherwise would quietly drop collectives.
  void groups_match_axes() {
    FailureOr<MeshView> view = view_mesh(module);
    if (failed(view)) {
      good = false;
      return;
    }
    experts_split_apart(*view);
    groups_stay_with_serving(*view);
    for (topo::GroupOp group : module.getOps<topo::GroupOp>()) {
      std::string name = group.getSymName().str();
      bool meant = llvm::is_contained({"dp", "cp", "ep", "enp", "og", "tp", "moe_tp", "pp"}, name);
      bool axis = llvm::any_of(mesh.getAxisNames(),
                               [&](Attribute a) { return cast<StringAttr>(a).getValue() == name; });
      int64_t members = view->groups.at(name).size;
      if (meant && axis && members != size(name))
        wrong(group, "0", "group-size",
              fmt::format("group '{}' has {} ranks, its axis {} = {}", name, members, name, size(name)),
              fmt::format("end the pattern in '{}', alone on the members' side", name),
              {{topo::location_of(mesh, name), fmt::format("{} = {}", name, size(name))}});
    }
  }

  // Ranks that hold rows only come last: with domains of as many ranks as serve, no group of the step leaves
  // one.
  void groups_stay_with_serving(const MeshView &view) {
    if (!sizes.getServing())
      return;
    int64_t serving = static_cast<int64_t>(*sizes.getServing());
    for (topo::GroupOp group : module.getOps<topo::GroupOp>()) {
      StringRef name = group.getSymName();
      if (!llvm::is_contained({"ep", "og", "moe_tp", "experts", "tp", "cp"}, name))
        continue;
      GroupLayout layout = view.groups.at(name.str());
      layout.rank_offset = 0;
      if (in_one_domain(layout, serving))
        continue;
      wrong(group, "0", "beyond-serving",
            fmt::format("group '{}' joins ranks that serve, 0 to {}, with ranks that hold Engram rows only",
                        name.str(), serving - 1),
            "write [engram] extra_ranks = \"serve\"",
            {{topo::location_of(mesh, "enp"), fmt::format("enp = {} asks for them", size("enp"))}});
    }
  }

  // Groups that a step splits tensors over must not overlap where both split the same one.
  void experts_split_apart(const MeshView &view) {
    int64_t ep = size("ep"), moe_tp = size("moe_tp");
    if (ep == 1 || moe_tp == 1 || !view.has_axis("ep") || !view.has_axis("moe_tp"))
      return;
    if (!view.independent({"ep", "moe_tp"}))
      wrong(
          mesh, "moe_tp", "groups-overlap",
          fmt::format(
              "groups 'ep' and 'moe_tp' split the same ranks: ep = {} hands experts out and moe_tp = {} cuts "
              "each, so a rank of one must have a place of its own in the other",
              ep, moe_tp),
          "write the patterns (edp ep moe_tp) -> (edp moe_tp) ep and (edp ep moe_tp) -> (edp ep) moe_tp");
    if (view.has_axis("experts") && view.size_of("experts") != ep * moe_tp)
      wrong(mesh, "moe_tp", "group-size",
            fmt::format("group 'experts' has {} ranks, expected ep·moe_tp = {}", view.size_of("experts"),
                        ep * moe_tp));
  }

  // The numbers that make the world, each at its own place.
  std::vector<std::pair<Location, std::string>> world_factors() {
    std::vector<std::pair<Location, std::string>> notes;
    if (auto rule = mesh.getWorldMaxOf())
      for (Attribute row : *rule)
        for (Attribute name : cast<ArrayAttr>(row)) {
          StringRef axis = cast<StringAttr>(name).getValue();
          notes.emplace_back(topo::location_of(mesh, axis),
                             fmt::format("world is made of {} = {}", axis.str(), size(axis)));
        }
    return notes;
  }

  void phase_is_decode() {
    if (*spec->workload.phase == "decode" && size("cp") > 1)
      wrong(mesh, "cp", "cp-with-decode",
            fmt::format("cp = {} splits prompts, and a decode step has none", size("cp")),
            "write cp = 1, or phase = \"prefill\"",
            {{topo::location_of(section<topo::WorkloadOp>(), "phase"), "phase is \"decode\""}});
  }

  void heads_divide() {
    const AttentionModel &attention = spec->model.attention;
    int64_t tp = size("tp"), heads = *attention.heads, groups = *attention.o_groups;
    if (tp > 1 && heads % tp != 0)
      wrong(mesh, "tp", "not-divisible",
            fmt::format("tp = {} does not divide the model's {} heads", tp, heads),
            fmt::format("write one of {}", divisors(heads)),
            {{topo::location_of(section<topo::ModelOp>(), "attention.heads"),
              fmt::format("heads = {}", heads)}});
    if (tp > 1 && *attention.kind == "latent" && groups > 0 && heads % tp == 0 && groups % tp != 0)
      wrong(mesh, "tp", "not-divisible",
            fmt::format("tp = {} does not divide the model's {} output groups", tp, groups),
            fmt::format("write one of {}", divisors(groups)),
            {{topo::location_of(section<topo::ModelOp>(), "attention.o_groups"),
              fmt::format("o_groups = {}", groups)}});
    int64_t kv_heads = *attention.kv_heads;
    if (tp > 1 && *attention.kind == "gqa" && kv_heads % tp != 0 && tp % kv_heads != 0)
      wrong(mesh, "tp", "not-divisible",
            fmt::format("tp = {} neither divides the model's {} key-value heads nor is a multiple of them",
                        tp, kv_heads),
            fmt::format("write one of {}", divisors(kv_heads)),
            {{topo::location_of(section<topo::ModelOp>(), "attention.kv_heads"),
              fmt::format("kv_heads = {}", kv_heads)}});
    bool dense = *spec->model.moe.dense_layers > 0 || *spec->model.moe.routed == 0;
    if (tp > 1 && dense && *spec->model.moe.dense_width % tp != 0)
      wrong(mesh, "tp", "not-divisible",
            fmt::format("tp = {} does not divide the dense width {}", tp, *spec->model.moe.dense_width));
  }

  void output_groups_divide() {
    int64_t og = size("og"), groups = *spec->model.attention.o_groups;
    if (og > 1 && (*spec->model.attention.kind != "latent" || groups == 0 || groups % og != 0))
      wrong(mesh, "og", "not-divisible",
            fmt::format("og = {} does not divide the model's {} output groups", og, groups),
            groups > 0 ? fmt::format("write one of {}", divisors(groups)) : "write og = 1");
  }

  // Axes that would both cut the same thing.
  void axes_combine() {
    auto together = [&](const char *a, const char *b, const char *why) {
      if (size(a) > 1 && size(b) > 1)
        wrong(mesh, b, "axes-exclude", fmt::format("{} = {} and {} = {} {}", a, size(a), b, size(b), why),
              fmt::format("write {} = 1", b),
              {{topo::location_of(mesh, a), fmt::format("{} = {}", a, size(a))}});
    };
    together("tp", "og", "both cut the output groups");
    int64_t width = *spec->model.moe.width, moe_tp = size("moe_tp");
    if (moe_tp > 1 && *spec->model.moe.routed > 0 && width % moe_tp != 0)
      wrong(mesh, "moe_tp", "not-divisible",
            fmt::format("moe_tp = {} does not divide the experts' width of {}", moe_tp, width),
            fmt::format("write one of {}", divisors(width)));
    if (moe_tp > 1 && *spec->model.moe.routed == 0)
      wrong(mesh, "moe_tp", "no-experts",
            fmt::format("moe_tp = {} splits experts, and the model has none", moe_tp), "write moe_tp = 1");
  }

  // Ranks beyond dp·cp that hold table rows only have no experts, tokens or engines: groups of the step must
  // not reach into them.
  void extra_ranks_hold_rows_only() {
    if (!sizes.getServing())
      return;
    int64_t serving = static_cast<int64_t>(*sizes.getServing());
    for (const char *axis : {"ep", "og", "moe_tp"})
      if (serving % size(axis) != 0)
        wrong(mesh, axis, "beyond-serving",
              fmt::format(
                  "{} = {} does not divide the {} ranks that serve: ranks {} to {} hold Engram rows only",
                  axis, size(axis), serving, serving, world() - 1),
              "write [engram] extra_ranks = \"serve\"",
              {{topo::location_of(mesh, "enp"), fmt::format("enp = {} asks for them", size("enp"))}});
  }

  void experts_fit() {
    const ExpertModel &moe = spec->model.moe;
    int64_t ep = size("ep");
    if (*moe.routed == 0) {
      if (ep > 1)
        wrong(mesh, "ep", "no-experts", fmt::format("ep = {} splits experts, and the model has none", ep),
              "write ep = 1");
      return;
    }
    if (*moe.width < 1)
      wrong(section<topo::ModelOp>(), "moe.width", "missing-key",
            "a model with routed experts needs their width");
  }

  // exchange = "fused" and fusion mega-moe are one thing asked for at two keys.
  void fused_exchange_is_possible() {
    const std::string &exchange = *spec->moe.exchange;
    const std::vector<std::string> &fuse = *spec->schedule.fuse;
    bool listed = llvm::is_contained(fuse, "mega-moe"), fused = exchange == "fused",
         automatic = fuse == std::vector<std::string>{"auto"};
    Operation *moe = section<topo::MoeOp>(), *schedule = section<topo::ScheduleOp>();
    if (fused && !listed && !automatic)
      wrong(schedule, "fuse", "contradicting-keys",
            "exchange = \"fused\" is fusion mega-moe, and fuse leaves it out",
            "add \"mega-moe\", or write exchange = \"two-stage\"",
            {{topo::location_of(moe, "exchange"), "exchange is \"fused\""}});
    if (listed && exchange != "fused" && exchange != "auto")
      wrong(schedule, "fuse", "contradicting-keys",
            fmt::format("fusion mega-moe is the exchange in one kernel, and exchange is \"{}\"", exchange),
            "leave mega-moe out, or write exchange = \"auto\"",
            {{topo::location_of(moe, "exchange"), fmt::format("exchange is \"{}\"", exchange)}});
    if (good && (fused || listed) && size("ep") > 1)
      one_kernel_can(fused ? moe : schedule, fused ? "exchange" : "fuse");
  }

  void one_kernel_can(Operation *section, const char *key) {
    int64_t domain = domain_gpus(spec->machine);
    FailureOr<MeshView> view = view_mesh(module);
    if (failed(view)) {
      good = false;
      return;
    }
    auto ep = view->groups.find("ep");
    if (ep == view->groups.end())
      return;
    if (in_one_domain(ep->second, domain)) {
      if (std::string why = mega_moe_obstacle(*spec, *view, module->hasAttr("topo.notes")); !why.empty())
        wrong(section, key, "fused-types", "the fused exchange is one kernel, and " + why,
              "write exchange = \"two-stage\"");
      return;
    }
    // The first rank that lies outside its group's domain; groups are alike, so it is near.
    const GroupLayout &group = ep->second;
    for (int64_t color = 0; color < std::min(group.count, max_table_ranks); ++color)
      for (int64_t member = 1, first = rank_of(group, color, 0);
           member < std::min(group.size, max_table_ranks); ++member) {
        int64_t rank = rank_of(group, color, member);
        if (rank / domain == first / domain)
          continue;
        wrong(section, key, "fused-across-domains",
              fmt::format("the fused exchange needs the ep group in one scale-up domain: domain {} of {} "
                          "GPUs holds rank {} of the group, rank {} lies outside",
                          first / domain, domain, first, rank),
              "write exchange = \"two-stage\"",
              {{mesh.getLoc(), fmt::format("ep group of {} ranks", group.size)}});
        return;
      }
  }
};

class CheckLegality : public impl::TopoCheckLegalityBase<CheckLegality> {
  void runOnOperation() override {
    Legality check(getOperation());
    if (check.ready)
      check.run();
    if (!check.ready || !check.good)
      signalPassFailure();
  }
};

} // namespace
} // namespace paratope
