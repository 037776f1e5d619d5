// SPDX-License-Identifier: Apache-2.0
//
// Mutations of axes and groups: sizes that do not divide, axes that exclude each other, groups that
// contradict their axes.
#include "mutations.h"

#include <algorithm>

namespace paratope::random {

namespace {

using Keys = std::vector<KeyName>;
using Answer = std::optional<Keys>;

const std::string axes = "axes", attention = "model.attention";

Item i(int64_t value) { return Item::of(value); }

bool layout_has(const Topology &t, const std::string &axis) {
  return std::any_of(t.spec.layout.axes.begin(), t.spec.layout.axes.end(),
                     [&](const NamedAxis &each) { return each.name == axis; });
}

bool routed(const Topology &t) { return *t.spec.model.moe.routed > 0; }
bool everyone_serves(const Topology &t) { return t.serving == t.world; }
// enp alone makes the world larger than the engines do.
bool enp_counts(const Topology &t) { return *t.spec.layout_name != "tensor-parallel"; }

int64_t smallest_stranger(int64_t n) { // the smallest number from 2 that does not divide n
  int64_t d = 2;
  while (n % d == 0)
    ++d;
  return d;
}

// A divisor of n above 1 that passes; 0 when there is none.
int64_t divisor(int64_t n, const std::function<bool(int64_t)> &passes) {
  for (int64_t d = 2; d <= n; ++d)
    if (n % d == 0 && passes(d))
      return d;
  return 0;
}

Answer ep_not_dividing(Rng &, Topology &t) {
  if (!routed(t))
    return std::nullopt;
  t.document.set(axes, "ep", i(smallest_stranger(t.world)));
  return Keys{{axes, "ep"}};
}

Answer enp_not_dividing(Rng &rng, Topology &t) {
  if (t.team < 3)
    return std::nullopt;
  std::vector<int64_t> wrong;
  for (int64_t d = 2; d < t.team; ++d)
    if (t.team % d != 0)
      wrong.push_back(d);
  t.document.set(axes, "enp", i(rng.of(wrong)));
  return Keys{{axes, "enp"}};
}

// The world that enp asks for is no multiple of what an engine's axes make.
Answer team_not_dividing(Rng &rng, Topology &t) {
  if (t.team < 2 || !enp_counts(t))
    return std::nullopt;
  t.document.set(axes, "enp", i(t.team * rng.between(1, 2) + rng.between(1, t.team - 1)));
  t.document.set("machine", "nodes", i(64));
  Keys keys; // another world divides otherwise altogether
  for (const char *axis : {"enp", "dp", "cp", "tp", "ep", "moe_tp", "og"})
    keys.emplace_back(axes, axis);
  return keys;
}

Answer og_not_dividing_world(Rng &, Topology &t) {
  if (!layout_has(t, "og") || !t.is("latent") || t.size("tp") > 1)
    return std::nullopt;
  t.document.set(axes, "og", i(smallest_stranger(t.world)));
  return Keys{{axes, "og"}};
}

Answer og_not_dividing_groups(Rng &, Topology &t) {
  if (!layout_has(t, "og") || !t.is("latent") || t.size("tp") > 1)
    return std::nullopt;
  int64_t og = divisor(t.serving, [&](int64_t d) {
    int64_t groups = *t.spec.model.attention.o_groups;
    return groups == 0 || groups % d != 0;
  });
  if (og == 0)
    return std::nullopt;
  t.document.set(axes, "og", i(og));
  return Keys{{axes, "og"}, {attention, "o_groups"}};
}

Answer og_without_groups(Rng &, Topology &t) {
  if (!layout_has(t, "og") || t.is("latent") || t.serving < 2 || t.size("tp") > 1)
    return std::nullopt;
  t.document.set(axes, "og", i(t.serving));
  return Keys{{axes, "og"}};
}

Answer tp_not_dividing_heads(Rng &rng, Topology &t) {
  int64_t tp = t.size("tp");
  if (tp == 1)
    return std::nullopt;
  t.document.set(attention, "heads", i(tp * rng.between(1, 2) + 1));
  if (t.is("latent"))
    t.document.set(attention, "o_groups", i(0));
  else
    t.document.set(attention, "kv_heads", i(1));
  return Keys{{axes, "tp"}, {attention, "heads"}};
}

Answer tp_not_dividing_o_groups(Rng &, Topology &t) {
  int64_t tp = t.size("tp");
  if (tp == 1 || !t.is("latent"))
    return std::nullopt;
  t.document.set(attention, "heads", i(tp * (tp + 1)));
  t.document.set(attention, "o_groups", i(tp + 1));
  t.document.set(attention, "o_lora", i(4));
  return Keys{{axes, "tp"}, {attention, "o_groups"}};
}

Answer tp_beside_kv_heads(Rng &, Topology &t) {
  int64_t tp = t.size("tp");
  if (tp == 1 || !t.is("gqa"))
    return std::nullopt;
  t.document.set(attention, "kv_heads", i(tp + 1));
  t.document.set(attention, "heads", i(tp * (tp + 1)));
  return Keys{{axes, "tp"}, {attention, "kv_heads"}};
}

Answer tp_not_dividing_dense(Rng &, Topology &t) {
  int64_t tp = t.size("tp");
  if (tp == 1)
    return std::nullopt;
  t.document.set("model.moe", "dense_layers", i(*t.spec.model.layers));
  t.document.set("model.moe", "dense_width", i(tp * 5 + 1));
  return Keys{{axes, "tp"}, {"model.moe", "dense_width"}};
}

Answer moe_tp_not_dividing_width(Rng &, Topology &t) {
  int64_t moe_tp = t.size("moe_tp");
  if (moe_tp == 1 || moe_tp >= 32 || !routed(t)) // --tiny brings widths down to 32
    return std::nullopt;
  t.document.set("model.moe", "width", i(moe_tp + 1));
  return Keys{{axes, "moe_tp"}, {"model.moe", "width"}};
}

Answer moe_tp_not_dividing_world(Rng &, Topology &t) {
  if (!layout_has(t, "moe_tp") || !routed(t))
    return std::nullopt;
  t.document.set(axes, "moe_tp", i(smallest_stranger(t.world)));
  return Keys{{axes, "moe_tp"}};
}

// Each divides the world, and their product does not.
Answer experts_cut_too_finely(Rng &, Topology &t) {
  if (!layout_has(t, "moe_tp") || !routed(t) || t.world < 2 || !everyone_serves(t))
    return std::nullopt;
  int64_t part = divisor(t.world, [](int64_t) { return true; });
  t.document.set("model.moe", "width", i(part * 2));
  t.document.set(axes, "ep", i(t.world));
  t.document.set(axes, "moe_tp", i(part));
  return Keys{{axes, "ep"}, {axes, "moe_tp"}};
}

Answer no_experts(Rng &rng, Topology &t) {
  if (routed(t) || t.serving < 2)
    return std::nullopt;
  std::string axis = layout_has(t, "moe_tp") && rng.percent(50) ? "moe_tp" : "ep";
  t.document.set(axes, axis, i(t.serving));
  return Keys{{axes, axis}};
}

Answer cp_with_decode(Rng &rng, Topology &t) {
  if (!layout_has(t, "cp") || t.prefill())
    return std::nullopt;
  t.document.erase(axes, "enp");
  t.document.set(axes, "cp", i(rng.between(2, 4)));
  return Keys{{axes, "cp"}, {"workload", "phase"}};
}

Answer tp_and_og(Rng &, Topology &t) {
  if (!layout_has(t, "og") || !t.is("latent") || t.size("tp") == 1 || *t.spec.model.attention.o_groups == 0 ||
      !everyone_serves(t))
    return std::nullopt;
  t.document.set(axes, "og", i(t.size("tp")));
  return Keys{{axes, "og"}, {axes, "tp"}};
}

Answer tp_and_cp(Rng &, Topology &t) {
  if (!layout_has(t, "cp") || !t.prefill() || t.size("tp") == 1)
    return std::nullopt;
  t.document.set(axes, "cp", i(2));
  for (const char *axis : {"enp", "ep", "moe_tp", "part"})
    t.document.erase(axes, axis);
  t.document.erase("group", "parts");
  t.document.set("machine", "nodes", i(64));
  return Keys{{axes, "cp"}, {axes, "tp"}};
}

Answer layers_over_pp(Rng &, Topology &t) {
  if (t.world < 2)
    return std::nullopt;
  t.document.set(axes, "pp", i(t.world));
  t.document.set("group", "pp", Item::of("(pp rest) -> rest pp"));
  return Keys{{axes, "pp"}};
}

Answer beyond_serving(Rng &rng, Topology &t) {
  if (everyone_serves(t) || !routed(t))
    return std::nullopt;
  bool og = layout_has(t, "og") && t.is("latent") && t.size("tp") == 1 && rng.percent(30);
  t.document.set(axes, og ? "og" : "ep", i(t.world));
  if (og) {
    t.document.set(attention, "o_groups", i(t.world));
    t.document.set(attention, "heads", i(t.world));
  }
  return Keys{{axes, og ? "og" : "ep"}, {axes, "enp"}};
}

// A size that divides the ranks that serve, over a pattern that strides past them.
Answer strides_beyond_serving(Rng &, Topology &t) {
  if (everyone_serves(t) || !t.experts || t.serving < 2 || *t.spec.layout_name != "deepinfer")
    return std::nullopt;
  t.document.erase(axes, "moe_tp");
  t.document.erase(axes, "part");
  t.document.erase("group");
  t.document.set("group", "ep", Item::of("(ep edp) -> edp ep"));
  t.document.set(axes, "ep", i(divisor(t.serving, [](int64_t) { return true; })));
  return Keys{{axes, "ep"}, {axes, "enp"}, {"group", "ep"}};
}

Answer fused_across_domains(Rng &, Topology &t) {
  if (t.size("ep") == 1 || !t.experts)
    return std::nullopt;
  t.document.set("machine", "gpus_per_node", i(1));
  t.document.set("machine", "scale_up_gpus", i(1));
  t.document.set("machine", "nodes", i(t.world));
  t.document.set("moe", "exchange", Item::of("fused"));
  t.document.erase("schedule", "fuse");
  return Keys{{"moe", "exchange"}};
}

// The fused exchange is a fusion: a list of fusions without it says otherwise.
Answer fused_and_unfused(Rng &rng, Topology &t) {
  if (t.size("ep") == 1 || !t.experts)
    return std::nullopt;
  t.document.set("moe", "exchange", Item::of("fused"));
  t.document.set("schedule", "fuse", rng.percent(50) ? Item::raw("[]") : Item::raw("[\"gemm-swiglu\"]"));
  return Keys{{"moe", "exchange"}, {"schedule", "fuse"}};
}

// Two groups that cut the same ranks.
Answer overlapping(Rng &, Topology &t) {
  if (t.size("ep") == 1 || t.size("moe_tp") == 1)
    return std::nullopt;
  t.document.set("group", "ep", Item::of("(edp ep) -> edp ep"));
  t.document.set("group", "moe_tp", Item::of("(each moe_tp) -> each moe_tp"));
  return Keys{{axes, "ep"}, {axes, "moe_tp"}, {"group", "ep"}, {"group", "moe_tp"}};
}

Answer group_of_other_size(Rng &rng, Topology &t) {
  std::vector<std::string> candidates;
  for (const char *axis : {"ep", "enp", "og", "tp", "cp", "dp"})
    if (layout_has(t, axis) && t.size(axis) * t.size(axis) != t.world)
      candidates.push_back(axis);
  if (candidates.empty() || !everyone_serves(t))
    return std::nullopt;
  std::string axis = rng.of(candidates);
  t.document.set("group", axis, Item::of("(rest " + axis + ") -> " + axis + " rest"));
  return Keys{{"group", axis}, {axes, axis}};
}

Answer rank_map_length(Rng &, Topology &t) {
  std::vector<int64_t> map;
  for (int64_t rank = 0; rank <= t.world; ++rank)
    map.push_back(rank);
  t.document.set("mesh", "rank_map", Item::of(map));
  return Keys{{"mesh", "rank_map"}};
}

Answer rank_map_no_permutation(Rng &rng, Topology &t) {
  std::vector<int64_t> map(static_cast<size_t>(t.world), 0);
  map.back() = t.world == 1 || rng.percent(50) ? t.world : 0;
  t.document.set("mesh", "rank_map", Item::of(map));
  return Keys{{"mesh", "rank_map"}};
}

// Every rank of tp dispatches all its tokens, and the ranks that share an expert's width are of different
// teams.
Answer replicated_across_teams(Rng &, Topology &t) {
  int64_t tp = t.size("tp"), dp = t.size("dp");
  if (*t.spec.layout_name != "tensor-parallel" || !t.experts || tp < 2 || dp < 2 || t.world < 4)
    return std::nullopt;
  // Neighbours of two teams share an expert.
  int64_t moe_tp = divisor(t.world, [&](int64_t d) { return tp % d != 0 && t.world / d > 1; });
  if (moe_tp == 0)
    return std::nullopt;
  t.document.set(axes, "moe_tp", i(moe_tp));
  t.document.set(axes, "ep", i(t.world / moe_tp));
  t.document.set("model.moe", "width", i(moe_tp * 2));
  t.document.set("moe", "exchange", Item::of("two-stage"));
  t.document.erase("schedule", "fuse"); // which may name mega-moe
  t.document.set("moe", "tp_dispatch", Item::of("replicated"));
  return Keys{{"moe", "tp_dispatch"}, {axes, "moe_tp"}, {axes, "ep"}};
}

} // namespace

// The mutation on a file without rank_map, whose length would be wrong first.
static Mutation mesh(std::string name, std::vector<std::string> codes, Answer (*apply)(Rng &, Topology &)) {
  return {std::move(name), std::move(codes), [apply](Rng &rng, Topology &t) {
            t.document.erase("mesh", "rank_map");
            return apply(rng, t);
          }};
}

std::vector<Mutation> mesh_mutations() {
  const std::vector<std::string> divides = {"not-divisible"};
  return {
      mesh("ep-not-dividing", divides, ep_not_dividing),
      mesh("enp-not-dividing", divides, enp_not_dividing),
      mesh("team-not-dividing", divides, team_not_dividing),
      mesh("og-not-dividing-world", divides, og_not_dividing_world),
      mesh("og-not-dividing-groups", divides, og_not_dividing_groups),
      mesh("og-without-groups", divides, og_without_groups),
      mesh("tp-not-dividing-heads", divides, tp_not_dividing_heads),
      mesh("tp-not-dividing-o-groups", divides, tp_not_dividing_o_groups),
      mesh("tp-beside-kv-heads", divides, tp_beside_kv_heads),
      mesh("tp-not-dividing-dense", divides, tp_not_dividing_dense),
      mesh("moe-tp-not-dividing-width", divides, moe_tp_not_dividing_width),
      mesh("moe-tp-not-dividing-world", divides, moe_tp_not_dividing_world),
      mesh("experts-cut-too-finely", divides, experts_cut_too_finely),
      mesh("no-experts", {"no-experts"}, no_experts),
      mesh("cp-with-decode", {"cp-with-decode"}, cp_with_decode),
      mesh("tp-and-og", {"axes-exclude"}, tp_and_og),
      mesh("tp-and-cp", {"not-built", "axes-exclude"}, tp_and_cp),
      mesh("pp", {"not-built"}, layers_over_pp),
      mesh("beyond-serving", {"beyond-serving"}, beyond_serving),
      mesh("strides-beyond-serving", {"beyond-serving"}, strides_beyond_serving),
      mesh("fused-across-domains", {"fused-across-domains"}, fused_across_domains),
      mesh("fused-and-unfused", {"contradicting-keys"}, fused_and_unfused),
      mesh("groups-overlap", {"groups-overlap"}, overlapping),
      mesh("group-of-other-size", {"group-size"}, group_of_other_size),
      {"rank-map-length", {"rank-map-length"}, rank_map_length},
      {"rank-map-no-permutation", {"not-a-permutation"}, rank_map_no_permutation},
      mesh("replicated-across-teams", {"no-exchange"}, replicated_across_teams),
  };
}

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all = language_mutations();
  for (auto *make : {model_mutations, mesh_mutations})
    for (Mutation &each : make())
      all.push_back(std::move(each));
  return all;
}

} // namespace paratope::random
