// SPDX-License-Identifier: Apache-2.0
//
// The topology language as plain values: what a file says, section by section, before anything is derived
// from it. `dsl/toml` fills these from text, `dsl/topo` from MLIR; neither computes.
#pragma once

#include "dsl/spec/field.h"

namespace paratope {

inline constexpr int64_t language_version = 1;

// One kind of link. Bandwidth is one direction's, a GPU, in GB/s (10⁹ bytes); latency is one hop's.
struct LinkSpec {
  Field<std::string> name;
  Field<double> gb_per_s;
  Field<double> latency_us;
};

struct MachineSpec {
  Field<std::string> use; // a file of topologies/machines, or empty when written in place
  Field<std::string> name;
  Field<std::string> summary;
  Field<int64_t> nodes = int64_t{1};
  Field<int64_t> gpus_per_node;
  Field<int64_t>
      scale_up_gpus; // GPUs of one scale-up (NVLink) domain: gpus_per_node for an HGX node, 72 for an NVL72
  Field<std::string> gpu_name;
  Field<double> gpu_memory_gb; // usable device memory, 10⁹ bytes
  Field<double> gpu_memory_gb_per_s;
  LinkSpec scale_up;
  LinkSpec scale_out;
};

struct AttentionModel {
  Field<std::string> kind; // latent (V4: one shared latent as key and value) | mla (V3, absorbed) | gqa
  Field<int64_t> heads;
  Field<int64_t> kv_heads = int64_t{1};
  Field<int64_t> head_dim; // latent and gqa: width of a head; mla: nope_dim + rope_dim is used instead
  Field<int64_t> rope_dim; // rotary dims, the last of a head
  Field<double> rope_theta = 10000.0;
  Field<double> compress_rope_theta = 160000.0; // in layers that keep compressed keys
  Field<int64_t> q_lora = int64_t{0};           // 0: no low-rank query
  Field<int64_t> kv_lora = int64_t{0};          // mla: width of the latent
  Field<int64_t> nope_dim = int64_t{0};         // mla: a head's dims without rotation
  Field<int64_t> v_dim = int64_t{0};            // mla: a head's value width
  Field<int64_t> o_groups = int64_t{0};         // latent: output groups; 0: one output projection
  Field<int64_t> o_lora = int64_t{0};           // latent: width of one output group's low-rank output
  Field<std::vector<int64_t>> window =
      std::vector<int64_t>{0};                 // sliding window a layer, dealt in turn; 0: all keys
  Field<std::vector<int64_t>> compress_ratios; // one a layer; 0: window only. Empty: no layer compresses
  Field<bool> sink = false;                    // a learned logit a head joins the softmax's denominator
};

struct ExpertModel {
  Field<int64_t> routed = int64_t{0}; // 0: a dense model
  Field<int64_t> top_k = int64_t{0};
  Field<int64_t> shared = int64_t{0};
  Field<int64_t> width = int64_t{0};
  Field<std::string> score = std::string("softmax"); // softmax | sigmoid | sqrtsoftplus
  Field<bool> normalise = true;                      // chosen scores are divided by their sum
  Field<double> scaling = 1.0;
  Field<int64_t> groups = int64_t{1};       // group-limited routing (V3): groups …
  Field<int64_t> top_groups = int64_t{1};   // … of which a token may use so many
  Field<double> swiglu_limit = 0.0;         // 0: no clamp
  Field<int64_t> dense_layers = int64_t{0}; // the first layers, which have a dense MLP instead
  Field<int64_t> dense_width = int64_t{0};
};

struct EngramModel {
  Field<std::vector<int64_t>> layers; // empty: no Engram
  Field<int64_t> ngram = int64_t{0};  // 4: 2-, 3- and 4-grams
  Field<int64_t> heads = int64_t{0};  // hash heads an n
  Field<int64_t> dim = int64_t{0};    // width of a table row
  Field<int64_t> vocab_per_head = int64_t{0};
  Field<std::vector<std::vector<int64_t>>> multipliers; // a row a layer; empty: drawn from the seed
};

struct ModelSpec {
  Field<std::string> use; // a file of topologies/models …
  Field<std::string> hf;  // … or a Hugging Face configuration, or neither when written in place
  Field<std::string> name;
  Field<std::string> summary;
  Field<int64_t> hidden;
  Field<int64_t> layers;
  Field<int64_t> vocab;
  Field<double> rms_eps = 1e-6;
  Field<int64_t> hyper_connections = int64_t{1};
  AttentionModel attention;
  ExpertModel moe;
  EngramModel engram;
  Field<std::string> weights = std::string("synthetic"); // synthetic | safetensors:DIR
  Field<int64_t> seed = int64_t{0};
};

struct LayoutSpec {
  Field<std::string> name;
  Field<std::string> summary;
  std::vector<NamedAxis> axes; // default sizes; sorted by name
  Field<std::vector<std::vector<std::string>>>
      world_max_of;               // [world] max_of: world = max over these products of axes
  std::vector<NamedGroup> groups; // sorted by name
};

struct MeshSpec {
  Field<std::vector<int64_t>> rank_map; // a permutation of 0…world−1, or empty
  Field<int64_t> rank_offset = int64_t{0};
};

struct MoeSpec {
  Field<int64_t> min_redundant_experts = int64_t{0};
  Field<std::string> exchange = std::string("auto");       // auto | two-stage | fused | all-gather
  Field<std::string> dispatch_dtype = std::string("bf16"); // bf16 | fp8
  Field<std::string> combine_dtype = std::string("bf16");
  Field<std::string> expert_dtype = std::string("fp8");     // bf16 | fp8 | fp4, of the experts' weights
  Field<std::string> placement = std::string("contiguous"); // contiguous | eplb
  Field<std::string> loads;                                 // a JSON file of measured loads for eplb
  Field<std::string> tp_dispatch = std::string("split");    // split | replicated
};

struct AttentionSpec {
  Field<std::string> o_exchange = std::string("auto"); // gather-inputs | reduce-outputs | auto
  Field<std::string> weight_dtype = std::string("fp8");
  Field<std::string> kv_dtype = std::string("bf16");
};

struct EngramSpec {
  Field<std::string> storage = std::string("device");         // device | host
  Field<std::string> extra_ranks = std::string("table-only"); // table-only | serve
};

// How tokens choose experts in a synthetic run. `gate`: the gate's own scores decide. The others draw each
// token's choice from a distribution (the gate still weighs): uniform; zipf with exponent s; dirichlet with
// concentration alpha; hot: every token's first choice is `expert`; trace: read from `file`.
struct RoutingSpec {
  Field<std::string> kind = std::string("gate");
  Field<double> s = 1.0;
  Field<double> alpha = 1.0;
  Field<int64_t> expert = int64_t{0};
  Field<std::string> file;
  Field<int64_t> seed = int64_t{0};
};

struct WorkloadSpec {
  Field<std::string> phase = std::string("decode"); // decode | prefill
  // Tokens a rank brings to a step. An engine of n ranks (a tp or cp group) serves n times as many. A list is
  // dealt to the engines in turn; 0 makes the engine run a placeholder step.
  Field<std::vector<int64_t>> tokens_per_rank = std::vector<int64_t>{1};
  Field<int64_t> context = int64_t{0}; // decode: tokens already in the KV cache of each sequence
  // Prefill: the prompts of an engine, a row dealt to the engines in turn; an empty row makes the engine run
  // a placeholder step. Before prompt j of an engine, history_lengths[j mod size] tokens are cached already.
  Field<std::vector<std::vector<int64_t>>> prompt_lengths;
  Field<std::vector<int64_t>> history_lengths;
  RoutingSpec routing;
};

struct EngineSpec {
  Field<std::string> control_plane = std::string("cpu"); // cpu | gpu
  Field<int64_t> prefill_attempt_interval = int64_t{16};
  Field<int64_t> prefill_any_attempt_interval = int64_t{64};
};

struct ScheduleSpec {
  Field<std::vector<std::string>> fuse = std::vector<std::string>{"auto"}; // or fusion_names()
  Field<std::string> overlap = std::string("auto");                        // auto | none
};

struct TopologySpec {
  Field<int64_t> version; // key `topology`
  Field<std::string> name;
  Field<std::string> summary;
  Field<std::string> layout_name; // key `layout`
  LayoutSpec layout;              // read from the layout's file, with its own locations
  MachineSpec machine;
  ModelSpec model;
  std::vector<NamedAxis> axes;    // as written in the topology; sorted by name
  std::vector<NamedGroup> groups; // added or replaced by the topology; sorted by name
  MeshSpec mesh;
  MoeSpec moe;
  AttentionSpec attention;
  EngramSpec engram;
  WorkloadSpec workload;
  EngineSpec engine;
  ScheduleSpec schedule;
  SourceRange where; // the file
};

} // namespace paratope
