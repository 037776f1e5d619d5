// SPDX-License-Identifier: Apache-2.0
#include "topology.h"

#include <algorithm>
#include <stdexcept>

#include "dsl/rearrange/groups.h"
#include "dsl/spec/describe.h"
#include "dsl/toml/read.h"

namespace paratope::random {

Library read_library(const std::vector<std::string> &directories) {
  Library library;
  library.search = directories;
  Diagnostics found;
  for (const Listed &file : list_models(directories))
    if (auto model = read_model(file.path, found))
      library.models[file.name] = *model;
  for (const Listed &file : list_machines(directories))
    if (auto machine = read_machine(file.path, found))
      library.machines[file.name] = *machine;
  for (const Listed &file : list_layouts(directories))
    if (auto layout = read_layout(file.path, found))
      library.layouts[file.name] = *layout;
  if (found.has_errors())
    throw std::runtime_error("a shipped file cannot be read: " + found.all().front().message);
  return library;
}

int64_t Topology::size(const std::string &axis) const {
  auto found = sizes.find(axis);
  return found == sizes.end() ? 1 : found->second;
}

std::vector<std::string> Topology::patterns(const std::string &group) const {
  for (const auto *list : {&spec.groups, &spec.layout.groups})
    for (const NamedGroup &each : *list)
      if (each.name == group)
        return *each.patterns;
  return {};
}

std::vector<std::pair<int64_t, int64_t>> Topology::seats(const std::string &group) const {
  Mesh mesh;
  mesh.world = world;
  for (const auto &[name, size] : sizes)
    mesh.axes.push_back({name, size, ""});
  mesh.rank_map = *spec.mesh.rank_map;
  PatternErrors errors;
  std::optional<GroupLayout> layout = build_group(mesh, patterns(group), errors);
  assert(layout && "patterns of a legal topology");
  std::vector<std::pair<int64_t, int64_t>> seats(static_cast<size_t>(world));
  for (int64_t color = 0; color < layout->count; ++color)
    for (int64_t member = 0; member < layout->size; ++member)
      seats[static_cast<size_t>(rank_of(*layout, color, member))] = {color, member};
  return seats;
}

Frame draw_frame(Rng &rng, const Library &library, Topology &t) {
  Frame frame;
  int64_t layout = rng.between(1, 100);
  t.spec.layout_name.value = layout <= 50   ? "deepinfer"
                             : layout <= 72 ? "tensor-parallel"
                             : layout <= 86 ? "engine-outer"
                                            : "experts-outer";
  t.spec.layout = library.layouts.at(*t.spec.layout_name);
  t.spec.workload.phase.value = rng.percent(50) ? "prefill" : "decode";
  if (rng.percent(50)) {
    auto model =
        std::next(library.models.begin(), rng.between(0, static_cast<int64_t>(library.models.size()) - 1));
    frame.model = model->first;
    t.spec.model = model->second;
    t.used.model = model->second;
    t.used.model.use.value = t.spec.model.use.value = frame.model;
    frame.dense = *t.spec.model.moe.routed == 0;
    frame.engram = t.has_engram() ? rng.percent(80) : rng.percent(15);
  } else {
    int64_t kind = rng.between(1, 100);
    t.spec.model.attention.kind.value = kind <= 50 ? "latent" : kind <= 70 ? "mla" : "gqa";
    frame.dense = rng.percent(12);
    frame.engram = rng.percent(40);
  }
  return frame;
}

namespace {

// What fills the sections that no axis depends on.
struct RestDraw {
  Rng &rng;
  const Library &library;
  Topology &t;

  void run() {
    machine();
    exchange();
    t.spec.attention.o_exchange.value = rng.of<std::string>({"auto", "gather-inputs", "reduce-outputs"});
    t.spec.attention.weight_dtype.value = rng.percent(50) ? "bf16" : "fp8";
    t.spec.attention.kv_dtype.value = rng.percent(50) ? "bf16" : "fp8";
    t.spec.engram.storage.value = rng.percent(50) ? "host" : "device";
    t.spec.engine.control_plane.value = rng.percent(50) ? "cpu" : "gpu";
    t.spec.schedule.overlap.value = rng.percent(60) ? "auto" : "none";
    fusions();
    if (t.prefill())
      prompts();
    else
      tokens();
    routing();
    t.steps = rng.percent(30) ? 2 : 1;
  }

  void machine() {
    MachineSpec &m = t.spec.machine;
    if (rng.percent(60)) {
      auto shipped = std::next(library.machines.begin(),
                               rng.between(0, static_cast<int64_t>(library.machines.size()) - 1));
      m = shipped->second;
      t.used.machine = m;
      t.used.machine.use.value = m.use.value = shipped->first;
    } else {
      m.name.value = rng.of<std::string>({"bench", "random", "dp", "ranks"}); // as other things may be called
      m.gpus_per_node.value = rng.one_of({1, 2, 3, 4, 8, 16});
      m.scale_up_gpus.value = rng.percent(60) ? *m.gpus_per_node : *m.gpus_per_node * rng.between(1, 4);
      m.gpu_name.value = "gpu";
      m.gpu_memory_gb.value = 141;
      m.gpu_memory_gb_per_s.value = 4800;
      m.scale_up.gb_per_s.value = 450;
      m.scale_up.latency_us.value = 0.6;
      m.scale_out.gb_per_s.value = 50;
      m.scale_out.latency_us.value = 2.7;
    }
    m.nodes.value = (t.world + *m.gpus_per_node - 1) / *m.gpus_per_node + rng.between(0, 1);
  }

