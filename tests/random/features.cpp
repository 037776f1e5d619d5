// SPDX-License-Identifier: Apache-2.0
//
// What a topology has, as words "family:what", and the words that a long run must have met: a generator that
// stopped drawing something would otherwise pass for ever.
#include "topology.h"

#include <algorithm>

#include <fmt/format.h>

#include "dsl/spec/describe.h"

namespace paratope::random {

namespace {

const std::vector<std::string> all_axes = {"dp", "cp", "ep", "enp", "og", "tp", "moe_tp"};

bool exclude(const std::string &a, const std::string &b) {
  auto both = [&](const char *x, const char *y) { return (a == x && b == y) || (a == y && b == x); };
  return both("tp", "cp") || both("tp", "og");
}

struct Words {
  const Topology &t;
  std::vector<std::string> words;

  void add(const std::string &family, const std::string &what, bool holds = true) {
    if (holds)
      words.push_back(family + ":" + what);
  }

  void run() {
    axes();
    memory();
    model();
    experts();
    workload();
    const TopologySpec &spec = t.spec;
    add("layout", *spec.layout_name);
    for (const NamedGroup &group : spec.groups)
      add("own group", group.name);
    add("placing", "rank_map", !spec.mesh.rank_map->empty());
    add("placing", "rank_offset", *spec.mesh.rank_offset > 0);
    add("machine", spec.machine.use->empty() ? "in place" : *spec.machine.use);
    add("control plane", *spec.engine.control_plane);
    add("overlap", *spec.schedule.overlap);
    const std::vector<std::string> &fuse = *spec.schedule.fuse;
    add("fuse", "none", fuse.empty());
    for (const std::string &name : fuse)
      add("fuse", name);
    add("steps", std::to_string(t.steps));
  }

  void axes() {
    for (size_t i = 0; i < all_axes.size(); ++i) {
      if (t.size(all_axes[i]) == 1)
        continue;
      add("axis", all_axes[i]);
      add("axis by phase", all_axes[i] + "/" + *t.spec.workload.phase);
      for (size_t j = i + 1; j < all_axes.size(); ++j)
        add("pair", all_axes[i] + "+" + all_axes[j], t.size(all_axes[j]) > 1);
    }
    add("world", t.world == 1    ? "1"
                 : t.world <= 4  ? "2-4"
                 : t.world <= 8  ? "5-8"
                 : t.world <= 16 ? "9-16"
                                 : "17-");
  }

  void memory() {
    if (!t.has_engram())
      return;
    int64_t enp = t.size("enp");
    std::string size = enp < t.team ? "below" : enp == t.team ? "equal" : "above";
    add("enp", size);
    if (enp > t.team)
      add("enp", "above/" + *t.spec.engram.extra_ranks);
    add("enp", size + "/" + *t.spec.engram.storage);
    add("enp", "multipliers", !t.spec.model.engram.multipliers->empty());
  }

  void model() {
    const ModelSpec &m = t.spec.model;
    const AttentionModel &a = m.attention;
    add("model", m.use->empty() ? "in place/" + *a.kind : *m.use);
    add("attention", *a.kind);
    add("attention", "sink", *a.sink);
    for (int64_t window : *a.window)
      add("attention", window > 0 ? "window" : "all keys");
    for (int64_t ratio : *a.compress_ratios)
      add("ratio", fmt::format("{}{}", ratio, t.size("cp") > 1 ? "/cp" : ""));
    if (t.is("latent")) {
      add("o_groups", *a.o_groups == 0   ? "none"
                      : t.size("og") > 1 ? "og/" + *t.spec.attention.o_exchange
                                         : "whole");
      add("attention", "no q_lora", *a.q_lora == 0);
    }
    if (t.is("gqa") && t.size("tp") > 1) {
      int64_t kv = *a.kv_heads, tp = t.size("tp");
      add("kv heads", kv == 1 ? "1" : kv < tp ? "below tp" : kv == tp ? "equal tp" : "above tp");
    }
    add("streams", *m.hyper_connections == 1 ? "1" : "more");
    add("layers", std::to_string(*m.layers));
  }

  void experts() {
    const ExpertModel &m = t.spec.model.moe;
    add("feed-forward", !t.experts ? "dense" : *m.dense_layers > 0 ? "both" : "experts");
    if (!t.experts)
      return;
    const MoeSpec &moe = t.spec.moe;
    add("feed-forward", "shared", *m.shared > 0);
    add("feed-forward", "expert groups", *m.groups > 1);
    add("score", *m.score);
    add("placement", *moe.placement);
    add("placement", "redundant", *moe.min_redundant_experts > 0);
    add("placement", "fewer experts than ranks", *m.routed < t.size("ep"));
    add("routing", *t.spec.workload.routing.kind);
    bool ep = t.size("ep") > 1, cut = t.size("moe_tp") > 1;
    if (!ep && !cut)
      return;
    std::string over = ep && cut ? "both" : ep ? "ep" : "moe_tp";
    add("exchange", *moe.exchange + "/" + over);
    if (t.size("tp") > 1)
      add("tp_dispatch", *moe.tp_dispatch + "/" + over);
  }

