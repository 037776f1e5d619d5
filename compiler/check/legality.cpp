// SPDX-License-Identifier: Apache-2.0
//
// Stage "check", legality: what axes, model, machine and phase allow together. Each rule is one function,
// finds its own fault, points at the key to change, and says what would be legal.
#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "compiler/check/topology_check.h"
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
    experts_fit();
    if (!good)
      return; // what follows builds groups, whose own errors would say the same again
    exchange_is_possible();
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
    int64_t og = size("og");
    if (og > 1 && (groups == 0 || groups % og != 0))
      wrong(mesh, "og", "not-divisible",
            fmt::format("og = {} does not divide the model's {} output groups", og, groups),
            groups > 0 ? fmt::format("write one of {}", divisors(groups)) : "write og = 1");
    bool dense = *spec->model.moe.dense_layers > 0 || *spec->model.moe.routed == 0;
    if (tp > 1 && dense && *spec->model.moe.dense_width % tp != 0)
      wrong(mesh, "tp", "not-divisible",
            fmt::format("tp = {} does not divide the dense width {}", tp, *spec->model.moe.dense_width));
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

  void exchange_is_possible() {
    if (*spec->moe.exchange != "fused" || size("ep") == 1)
      return;
    int64_t domain = domain_gpus(spec->machine);
    FailureOr<MeshView> view = view_mesh(module);
    if (failed(view)) {
      good = false;
      return;
    }
    auto ep = view->groups.find("ep");
    if (ep == view->groups.end() || in_one_domain(ep->second, domain))
      return;
    // The first rank that lies outside its group's domain; groups are alike, so it is near.
    const GroupLayout &group = ep->second;
    for (int64_t color = 0; color < std::min(group.count, max_table_ranks); ++color)
      for (int64_t member = 1, first = rank_of(group, color, 0);
           member < std::min(group.size, max_table_ranks); ++member) {
        int64_t rank = rank_of(group, color, member);
        if (rank / domain == first / domain)
          continue;
        wrong(section<topo::MoeOp>(), "exchange", "fused-across-domains",
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
