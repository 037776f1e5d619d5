// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/test_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/plan/check.h"
#include "runtime/weights/model_weights.h"

namespace paratope::test {
namespace {

using plan::Instruction;

struct Builder {
  const plan::Model &model;
  const TestTopology &topology;
  plan::Plan plan;
  std::map<std::string, plan::Weight> known; // of the whole model
  std::map<std::string, int64_t> weight_ids;
  int64_t max_tokens = 0, layer = -1;
  int64_t data_comm = -1, tp_comm = -1;
  int64_t ids = -1, positions = -1;

  int64_t buffer(const std::string &name, int64_t row_size, const char *dtype = "f32", int64_t rows = 0) {
    plan::Buffer b;
    b.id = static_cast<int64_t>(plan.buffers.size());
    b.name = layer < 0 ? name : fmt::format("layers.{}.{}", layer, name);
    b.dtype = dtype;
    b.rows = rows ? rows : max_tokens;
    b.row_size = row_size;
    b.arena = "activation";
    int64_t &end = plan.arena_bytes[b.arena];
    b.offset = end;
    b.bytes = (b.rows * b.row_size * plan::dtype_bytes(dtype) + 63) / 64 * 64;
    end += b.bytes;
    plan.buffers.push_back(b);
    return b.id;
  }

  int64_t row_size(int64_t id) const { return plan.buffers[static_cast<size_t>(id)].row_size; }

  int64_t weight(const std::string &name, std::vector<plan::WeightSplit> splits = {}) {
    auto [it, fresh] = weight_ids.emplace(name, static_cast<int64_t>(plan.weights.size()));
    if (fresh) {
      plan::Weight w = known.at(name);
      w.id = it->second;
      if (topology.tp > 1 || (!splits.empty() && splits[0].by_slots))
        w.splits = std::move(splits);
      plan.weights.push_back(std::move(w));
    }
    return it->second;
  }

  Instruction &emit(const char *op, std::vector<int64_t> inputs, std::vector<int64_t> outputs,
                    std::vector<int64_t> weights = {}) {
    Instruction i;
    i.id = static_cast<int64_t>(plan.instructions.size());
    i.op = op;
    i.name = layer < 0 ? "" : fmt::format("layers.{}", layer);
    i.layer = layer;
    i.inputs = std::move(inputs);
    i.outputs = std::move(outputs);
    i.weights = std::move(weights);
    i.stream = "compute";
    i.where = fmt::format("test.toml:{}:1", i.id + 1);
    plan.instructions.push_back(std::move(i));
    return plan.instructions.back();
  }

  // Issues a collective; `await` completes it. One that is not asynchronous needs no await.
  int64_t collective(const char *op, int64_t comm, std::vector<int64_t> inputs, std::vector<int64_t> outputs,
                     std::map<std::string, double> numbers = {}) {
    Instruction &i = emit(op, std::move(inputs), std::move(outputs));
    i.comm = comm;
    i.stream = "exchange";
    i.numbers = std::move(numbers);
    if (!topology.asynchronous)
      i.numbers["async"] = 0;
    int64_t id = i.id;
    plan::LedgerEntry entry;
    entry.op = op;
    entry.group = plan.communicators[static_cast<size_t>(comm)].groups[0];
    entry.comm = comm;
    entry.ranks = plan.communicators[static_cast<size_t>(comm)].size;
    entry.category = "exchange";
    plan.ledger.push_back(entry);
    return id;
  }

  void await(int64_t collective_id) {
    if (!topology.asynchronous)
      return;
    std::vector<int64_t> outputs = plan.instructions[static_cast<size_t>(collective_id)].outputs;
    Instruction &i = emit("await", {}, std::move(outputs));
    i.awaits = collective_id;
  }

  int64_t norm(const std::string &name, int64_t x, const std::string &gain) {
    int64_t y = buffer(name, row_size(x));
    emit("rms_norm", {x}, {y}, {weight(gain)}).numbers = {{"eps", model.rms_eps}};
    return y;
  }

  int64_t linear(const std::string &name, int64_t x, const std::string &w, int64_t width,
                 std::vector<plan::WeightSplit> splits = {}) {
    int64_t y = buffer(name, width);
    emit("linear", {x}, {y}, {weight(w, std::move(splits))});
    return y;
  }

  int64_t rope(const std::string &name, int64_t x, int64_t heads, bool normalise, bool inverse) {
    int64_t y = buffer(name, row_size(x));
    double theta = ratio() > 0 ? model.compress_rope_theta : model.rope_theta;
    emit("rope", {x, positions}, {y}).numbers = {{"heads", static_cast<double>(heads)},
                                                 {"head_dim", static_cast<double>(model.head_dim)},
                                                 {"rope_dim", static_cast<double>(model.rope_dim)},
                                                 {"theta", theta},
                                                 {"normalise", normalise},
                                                 {"eps", model.rms_eps},
                                                 {"inverse", inverse}};
    return y;
  }