  void workload() {
    const WorkloadSpec &w = t.spec.workload;
    add("phase", *w.phase);
    auto &rows = *w.prompt_lengths;
    if (t.prefill()) {
      bool idle = std::any_of(rows.begin(), rows.end(), [](const auto &row) { return row.empty(); });
      add("workload", "no prompts", idle);
      add("workload", "rows", rows.size() > 1);
      for (const auto &row : rows) {
        add("workload", "one-token prompt", std::count(row.begin(), row.end(), 1) > 0);
        add("workload", "ragged", row.size() > 1 && row.front() != row.back());
      }
      add("workload", "history", !w.history_lengths->empty());
      return;
    }
    auto &counts = *w.tokens_per_rank;
    add("workload", "no tokens", std::count(counts.begin(), counts.end(), 0) > 0);
    add("workload", "list of tokens", counts.size() > 1);
    add("workload", "empty cache", *w.context == 0);
  }
};

} // namespace

std::vector<std::string> features_of(const Topology &topology) {
  Words words{topology, {}};
  words.run();
  std::sort(words.words.begin(), words.words.end());
  words.words.erase(std::unique(words.words.begin(), words.words.end()), words.words.end());
  return words.words;
}

std::vector<std::string> expected_features(const Library &library) {
  std::vector<std::string> all;
  auto family = [&](const std::string &name, const std::vector<std::string> &words) {
    for (const std::string &word : words)
      all.push_back(name + ":" + word);
  };
  family("axis", all_axes);
  for (size_t i = 0; i < all_axes.size(); ++i) {
    for (const char *phase : {"decode", "prefill"})
      if (all_axes[i] != "cp" || std::string_view(phase) == "prefill")
        all.push_back("axis by phase:" + all_axes[i] + "/" + phase);
    for (size_t j = i + 1; j < all_axes.size(); ++j)
      if (!exclude(all_axes[i], all_axes[j]))
        all.push_back("pair:" + all_axes[i] + "+" + all_axes[j]);
  }
  for (const auto &[name, model] : library.models)
    all.push_back("model:" + name);
  for (const auto &[name, machine] : library.machines)
    all.push_back("machine:" + name);
  for (const auto &[name, layout] : library.layouts)
    all.push_back("layout:" + name);
  family("model", {"in place/latent", "in place/mla", "in place/gqa"});
  family("machine", {"in place"});
  family("world", {"1", "2-4", "5-8", "9-16", "17-"});
  family("enp", {"below", "equal", "above", "below/host", "below/device", "equal/host", "equal/device",
                 "above/host", "above/device", "above/table-only", "above/serve", "multipliers"});
  family("own group", {"ep", "moe_tp", "experts", "og", "dp", "cp", "cpu_dp", "cpu_cp", "parts"});
  family("placing", {"rank_map", "rank_offset"});
  family("control plane", {"cpu", "gpu"});
  family("overlap", {"auto", "none"});
  family("fuse", {"auto", "none"});
  for (const std::string &name : fusion_names())
    family("fuse", {name});
  family("exchange", {"fused/ep"});
  family("steps", {"1", "2"});
  family("attention", {"latent", "mla", "gqa", "sink", "window", "all keys", "no q_lora"});
  family("ratio", {"0", "1", "2", "3", "4", "0/cp", "1/cp", "2/cp", "3/cp", "4/cp"});
  family("o_groups", {"none", "whole", "og/auto", "og/gather-inputs", "og/reduce-outputs"});
  family("kv heads", {"1", "below tp", "equal tp", "above tp"});
  family("streams", {"1", "more"});
  family("layers", {"1", "2", "3", "4"});
  family("feed-forward", {"dense", "both", "experts", "shared", "expert groups"});
  family("score", {"softmax", "sigmoid", "sqrtsoftplus"});
  family("placement", {"contiguous", "eplb", "redundant", "fewer experts than ranks"});
  family("routing", {"gate", "uniform", "zipf", "dirichlet", "hot"});
  for (const char *exchange : {"auto", "two-stage", "all-gather"})
    family("exchange", {std::string(exchange) + "/ep", std::string(exchange) + "/moe_tp",
                        std::string(exchange) + "/both"});
  for (const char *dispatch : {"split", "replicated"})
    family("tp_dispatch", {std::string(dispatch) + "/ep", std::string(dispatch) + "/moe_tp",
                           std::string(dispatch) + "/both"});
  family("phase", {"decode", "prefill"});
  family("workload", {"no prompts", "rows", "one-token prompt", "ragged", "history", "no tokens",
                      "list of tokens", "empty cache"});
  return all;
}

} // namespace paratope::random
