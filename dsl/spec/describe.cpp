// SPDX-License-Identifier: Apache-2.0
//
// Every key of the language: its type, range, need and one sentence. The order is the one a person would
// write. Ranges only keep out what no computation could use (a width of zero, a count that would overflow a
// product of three); what depends on a second key is check.cpp's.
#include "dsl/spec/describe.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace paratope {
namespace {

constexpr int64_t most_count = int64_t{1}
                               << 31; // ranks, layers' widths, tokens: products of two stay in 64 bits
constexpr int64_t most_rows = int64_t{1} << 40; // rows of a hash table

constexpr IntegerRange at_least_one{1, most_count};
constexpr IntegerRange at_least_zero{0, most_count};
constexpr IntegerRange any_seed{0, std::numeric_limits<int64_t>::max()};
constexpr NumberRange above_zero{.least = 0, .above = true};
constexpr NumberRange rate{.least = 1e-3, .most = 1e9}; // GB, GB/s

constexpr Need required = Need::required;
constexpr Need optional = Need::optional;

void describe_link(FieldVisitor &visitor, LinkSpec &link) {
  visitor.text("name", link.name, optional, "What the link is called in reports.");
  visitor.number("gb_per_s", link.gb_per_s, rate, required,
                 "Bandwidth of one direction of one GPU, in GB/s (10^9 bytes a second).");
  visitor.number("latency_us", link.latency_us, {.least = 0, .most = 1e9}, required,
                 "Latency of one hop, in microseconds.");
}

void describe_attention_model(FieldVisitor &visitor, AttentionModel &attention) {
  visitor.choice(
      "kind", attention.kind, {"latent", "mla", "gqa"}, required,
      "latent: one shared latent is key and value of every head; mla: DeepSeek-V3's, in its absorbed "
      "form; gqa: heads share key and value heads.");
  visitor.integer("heads", attention.heads, at_least_one, required, "Query heads.");
  visitor.integer("kv_heads", attention.kv_heads, at_least_one, optional, "Key and value heads.");
  visitor.integer("head_dim", attention.head_dim, at_least_one, optional,
                  "Width of a head; latent and gqa need it, mla uses nope_dim + rope_dim.");
  visitor.integer("rope_dim", attention.rope_dim, at_least_zero, optional,
                  "Rotary dims, the last of each head.");
  visitor.number("rope_theta", attention.rope_theta, above_zero, optional, "Base of the rotary frequencies.");
  visitor.number("compress_rope_theta", attention.compress_rope_theta, above_zero, optional,
                 "Base of the rotary frequencies in layers that keep compressed keys.");
  visitor.integer("q_lora", attention.q_lora, at_least_zero, optional,
                  "Width of the low-rank query; 0 projects queries directly.");
  visitor.integer("kv_lora", attention.kv_lora, at_least_zero, optional,
                  "Width of the key-value latent (mla).");
  visitor.integer("nope_dim", attention.nope_dim, at_least_zero, optional,
                  "Dims of a head without rotation (mla).");
  visitor.integer("v_dim", attention.v_dim, at_least_zero, optional, "Width of a head's value (mla).");
  visitor.integer("o_groups", attention.o_groups, at_least_zero, optional,
                  "Output groups (latent); 0 is one output projection.");
  visitor.integer("o_lora", attention.o_lora, at_least_zero, optional,
                  "Width of one output group's low-rank output (latent).");
  visitor.integer_or_list(
      "window", attention.window, at_least_zero, optional,
      "Sliding window in tokens, or a list dealt to the layers in turn; 0 sees all keys.");
  visitor.integers("compress_ratios", attention.compress_ratios, at_least_zero, optional,
                   "Compression ratio of the keys, one a layer; 0 keeps the window only.");
  visitor.boolean("sink", attention.sink, optional,
                  "A learned logit of each head joins the softmax's denominator.");
}

void describe_expert_model(FieldVisitor &visitor, ExpertModel &moe) {
  visitor.integer("routed", moe.routed, at_least_zero, optional,
                  "Experts the gate chooses from; 0 is a dense model.");
  visitor.integer("top_k", moe.top_k, at_least_zero, optional, "Experts a token is sent to.");
  visitor.integer("shared", moe.shared, at_least_zero, optional, "Experts every token uses.");
  visitor.integer("width", moe.width, at_least_zero, optional, "Inner width of one expert.");
  visitor.choice("score", moe.score, {"softmax", "sigmoid", "sqrtsoftplus"}, optional,
                 "How the gate turns logits into scores.");
  visitor.boolean("normalise", moe.normalise, optional, "Chosen scores are divided by their sum.");
  visitor.number("scaling", moe.scaling, above_zero, optional, "Factor on the routed experts' weights.");
  visitor.integer("groups", moe.groups, at_least_one, optional, "Groups of group-limited routing.");
  visitor.integer("top_groups", moe.top_groups, at_least_one, optional, "Groups one token may use.");
  visitor.number("swiglu_limit", moe.swiglu_limit, {.least = 0}, optional,
                 "Clamp on the gate and up projections; 0 does not clamp.");
  visitor.integer("dense_layers", moe.dense_layers, at_least_zero, optional,
                  "The first layers, which have a dense MLP instead of experts.");
  visitor.integer("dense_width", moe.dense_width, at_least_zero, optional, "Inner width of a dense MLP.");
}

void describe_engram_model(FieldVisitor &visitor, EngramModel &engram) {
  visitor.integers("layers", engram.layers, at_least_zero, required, "Layers that look up n-grams.");
  visitor.integer("ngram", engram.ngram, {2, 64}, required, "Longest n-gram; 4 looks up 2-, 3- and 4-grams.");
  visitor.integer("heads", engram.heads, {1, 4096}, required, "Hash heads of each n.");
  visitor.integer("dim", engram.dim, at_least_one, required, "Width of a table row.");
  visitor.integer("vocab_per_head", engram.vocab_per_head, {2, most_rows}, required,
                  "Rows of one head's table, before the walk to the next unused prime.");
  visitor.integer_rows(
      "multipliers", engram.multipliers, {}, optional,
      "Odd hash multipliers, a row for each layer and a number for each token of the n-gram; "
      "left out, they are drawn from the seed.");
}

void describe_routing(FieldVisitor &visitor, RoutingSpec &routing) {
  visitor.choice("kind", routing.kind, {"gate", "uniform", "zipf", "dirichlet", "hot", "trace"}, optional,
                 "gate: the gate's scores choose; uniform, zipf and dirichlet draw the choice; hot: every "
                 "token's first choice is one expert; trace: read from a file.");
  visitor.number("s", routing.s, {.least = 0, .most = 64}, optional, "Exponent of zipf; 0 is uniform.");
  visitor.number("alpha", routing.alpha, above_zero, optional,
                 "Concentration of dirichlet; small is skewed.");
  visitor.integer("expert", routing.expert, at_least_zero, optional, "The expert that hot sends to.");
  visitor.text("file", routing.file, optional, "The trace, relative to the file that names it.");
  visitor.integer("seed", routing.seed, any_seed, optional, "Seed of the drawn choices.");
}

} // namespace