  int64_t ratio() const { return model.compress_ratios[static_cast<size_t>(layer)]; }

  void communicators();
  int64_t attention(int64_t x);
  int64_t dense(int64_t x);
  int64_t experts(int64_t x);
  int64_t all_gather_experts(int64_t x, int64_t idx, int64_t w, int64_t shared);
  int64_t sublayer(int64_t wide, const std::string &name, int64_t (Builder::*body)(int64_t));
  int64_t engram(int64_t wide, int64_t fetched);
  void build();
};

void Builder::communicators() {
  int64_t world = plan.world, tp = topology.tp;
  auto add = [&](const char *name, const char *isolation, int64_t size, plan::Digit color, plan::Digit key) {
    plan::Communicator c;
    c.id = static_cast<int64_t>(plan.communicators.size());
    c.groups = {name};
    c.isolation = isolation;
    c.backend = "host";
    c.size = size;
    c.count = world / size;
    c.color.digits = {color};
    c.key.digits = {key};
    plan.communicators.push_back(c);
    return c.id;
  };
  data_comm = add("ep", "data", world, {1, 1, 1}, {1, world, 1});
  tp_comm = add("tp", "data", tp, {tp, world / tp, 1}, {1, tp, 1});
}

int64_t Builder::attention(int64_t x) {
  std::string p = fmt::format("layers.{}.attn.", layer);
  int64_t tp = topology.tp, heads = model.heads / tp;
  int64_t q_low = norm("q_norm", linear("q_a", x, p + "wq_a", model.q_lora), p + "q_norm");
  int64_t q = rope("q_rope", linear("q", q_low, p + "wq_b", heads * model.head_dim, {{0, "tp", false}}),
                   heads, true, false);
  int64_t kv = rope("kv_rope", norm("kv_norm", linear("kv", x, p + "wkv", model.head_dim), p + "kv_norm"), 1,
                    false, false);
  emit("kv_append", {kv, positions}, {});
  if (ratio() > 0) {
    int64_t c = linear("c", x, p + "compress.wkv", model.head_dim);
    std::vector<int64_t> inputs = {c};
    if (ratio() > 1)
      inputs.push_back(linear("g", x, p + "compress.wgate", model.head_dim));
    inputs.push_back(positions);
    emit("compress_append", inputs, {}, {weight(p + "compress.norm")}).numbers = {
        {"ratio", static_cast<double>(ratio())},
        {"rope_dim", static_cast<double>(model.rope_dim)},
        {"theta", model.compress_rope_theta},
        {"eps", model.rms_eps}};
  }
  int64_t o = buffer("o", heads * model.head_dim);
  std::vector<int64_t> sink;
  if (model.sink)
    sink.push_back(weight(p + "sink", {{0, "tp", false}}));
  emit("attention", {q, positions}, {o}, sink).numbers = {
      {"heads", static_cast<double>(heads)},
      {"head_dim", static_cast<double>(model.head_dim)},
      {"v_dim", static_cast<double>(model.head_dim)},
      {"scale", 1 / std::sqrt(static_cast<double>(model.head_dim))},
      {"window", static_cast<double>(model.window[static_cast<size_t>(layer)])},
      {"ratio", static_cast<double>(ratio())}};
  int64_t back = rope("o_rope", o, heads, false, true);
  int64_t r = buffer("r", model.o_groups / tp * model.o_lora);
  emit("o_group_proj", {back}, {r}, {weight(p + "wo_a", {{0, "tp", false}})});
  int64_t y = linear("attn_out", r, p + "wo_b", model.hidden, {{1, "tp", false}});
  if (tp == 1)
    return y;
  int64_t sum = buffer("attn_sum", model.hidden);
  await(collective("all_reduce", tp_comm, {y}, {sum}));
  return sum;
}

int64_t Builder::dense(int64_t x) {
  std::string p = fmt::format("layers.{}.mlp.", layer);
  int64_t y = buffer("mlp", model.hidden);
  emit("ffn", {x}, {y}, {weight(p + "w13", {{1, "tp", false}}), weight(p + "w2", {{1, "tp", false}})})
      .numbers = {{"limit", model.swiglu_limit}};
  if (topology.tp == 1)
    return y;
  int64_t sum = buffer("mlp_sum", model.hidden);
  await(collective("all_reduce", tp_comm, {y}, {sum}));
  return sum;
}

int64_t Builder::experts(int64_t x) {
  if (topology.exchange == "none" || layer < model.dense_layers)
    return dense(x);
  std::string p = fmt::format("layers.{}.moe.", layer);
  int64_t whole = x;
  if (topology.tp > 1) { // each rank of an engine dispatches its slice of the tokens
    x = buffer("slice", model.hidden);
    emit("slice_rows", {whole}, {x}).words = {{"axis", "tp"}};
  }
  int64_t idx = buffer("idx", model.top_k, "i32"), w = buffer("w", model.top_k);
  Instruction &gate = emit("gate", {x}, {idx, w}, {weight(p + "gate"), weight(p + "bias")});
  gate.words = {{"score", model.score}};
  gate.numbers = {{"top_k", static_cast<double>(model.top_k)},
                  {"groups", static_cast<double>(model.gate_groups)},
                  {"top_groups", static_cast<double>(model.gate_top_groups)},
                  {"normalise", model.normalise},
                  {"scaling", model.scaling}};
  auto shared_expert = [&] {
    int64_t shared = buffer("shared", model.hidden);
    emit("ffn", {x}, {shared}, {weight(p + "shared.w13"), weight(p + "shared.w2")}).numbers = {
        {"limit", model.swiglu_limit}};
    return shared;
  };
  int64_t y;
  if (topology.exchange == "all-gather") {
    y = all_gather_experts(x, idx, w, shared_expert());
  } else {
    int64_t max_rows = max_tokens * plan.world * model.top_k;
    int64_t rows = buffer("rows", model.hidden, "f32", max_rows), table = buffer("table", 1, "i64");
    int64_t dispatch = collective("dispatch", data_comm, {x, idx, w}, {rows, table});
    int64_t shared = shared_expert();
    await(dispatch);
    int64_t out = buffer("expert_rows", model.hidden, "f32", max_rows);
    emit("expert_ffn", {rows, table}, {out},
         {weight(p + "w13", {{0, "ep", true}}), weight(p + "w2", {{0, "ep", true}})})
        .numbers = {{"limit", model.swiglu_limit}};
    y = buffer("moe", model.hidden);
    await(collective("combine", data_comm, {out, table, shared}, {y}));
  }
  if (topology.tp == 1)
    return y;
  int64_t gathered = buffer("moe_whole", model.hidden);
  await(collective("all_gather", tp_comm, {y}, {gathered}));
  return gathered;
}

int64_t Builder::all_gather_experts(int64_t x, int64_t idx, int64_t w, int64_t shared) {
  std::string p = fmt::format("layers.{}.moe.", layer);
  int64_t all = max_tokens * plan.world;
  int64_t xs = buffer("all_x", model.hidden, "f32", all), idxs = buffer("all_idx", model.top_k, "i32", all),
          ws = buffer("all_w", model.top_k, "f32", all);
  int64_t gather = collective("all_gather", data_comm, {x, idx, w}, {xs, idxs, ws});
  await(gather);
  int64_t partial = buffer("partial", model.hidden, "f32", all);
  emit("local_experts", {xs, idxs, ws}, {partial},
       {weight(p + "w13", {{0, "ep", true}}), weight(p + "w2", {{0, "ep", true}})})
      .numbers = {{"limit", model.swiglu_limit}};
  int64_t mine = buffer("routed", model.hidden), y = buffer("moe", model.hidden);
  await(collective("reduce_scatter", data_comm, {partial}, {mine}, {{"of", static_cast<double>(gather)}}));
  emit("add", {mine, shared}, {y});
  return y;
}

// One half of a layer around the residual, plain or hyper-connected.
int64_t Builder::sublayer(int64_t wide, const std::string &name, int64_t (Builder::*body)(int64_t)) {
  std::string p = fmt::format("layers.{}.", layer);
  int64_t n = model.hyper_connections;
  auto streams = static_cast<double>(n);
  int64_t x = wide, mix = -1;
  if (n > 1) {
    x = buffer(name + "_x", model.hidden);
    mix = buffer(name + "_mix", n + n * n);
    std::string hc = p + "hc_" + name;
    emit("hc_pre", {wide}, {x, mix}, {weight(hc + ".fn"), weight(hc + ".scale"), weight(hc + ".base")})
        .numbers = {{"streams", streams}};
  }
  int64_t f = (this->*body)(norm(name + "_norm", x, p + name + "_norm"));
  int64_t out = buffer(name + "_out", row_size(wide));
  if (n > 1)
    emit("hc_post", {wide, f, mix}, {out}).numbers = {{"streams", streams}};
  else
    emit("add", {wide, f}, {out});
  return out;
}

int64_t Builder::engram(int64_t wide, int64_t fetched) {
  std::string p = fmt::format("layers.{}.engram.", layer);
  int64_t out = buffer("engram_out", row_size(wide));
  emit("engram_gate", {wide, fetched}, {out},
       {weight(p + "wkv"), weight(p + "h_norm"), weight(p + "key_norm")})
      .numbers = {{"eps", model.rms_eps}, {"streams", static_cast<double>(model.hyper_connections)}};
  return out;
}

void Builder::build() {
  for (plan::Weight &w : model_weights(model))
    known[w.name] = w;
  plan.tool = "test_plan";
  plan.topology = "test";
  plan.world = topology.dp * topology.tp;
  plan.sizes = {{"dp", topology.dp}, {"tp", topology.tp}, {"ep", plan.world}};
  plan.axes = {{"dp", topology.dp, {{{topology.tp, topology.dp, 1}}, {}}},
               {"tp", topology.tp, {{{1, topology.tp, 1}}, {}}},
               {"ep", plan.world, {{{1, plan.world, 1}}, {}}}};
  plan.engine_axis = "dp";
  plan.model = model;
  plan.workload.engine_tokens = topology.engine_tokens;
  plan.workload.context = topology.context;
  plan.workload.routing = topology.routing;
  plan.kv_block_tokens = 4;
  if (model.routed > 0) {
    int64_t slots = model.routed + topology.redundant;
    if (slots % plan.world != 0)
      throw std::logic_error("the world must divide the slots");
    plan.experts = {model.routed, slots, slots / plan.world, {}};
    for (int64_t s = 0; s < slots; ++s)
      plan.experts.slots.push_back(s % model.routed);
  }
  communicators();
  max_tokens =
      std::max<int64_t>(1, *std::max_element(topology.engine_tokens.begin(), topology.engine_tokens.end()));
  plan.arena_bytes["activation"] = 0;

  await(collective("vote", data_comm, {}, {}));
  ids = buffer("ids", 1, "i32");
  positions = buffer("positions", 1, "i32");
  emit("batch", {}, {ids, positions});
  std::map<int64_t, std::pair<int64_t, int64_t>> fetches; // by layer: instruction, features
  auto primes = engram_primes(model);
  for (size_t e = 0; e < model.engram_layers.size(); ++e) {
    layer = model.engram_layers[e];
    int64_t per_token = (model.engram_ngram - 1) * model.engram_heads;
    int64_t rows = buffer("engram_rows", per_token, "i64"),
            feats = buffer("engram_feats", per_token * model.engram_dim);
    emit("engram_hash", {ids, positions}, {rows});
    int64_t unit = std::lcm<int64_t>(256, plan.world),
            total = std::accumulate(primes[e].begin(), primes[e].end(), int64_t{0});
    int64_t part = (total + unit - 1) / unit * unit / plan.world;
    fetches[layer] = {
        collective("fetch", data_comm, {rows}, {feats},
                   {{"table", static_cast<double>(e)}, {"rows_per_part", static_cast<double>(part)}}),
        feats};
    layer = -1;
  }
  int64_t x = buffer("x", model.hidden);
  emit("embed", {ids}, {x}, {weight("embed")});
  int64_t wide = x;
  auto streams = static_cast<double>(model.hyper_connections);
  if (model.hyper_connections > 1) {
    wide = buffer("X", model.hyper_connections * model.hidden);
    emit("hc_expand", {x}, {wide}).numbers = {{"streams", streams}};
  }
  for (layer = 0; layer < model.layers; ++layer) {
    if (auto fetch = fetches.find(layer); fetch != fetches.end()) {
      await(fetch->second.first);
      wide = engram(wide, fetch->second.second);
    }
    wide = sublayer(wide, "attn", &Builder::attention);
    wide = sublayer(wide, "ffn", &Builder::experts);
  }
  layer = -1;
  int64_t last = wide;
  if (model.hyper_connections > 1) {
    last = buffer("last", model.hidden);
    emit("hc_sum", {wide}, {last}).numbers = {{"streams", streams}};
  }
  int64_t hidden = norm("hidden", last, "norm"), logits = buffer("logits", model.vocab),
          next = buffer("next", 1, "i32");
  emit("lm_head", {hidden}, {logits}, {weight("head")});
  emit("argmax", {logits}, {next});
}

} // namespace

plan::Model small_model() {
  plan::Model m;
  m.name = "small";
  m.hidden = 32, m.layers = 2, m.vocab = 61, m.seed = 7, m.rms_eps = 1e-6;
  m.attention = "latent";
  m.heads = 4, m.head_dim = 16, m.rope_dim = 8, m.q_lora = 24, m.o_groups = 2, m.o_lora = 8;
  m.rope_theta = 10000, m.compress_rope_theta = 160000;
  m.window = {4, 4}, m.compress_ratios = {0, 2}, m.sink = true;
  m.routed = 8, m.top_k = 2, m.shared = 1, m.expert_width = 12;
  m.score = "sqrtsoftplus", m.scaling = 1.5, m.swiglu_limit = 10;
  return m;
}

plan::Plan make_plan(const plan::Model &model, const TestTopology &topology) {
  Builder builder{model, topology, {}, {}, {}};
  builder.build();
  return builder.plan;
}

} // namespace paratope::test
