// SPDX-License-Identifier: Apache-2.0
//
// Mutations of keys that must agree with each other: of a model, of the machine, of the workload.
#include "mutations.h"

namespace paratope::random {

namespace {

using Keys = std::vector<KeyName>;
using Answer = std::optional<Keys>;

const std::string attention = "model.attention", moe = "model.moe", engram = "model.engram",
                  work = "workload";

Answer set_all(Topology &t, const std::vector<std::tuple<std::string, std::string, Item>> &changes) {
  Keys keys;
  for (const auto &[section, key, value] : changes) {
    t.document.set(section, key, value);
    keys.emplace_back(section, key);
  }
  return keys;
}

Item i(int64_t value) { return Item::of(value); }

// The mutation where `when` holds.
Mutation where(std::string name, std::vector<std::string> codes, std::function<bool(const Topology &)> when,
               std::function<Answer(Rng &, Topology &)> apply) {
  return {std::move(name), std::move(codes), [when, apply](Rng &rng, Topology &t) -> Answer {
            if (!when(t))
              return std::nullopt;
            return apply(rng, t);
          }};
}

bool any(const Topology &) { return true; }
bool gqa(const Topology &t) { return t.is("gqa"); }
bool latent(const Topology &t) { return t.is("latent"); }
bool routed(const Topology &t) { return *t.spec.model.moe.routed > 0; }
bool with_engram(const Topology &t) { return t.has_engram(); }
bool not_mla(const Topology &t) { return !t.is("mla"); }
bool prefill(const Topology &t) { return t.prefill(); }
bool decode(const Topology &t) { return !t.prefill(); }
bool machine_in_place(const Topology &t) { return t.used.machine.use->empty(); }

std::vector<Mutation> attention_mutations() {
  const std::vector<std::string> model = {"inconsistent-model"};
  return {
      where("kv-heads-not-dividing", model, gqa,
            [](Rng &rng, Topology &t) {
              int64_t kv = rng.between(2, 5);
              return set_all(t, {{attention, "kv_heads", i(kv)}, {attention, "heads", i(kv * 3 + 1)}});
            }),
      where("latent-kv-heads", model, latent,
            [](Rng &rng, Topology &t) {
              Answer keys = set_all(t, {{attention, "kv_heads", i(rng.between(2, 4))}});
              keys->push_back({attention, "kind"});
              return keys;
            }),
      where("odd-rope", model, any,
            [](Rng &, Topology &t) { return set_all(t, {{attention, "rope_dim", i(3)}}); }),
      where("rope-beyond-head", model, not_mla,
            [](Rng &, Topology &t) {
              int64_t dim = *t.spec.model.attention.head_dim;
              return set_all(
                  t, {{attention, "head_dim", i(dim)}, {attention, "rope_dim", i(dim + 2 + dim % 2)}});
            }),
      where("o-groups-not-dividing", model, latent,
            [](Rng &, Topology &t) {
              int64_t heads = *t.spec.model.attention.heads;
              return set_all(t, {{attention, "heads", i(heads)}, {attention, "o_groups", i(heads + 1)}});
            }),
      where("o-groups-without-width", {"missing-key"}, latent,
            [](Rng &, Topology &t) {
              return set_all(t, {{attention, "o_groups", i(1)}, {attention, "o_lora", i(0)}});
            }),
      where("no-head-width", {"missing-key", "out-of-range"}, not_mla,
            [](Rng &, Topology &t) {
              Answer keys = set_all(t, {{attention, "head_dim", i(0)}});
              keys->push_back({attention, "kind"});
              return keys;
            }),
      where(
          "mla-lacks-width", {"missing-key", "out-of-range"}, [](const Topology &t) { return t.is("mla"); },
          [](Rng &rng, Topology &t) {
            Answer keys =
                set_all(t, {{attention, rng.of<std::string>({"kv_lora", "nope_dim", "v_dim"}), i(0)}});
            keys->push_back({attention, "kind"});
            return keys;
          }),
      where("width-of-another-kind", model, any,
            [](Rng &rng, Topology &t) {
              std::vector<std::string> others = {"kv_lora", "nope_dim", "v_dim"};
              if (!t.is("latent"))
                others = {"o_groups", "o_lora"};
              if (t.is("gqa"))
                others.push_back("q_lora");
              return set_all(t, {{attention, rng.of(others), i(1)}});
            }),
      where(
          "compressed-keys-of-another-kind", model, [](const Topology &t) { return !t.is("latent"); },
          [](Rng &rng, Topology &t) {
            std::vector<int64_t> ratios(static_cast<size_t>(*t.spec.model.layers), rng.between(1, 2));
            return set_all(t, {{attention, "compress_ratios", Item::of(ratios)}});
          }),
      where("ratios-not-one-a-layer", model, any,
            [](Rng &, Topology &t) {
              std::vector<int64_t> ratios(static_cast<size_t>(*t.spec.model.layers) + 1, 0);
              t.document.set(attention, "compress_ratios", Item::of(ratios));
              return Keys{{attention, "compress_ratios"}, {"model", "layers"}};
            }),
      where("empty-window", {"empty-list"}, any,
            [](Rng &, Topology &t) { return set_all(t, {{attention, "window", Item::raw("[]")}}); }),
  };
}

std::vector<Mutation> expert_mutations() {
  const std::vector<std::string> model = {"inconsistent-model"};
  return {
      where("top-k-beyond-experts", model, routed,
            [](Rng &rng, Topology &t) {
              int64_t experts = *t.spec.model.moe.routed;
              return set_all(
                  t, {{moe, "routed", i(experts)}, {moe, "top_k", i(rng.percent(50) ? 0 : experts + 1)}});
            }),
      where("expert-groups-not-dividing", model, routed,
            [](Rng &, Topology &t) {
              int64_t experts = *t.spec.model.moe.routed;
              return set_all(t, {{moe, "routed", i(experts)}, {moe, "groups", i(experts + 1)}});
            }),
      where("top-groups-beyond-groups", model, routed,
            [](Rng &, Topology &t) {
              int64_t groups = *t.spec.model.moe.groups;
              return set_all(t, {{moe, "groups", i(groups)}, {moe, "top_groups", i(groups + 1)}});
            }),
      where("groups-smaller-than-top-k", model, routed,
            [](Rng &, Topology &t) {
              return set_all(t, {{moe, "routed", i(8)},
                                 {moe, "groups", i(4)},
                                 {moe, "top_groups", i(1)},
                                 {moe, "top_k", i(3)}});
            }),
      where("dense-layers-beyond-layers", model, routed,
            [](Rng &, Topology &t) {
              t.document.set(moe, "dense_width", i(64 * t.size("tp")));
              t.document.set(moe, "dense_layers", i(*t.spec.model.layers + 1));
              return Keys{{moe, "dense_layers"}, {"model", "layers"}};
            }),
      where("dense-without-width", {"missing-key"}, any,
            [](Rng &, Topology &t) {
              return set_all(t, {{moe, "dense_layers", i(*t.spec.model.layers)}, {moe, "dense_width", i(0)}});
            }),
      where("no-experts-and-not-dense", model, routed,
            [](Rng &, Topology &t) {
              return set_all(t, {{moe, "routed", i(0)}, {moe, "dense_layers", i(0)}});
            }),
      where("experts-without-width", {"missing-key"}, routed,
            [](Rng &, Topology &t) {
              Answer keys = set_all(t, {{moe, "width", i(0)}, {moe, "routed", i(*t.spec.model.moe.routed)}});
              keys->push_back({moe, "shared"});
              return keys;
            }),
      where("engram-layer-beyond-layers", model, with_engram,
            [](Rng &, Topology &t) {
              t.document.set(engram, "multipliers", Item::raw("[]"));
              t.document.set(engram, "layers", Item::of(std::vector<int64_t>{*t.spec.model.layers}));
              return Keys{{engram, "layers"}, {"model", "layers"}};
            }),
      where(
          "engram-layers-unordered", model,
          [](const Topology &t) { return t.has_engram() && *t.spec.model.layers > 1; },
          [](Rng &rng, Topology &t) {
            t.document.set(engram, "multipliers", Item::raw("[]"));
            return set_all(t, {{engram, "layers", Item::of(std::vector<int64_t>{1, rng.between(0, 1)})}});
          }),
      where("multipliers-not-a-row-a-layer", model, with_engram,
            [](Rng &, Topology &t) {
              size_t rows = t.spec.model.engram.layers->size() + 1;
              std::vector<int64_t> row(static_cast<size_t>(*t.spec.model.engram.ngram), 3);
              t.document.set(engram, "multipliers", Item::of(std::vector<std::vector<int64_t>>(rows, row)));
              return Keys{{engram, "multipliers"}, {engram, "layers"}};
            }),
      where("multipliers-short", model, with_engram,
            [](Rng &, Topology &t) {
              std::vector<int64_t> row(static_cast<size_t>(*t.spec.model.engram.ngram) - 1, 3);
              t.document.set(
                  engram, "multipliers",
                  Item::of(std::vector<std::vector<int64_t>>(t.spec.model.engram.layers->size(), row)));
              return Keys{{engram, "multipliers"}, {engram, "ngram"}};
            }),
      where(
          "multipliers-even", model, with_engram,
          [](Rng &rng, Topology &t) {
            std::vector<int64_t> row(static_cast<size_t>(*t.spec.model.engram.ngram), rng.one_of({2, -3, 0}));
            return set_all(
                t, {{engram, "multipliers",
                     Item::of(std::vector<std::vector<int64_t>>(t.spec.model.engram.layers->size(), row))}});
          }),
      where("weights-word", {"unknown-choice"}, any,
            [](Rng &rng, Topology &t) {
              return set_all(t,
                             {{"model", "weights", Item::of(rng.of<std::string>({"real", "safetensors:"}))}});
            }),
  };
}

std::vector<Mutation> workload_mutations() {
  return {
      where("prefill-without-prompts", {"missing-key"}, prefill,
            [](Rng &rng, Topology &t) {
              if (rng.percent(50))
                t.document.erase(work, "prompt_lengths");
              else
                t.document.set(work, "prompt_lengths", Item::raw("[]"));
              return Keys{{work, "phase"}, {work, "prompt_lengths"}};
            }),
      where("no-tokens-list", {"empty-list"}, decode,
            [](Rng &, Topology &t) { return set_all(t, {{work, "tokens_per_rank", Item::raw("[]")}}); }),
      where("hot-expert-beyond-experts", {"out-of-range"}, any,
            [](Rng &, Topology &t) {
              return set_all(t, {{"workload.routing", "kind", Item::of("hot")},
                                 {"workload.routing", "expert", i(*t.spec.model.moe.routed)}});
            }),
      where("trace-without-file", {"missing-key"}, any,
            [](Rng &, Topology &t) { return set_all(t, {{"workload.routing", "kind", Item::of("trace")}}); }),
      where("trace-of-no-file", {"file-not-found"}, any,
            [](Rng &, Topology &t) {
              return set_all(t, {{"workload.routing", "kind", Item::of("trace")},
                                 {"workload.routing", "file", Item::of("no-such-trace.json")}});
            }),
      where("loads-of-no-file", {"file-not-found"}, any,
            [](Rng &, Topology &t) {
              t.document.set("moe", "placement", Item::of("eplb"));
              return set_all(t, {{"moe", "loads", Item::of("no-such-loads.json")}});
            }),
      where("dirichlet-too-small", {"routing-dirichlet"}, routed,
            [](Rng &, Topology &t) {
              t.document.set("moe", "placement", Item::of("eplb"));
              t.document.set("workload.routing", "kind", Item::of("dirichlet"));
              return set_all(t, {{"workload.routing", "alpha", Item::of(1e-9)}});
            }),
      where(
          "domains-and-nodes", {"inconsistent-machine"},
          [](const Topology &t) { return *t.spec.machine.gpus_per_node > 1; },
          [](Rng &, Topology &t) {
            int64_t gpus = *t.spec.machine.gpus_per_node;
            t.document.set("machine", "scale_up_gpus", i(gpus + 1));
            return Keys{{"machine", "scale_up_gpus"}, {"machine", "gpus_per_node"}};
          }),
      where("no-link-between-domains", {"inconsistent-machine"}, machine_in_place,
            [](Rng &, Topology &t) {
              t.document.erase("machine.scale_out");
              t.document.set("machine", "nodes", i(*t.spec.machine.scale_up_gpus + 1));
              return Keys{{"machine", "nodes"}, {"machine", "gpus_per_node"}};
            }),
      where(
          "too-few-gpus", {"too-few-gpus"}, [](const Topology &t) { return t.world > 1; },
          [](Rng &, Topology &t) {
            t.document.set("machine", "gpus_per_node", i(1));
            t.document.set("machine", "scale_up_gpus", i(1));
            t.document.set("machine", "nodes", i(t.world - 1));
            return Keys{{"machine", "nodes"}};
          }),
      where(
          "does-not-fit", {"does-not-fit"}, [](const Topology &t) { return t.world > 1; },
          [](Rng &, Topology &t) {
            t.document.set("machine.gpu", "memory_gb", Item::of(0.001));
            return Keys{{"machine.gpu", "memory_gb"},
                        {work, "tokens_per_rank"},
                        {work, "prompt_lengths"},
                        {work, ""}};
          }),
  };
}

} // namespace

std::vector<Mutation> model_mutations() {
  std::vector<Mutation> all = attention_mutations();
  for (auto *make : {expert_mutations, workload_mutations})
    for (Mutation &each : make())
      all.push_back(std::move(each));
  return all;
}

} // namespace paratope::random