void describe(FieldVisitor &visitor, MachineSpec &machine) {
  visitor.text("use", machine.use, optional,
               "A machine by name (topologies/machines) or a path; the keys beside it override it.");
  visitor.text("name", machine.name, required, "What the machine is called.");
  visitor.text("summary", machine.summary, optional, "One line about the machine.");
  visitor.integer("nodes", machine.nodes, at_least_one, optional, "Nodes in use.");
  visitor.integer("gpus_per_node", machine.gpus_per_node, {1, 1024}, required, "GPUs of one node.");
  visitor.integer(
      "scale_up_gpus", machine.scale_up_gpus, {1, 1 << 20}, required,
      "GPUs that can load and store each other's memory: 8 for an HGX node, 72 for an NVL72 rack.");
  visitor.table("gpu", required, "One GPU.", [&](FieldVisitor &v) {
    v.text("name", machine.gpu_name, required, "What the GPU is called.");
    v.number("memory_gb", machine.gpu_memory_gb, rate, required, "Usable device memory, in GB (10^9 bytes).");
    v.number("memory_gb_per_s", machine.gpu_memory_gb_per_s, rate, required,
             "Bandwidth of device memory, in GB/s.");
  });
  visitor.table("scale_up", required, "The link inside a scale-up domain (NVLink).",
                [&](FieldVisitor &v) { describe_link(v, machine.scale_up); });
  visitor.table("scale_out", optional, "The link between scale-up domains (InfiniBand, Ethernet).",
                [&](FieldVisitor &v) { describe_link(v, machine.scale_out); });
}