  void exchange() {
    MoeSpec &moe = t.spec.moe;
    moe.exchange.value = rng.of<std::string>({"auto", "two-stage", "all-gather"}); // or fused, below
    moe.dispatch_dtype.value = rng.percent(50) ? "bf16" : "fp8";
    moe.combine_dtype.value = rng.percent(50) ? "bf16" : "fp8";
    moe.expert_dtype.value = rng.of<std::string>({"bf16", "fp8", "fp4"});
    moe.placement.value = rng.percent(50) ? "contiguous" : "eplb";
    moe.min_redundant_experts.value = rng.percent(50) ? 0 : rng.between(0, 9);
    moe.tp_dispatch.value = rng.percent(50) ? "split" : "replicated";
    if (*moe.tp_dispatch == "replicated" && !may_replicate())
      moe.tp_dispatch.value = "split";
  }

  // All that are legal, none, or some by name; mega-moe only where the exchange can be one kernel.
  void fusions() {
    bool one_kernel = may_be_one_kernel();
    if (one_kernel && rng.percent(30))
      t.spec.moe.exchange.value = "fused";
    bool fused = *t.spec.moe.exchange == "fused";
    std::vector<std::string> &fuse = t.spec.schedule.fuse.value;
    fuse = {"auto"};
    if (rng.percent(40))
      return;
    fuse.clear();
    bool some = rng.percent(70);
    for (const std::string &name : fusion_names())
      if (name == "mega-moe" ? fused || (one_kernel && some && rng.percent(50)) : some && rng.percent(50))
        fuse.push_back(name);
  }

  // The ep group in one domain, types that one kernel multiplies, experts whole.
  bool may_be_one_kernel() {
    const MoeSpec &moe = t.spec.moe;
    bool types = *moe.dispatch_dtype == "fp8" ? *moe.expert_dtype != "bf16" : *moe.expert_dtype == "bf16";
    if (!types || *moe.exchange != "auto" || t.size("ep") == 1 || t.size("moe_tp") > 1)
      return false;
    std::map<int64_t, int64_t> domain_of; // group → domain
    auto seats = t.seats("ep");
    for (size_t rank = 0; rank < seats.size(); ++rank) {
      int64_t domain =
          (static_cast<int64_t>(rank) + *t.spec.mesh.rank_offset) / *t.spec.machine.scale_up_gpus;
      if (domain_of.emplace(seats[rank].first, domain).first->second != domain)
        return false;
    }
    return true;
  }

  // Every rank of tp dispatches all its tokens: the ranks of moe_tp, each with a part of an expert, must then
  // have the same tokens.
  bool may_replicate() {
    if (t.size("tp") == 1 || t.size("moe_tp") == 1 || t.size("ep") == 1 ||
        *t.spec.moe.exchange == "all-gather")
      return true;
    auto tp = t.seats("tp"), moe_tp = t.seats("moe_tp");
    std::map<int64_t, int64_t> team_of;
    for (size_t rank = 0; rank < tp.size(); ++rank)
      if (team_of.emplace(moe_tp[rank].first, tp[rank].first).first->second != tp[rank].first)
        return false;
    return true;
  }

  void tokens() {
    std::vector<int64_t> counts;
    int64_t engines = rng.percent(50) ? 1 : rng.between(1, 4);
    for (int64_t i = 0; i < engines; ++i)
      counts.push_back(rng.one_of({0, 1, 1, 2, 3, 5}));
    if (rng.percent(95) && std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 0; }))
      counts[0] = 2;
    t.spec.workload.tokens_per_rank.value = counts;
    t.spec.workload.context.value = rng.one_of({0, 0, 1, 2, 5, 16, 17, 31, 48, 4989});
  }

  void prompts() {
    std::vector<std::vector<int64_t>> rows;
    for (int64_t row = rng.one_of({1, 1, 2, 3}); row > 0; --row) {
      rows.emplace_back();
      for (int64_t prompt = rng.one_of({0, 1, 1, 2, 3}); prompt > 0; --prompt)
        rows.back().push_back(rng.percent(4) ? rng.between(25, 9000)
                                             : rng.one_of({1, 1, 2, 3, 4, 5, 7, 10, 15}));
    }
    if (rng.percent(95) && std::all_of(rows.begin(), rows.end(), [](const auto &row) { return row.empty(); }))
      rows[0] = {3, 1};
    t.spec.workload.prompt_lengths.value = rows;
    if (rng.percent(50))
      for (int64_t i = rng.between(1, 3); i > 0; --i)
        t.spec.workload.history_lengths.value.push_back(rng.one_of({0, 0, 1, 3, 4, 9, 24, 1001}));
  }

  void routing() {
    RoutingSpec &routing = t.spec.workload.routing;
    std::vector<std::string> kinds = {"gate", "uniform", "zipf", "dirichlet"};
    if (*t.spec.model.moe.routed > 0)
      kinds.push_back("hot");
    routing.kind.value = rng.of(kinds);
    if (*routing.kind == "zipf")
      routing.s.value = rng.percent(20) ? 0 : 1.5;
    if (*routing.kind == "dirichlet")
      routing.alpha.value = rng.percent(50) ? 0.1 : 10;
    if (*routing.kind == "hot")
      routing.expert.value = rng.between(0, *t.spec.model.moe.routed - 1);
    routing.seed.value = rng.between(0, 1000);
  }
};

} // namespace

void draw_rest(Rng &rng, const Library &library, Topology &topology) {
  RestDraw{rng, library, topology}.run();
}

Topology draw_topology(Rng &rng, const Library &library) {
  Topology topology;
  topology.spec.version.value = 1;
  topology.spec.name.value = "random";
  Frame frame = draw_frame(rng, library, topology);
  draw_mesh(rng, frame, topology);
  draw_model(rng, frame, topology);
  draw_rest(rng, library, topology);
  write_document(rng, topology);
  return topology;
}

} // namespace paratope::random