void describe(FieldVisitor &visitor, ModelSpec &model) {
  visitor.text("use", model.use, optional,
               "A model by name (topologies/models) or a path; the keys beside it override it.");
  visitor.text(
      "hf", model.hf, optional,
      "A Hugging Face config.json, relative to the file that names it, in place of use; the keys beside "
      "it override it.");
  visitor.text("name", model.name, required, "What the model is called.");
  visitor.text("summary", model.summary, optional, "One line about the model.");
  visitor.integer("hidden", model.hidden, {1, 1 << 20}, required, "Width of the residual stream.");
  visitor.integer("layers", model.layers, {1, 4096}, required, "Transformer layers.");
  visitor.integer("vocab", model.vocab, at_least_one, required, "Tokens of the vocabulary.");
  visitor.number("rms_eps", model.rms_eps, {.least = 0, .most = 1, .above = true}, optional,
                 "Epsilon of the RMS norms; above 0, since rows without a token are zero.");
  visitor.integer("hyper_connections", model.hyper_connections, {1, 64}, optional,
                  "Streams of the residual; 1 is the plain residual.");
  visitor.text("weights", model.weights, optional,
               "synthetic: drawn from the seed; safetensors:DIR: read from files.");
  visitor.integer("seed", model.seed, any_seed, optional, "Seed of synthetic weights.");
  visitor.table("attention", required, "Attention.",
                [&](FieldVisitor &v) { describe_attention_model(v, model.attention); });
  visitor.table("moe", optional, "The feed-forward part: experts, dense layers, or both.",
                [&](FieldVisitor &v) { describe_expert_model(v, model.moe); });
  visitor.table("engram", optional, "N-gram memory; left out, the model has none.",
                [&](FieldVisitor &v) { describe_engram_model(v, model.engram); });
}

void describe(FieldVisitor &visitor, LayoutSpec &layout) {
  visitor.text("name", layout.name, required, "What the layout is called.");
  visitor.text("summary", layout.summary, optional, "One line about how ranks are numbered.");
  visitor.axis_sizes("axes", layout.axes,
                     "The axes and their default sizes; an array of axis names is their product.");
  visitor.table("world", required, "How many ranks there are.", [&](FieldVisitor &v) {
    v.text_rows("max_of", layout.world_max_of, required,
                "Products of axes; the world is the largest of them.");
  });
  visitor.groups("group", layout.groups, "Groups by name, each a pattern or a list applied in turn.");
}

void describe(FieldVisitor &visitor, MeshSpec &mesh) {
  visitor.integers("rank_map", mesh.rank_map, at_least_zero, optional,
                   "The device of each rank, a permutation of the world.");
  visitor.integer("rank_offset", mesh.rank_offset, at_least_zero, optional,
                  "The first rank of this mesh inside a larger job.");
}

void describe(FieldVisitor &visitor, MoeSpec &moe) {
  visitor.integer("min_redundant_experts", moe.min_redundant_experts, {0, 1 << 20}, optional,
                  "Floor of the extra expert slots; the total is padded up until ep divides it.");
  visitor.choice("exchange", moe.exchange, {"auto", "two-stage", "fused", "all-gather"}, optional,
                 "How tokens travel to experts and back; auto takes fused where it is legal and faster.");
  visitor.choice("dispatch_dtype", moe.dispatch_dtype, {"bf16", "fp8"}, optional,
                 "What a token is sent as on the way to its experts.");
  visitor.choice("combine_dtype", moe.combine_dtype, {"bf16", "fp8"}, optional,
                 "What it is sent as on the way back.");
  visitor.choice("expert_dtype", moe.expert_dtype, {"bf16", "fp8", "fp4"}, optional,
                 "What the experts' weights are kept as.");
  visitor.choice("placement", moe.placement, {"contiguous", "eplb"}, optional,
                 "Which rank holds which expert: in order, or balanced by load.");
  visitor.text("loads", moe.loads, optional,
               "A JSON file of measured expert loads for eplb, relative to the file that names it.");
  visitor.choice("tp_dispatch", moe.tp_dispatch, {"split", "replicated"}, optional,
                 "Under tensor parallelism, each rank dispatches its slice of the tokens, or all of them.");
}

void describe(FieldVisitor &visitor, AttentionSpec &attention) {
  visitor.choice("o_exchange", attention.o_exchange, {"auto", "gather-inputs", "reduce-outputs"}, optional,
                 "With og above 1, how output groups come back to the token's rank.");
  visitor.choice("weight_dtype", attention.weight_dtype, {"bf16", "fp8"}, optional,
                 "What the attention's weights are kept as.");
  visitor.choice("kv_dtype", attention.kv_dtype, {"bf16", "fp8"}, optional, "What the KV cache is kept as.");
}

void describe(FieldVisitor &visitor, EngramSpec &engram) {
  visitor.choice("storage", engram.storage, {"device", "host"}, optional,
                 "Where table rows lie: GPU memory or pinned host memory.");
  visitor.choice(
      "extra_ranks", engram.extra_ranks, {"table-only", "serve"}, optional,
      "What ranks beyond dp x cp do when enp asks for more: hold rows only, or serve as replicas.");
}

void describe(FieldVisitor &visitor, WorkloadSpec &workload) {
  visitor.choice("phase", workload.phase, {"decode", "prefill"}, optional, "Which step is compiled.");
  visitor.integer_or_list("tokens_per_rank", workload.tokens_per_rank, {0, 1 << 24}, optional,
                          "Tokens a rank brings to a decode step, or a list dealt to the engines in turn; 0 "
                          "makes an engine run a placeholder step.");
  visitor.integer("context", workload.context, at_least_zero, optional,
                  "Tokens already in the KV cache of each sequence (decode).");
  visitor.integer_rows(
      "prompt_lengths", workload.prompt_lengths, {1, 1 << 24}, optional,
      "Prefill: lengths of the prompts every engine has, or a list of such lists dealt to the "
      "engines in turn; [] makes an engine run a placeholder step.");
  visitor.integers(
      "history_lengths", workload.history_lengths, at_least_zero, optional,
      "Prefill: tokens already in the KV cache before each prompt of an engine, dealt to them in "
      "turn; left out, none.");
  visitor.table("routing", optional, "How tokens choose experts in a synthetic run.",
                [&](FieldVisitor &v) { describe_routing(v, workload.routing); });
}

void describe(FieldVisitor &visitor, EngineSpec &engine) {
  visitor.choice("control_plane", engine.control_plane, {"cpu", "gpu"}, optional,
                 "Where liveness and votes run: Gloo beside the GPU stream, or NCCL on it.");
  visitor.integer("prefill_attempt_interval", engine.prefill_attempt_interval, at_least_one, optional,
                  "Decode steps between ALL votes: prefill together when every rank has a prompt.");
  visitor.integer("prefill_any_attempt_interval", engine.prefill_any_attempt_interval, at_least_one, optional,
                  "Decode steps between ANY votes: prefill together when one rank has waited this long.");
}

std::optional<std::string> wrong_choice(const std::vector<std::string> &list, size_t idx,
                                        const std::vector<std::string> &choices) {
  if (std::find(choices.begin(), choices.end(), list[idx]) == choices.end())
    return fmt::format("expected one of {}, got '{}'", fmt::join(choices, ", "), list[idx]);
  const auto here = list.begin() + static_cast<std::ptrdiff_t>(idx);
  if (std::find(list.begin(), here, list[idx]) != here)
    return fmt::format("got '{}' twice", list[idx]);
  return {};
}

const std::vector<std::string> &fusion_names() {
  static const std::vector<std::string> names = {
      "mega-moe",    "gate-dispatch", "gemm-swiglu", "gemm-combine", "combine-bias-residual-norm",
      "rope-append", "qkv",           "norm-linear"};
  return names;
}

void describe(FieldVisitor &visitor, ScheduleSpec &schedule) {
  visitor.auto_or_choices("fuse", schedule.fuse, fusion_names(), optional,
                          "auto, or the fusions to apply by name; an empty list is the unfused baseline.");
  visitor.choice("overlap", schedule.overlap, {"auto", "none"}, optional,
                 "Whether communication may run beside computation.");
}

void describe(FieldVisitor &visitor, TopologySpec &topology) {
  visitor.integer("topology", topology.version, {language_version, language_version}, required,
                  "Version of the language; a file never changes meaning under a newer tool.");
  visitor.text("name", topology.name, required, "What the topology is called.");
  visitor.text("summary", topology.summary, optional, "One line about what it is for.");
  visitor.text("layout", topology.layout_name, required,
               "How ranks are numbered and grouped: a layout by name (topologies/layouts) or a path.");
  visitor.table("machine", required, "What it runs on.",
                [&](FieldVisitor &v) { describe(v, topology.machine); });
  visitor.table("model", required, "What it runs.", [&](FieldVisitor &v) { describe(v, topology.model); });
  visitor.axis_sizes(
      "axes", topology.axes,
      "Sizes of axes; what is left out follows the layout, and an array is a product of axes.");
  visitor.groups("group", topology.groups, "Groups that are added to the layout's, or replace them.");
  visitor.table("mesh", optional, "Where ranks lie.", [&](FieldVisitor &v) { describe(v, topology.mesh); });
  visitor.table("moe", optional, "How experts are spread and reached.",
                [&](FieldVisitor &v) { describe(v, topology.moe); });
  visitor.table("attention", optional, "How attention is spread and kept.",
                [&](FieldVisitor &v) { describe(v, topology.attention); });
  visitor.table("engram", optional, "How n-gram memory is spread.",
                [&](FieldVisitor &v) { describe(v, topology.engram); });
  visitor.table("workload", optional, "What one step works on.",
                [&](FieldVisitor &v) { describe(v, topology.workload); });
  visitor.table("engine", optional, "How engines keep in step.",
                [&](FieldVisitor &v) { describe(v, topology.engine); });
  visitor.table("schedule", optional, "What the compiler may rearrange.",
                [&](FieldVisitor &v) { describe(v, topology.schedule); });
}

} // namespace paratope
