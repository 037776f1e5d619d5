// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/test_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "kernels/context/zigzag.h"
#include "runtime/exec/test_plan_builder.h"
#include "runtime/plan/batch.h"
#include "runtime/plan/check.h"
#include "runtime/weights/model_weights.h"

namespace paratope::test {

int64_t Builder::buffer(const std::string &name, int64_t row_size, const char *dtype, int64_t rows) {
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

int64_t Builder::axis_size(const std::string &name) const {
  for (const plan::Axis &axis : plan.axes)
    if (axis.name == name)
      return axis.size;
  return 1;
}

int64_t Builder::weight(const std::string &name, std::vector<plan::WeightSplit> splits) {
  auto [it, fresh] = weight_ids.emplace(name, static_cast<int64_t>(plan.weights.size()));
  if (fresh) {
    plan::Weight w = known.at(name);
    w.id = it->second;
    std::erase_if(splits, [&](auto &split) { return !split.by_slots && axis_size(split.axis) == 1; });
    w.splits = std::move(splits);
    plan.weights.push_back(std::move(w));
  }
  return it->second;
}

plan::Instruction &Builder::emit(const char *op, std::vector<int64_t> inputs, std::vector<int64_t> outputs,
                                 std::vector<int64_t> weights) {
  plan::Instruction i;
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

void Builder::enter_ledger(const char *op, int64_t comm, const char *category) {
  plan::LedgerEntry entry;
  entry.op = op;
  entry.group = plan.communicators[static_cast<size_t>(comm)].groups[0];
  entry.comm = comm;
  entry.ranks = plan.communicators[static_cast<size_t>(comm)].size;
  entry.category = category;
  plan.ledger.push_back(entry);
}

int64_t Builder::collective(const char *op, int64_t comm, std::vector<int64_t> inputs,
                            std::vector<int64_t> outputs, std::map<std::string, double> numbers) {
  plan::Instruction &i = emit(op, std::move(inputs), std::move(outputs));
  i.comm = comm;
  i.stream = "exchange";
  i.numbers = std::move(numbers);
  if (!topology.asynchronous)
    i.numbers["async"] = 0;
  enter_ledger(op, comm, comm == cp_comm ? "context" : "exchange");
  return i.id;
}

void Builder::await(int64_t collective_id) {
  if (!topology.asynchronous)
    return;
  std::vector<int64_t> outputs = plan.instructions[static_cast<size_t>(collective_id)].outputs;
  emit("await", {}, std::move(outputs)).awaits = collective_id;
}

std::vector<int64_t> Builder::restore(const std::vector<int64_t> &rows) {
  if (!mirrored())
    return rows;
  std::vector<int64_t> gathered, flat;
  for (int64_t each : rows)
    gathered.push_back(buffer("gathered", row_size(each), "f32", topology.cp * max_tokens));
  await(collective("all_gather", cp_comm, rows, gathered));
  for (int64_t each : gathered) {
    flat.push_back(buffer("flat", row_size(each)));
    emit("mirror_restore", {each}, {flat.back()}).words = {{"axis", "cp"}};
  }
  return flat;
}

// Table-only ranks continue the engine axis, as engines that serve nothing.
void Builder::axes() {
  int64_t tp = topology.tp, cp = topology.cp, engine = cp * tp, engines = (plan.world + engine - 1) / engine,
          kv = std::min(tp, model.kv_heads);
  plan.axes = {{"dp", engines, {{{engine, engines, 1}}, {}}},
               {"tp", tp, {{{1, tp, 1}}, {}}},
               {"ep", serving, {{{1, serving, 1}}, {}}}};
  if (mirrored())
    plan.axes.push_back({"cp", cp, {{{tp, cp, 1}}, {}}});
  if (topology.og > 1)
    plan.axes.push_back({"og", topology.og, {{{1, topology.og, 1}}, {}}});
  if (model.attention == "gqa")
    plan.axes.push_back({"tp-kv", kv, {{{tp / kv, kv, 1}}, {}}});
  for (const plan::Axis &axis : plan.axes)
    plan.sizes[axis.name] = axis.size;
  plan.engine_axis = "dp";
}

void Builder::communicators() {
  int64_t tp = topology.tp, cp = topology.cp, og = topology.og;
  auto add = [&](const char *name, int64_t size, std::vector<plan::Digit> color, plan::Digit key,
                 bool everyone = false) {
    int64_t ranks = everyone ? plan.world : serving;
    plan::Communicator c;
    c.id = static_cast<int64_t>(plan.communicators.size());
    c.groups = {name};
    c.isolation = "data";
    c.backend = "host";
    c.size = size;
    c.count = ranks / size;
    c.color.digits = std::move(color);
    c.key.digits = {key};
    if (ranks < plan.world) { // others are in no group, which no digit says
      plan::DigitSum table;
      for (int64_t rank = 0; rank < plan.world; ++rank)
        table.table.push_back(rank < ranks ? c.color(rank) : -1);
      c.color = table;
    }
    plan.communicators.push_back(c);
    return c.id;
  };
  data_comm = add("ep", serving, {{1, 1, 1}}, {1, serving, 1});
  tp_comm = add("tp", tp, {{tp, serving / tp, 1}}, {1, tp, 1});
  if (mirrored())
    cp_comm = add("cp", cp, {{cp * tp, topology.dp, tp}, {1, tp, 1}}, {tp, cp, 1});
  if (og > 1)
    og_comm = add("og", og, {{og, serving / og, 1}}, {1, og, 1});
  table_comm =
      topology.table_ranks > 0 ? add("enp", plan.world, {{1, 1, 1}}, {1, plan.world, 1}, true) : data_comm;
}

// Every buffer has room for an engine's flat batch, and for a rank's mirrored rows.
void Builder::size_buffers() {
  plan::Batch batch = plan::batch_of(plan.workload, topology.dp);
  max_tokens = 1;
  for (int64_t e = 0; e < batch.engines(); ++e) {
    std::vector<int64_t> lengths;
    for (const plan::Sequence &sequence : batch.of_engine(e))
      lengths.push_back(sequence.length);
    max_tokens = std::max(max_tokens, std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    lengths.push_back(lengths.empty() ? 1 : 0); // a placeholder's token
    if (mirrored())
      max_tokens = std::max(max_tokens, mirror_length(lengths, topology.cp));
  }
}

void Builder::load_program() {
  auto add = [&](const char *op, int64_t comm, int64_t of_layer, std::map<std::string, double> numbers) {
    plan::Instruction i;
    i.id = static_cast<int64_t>(plan.load.size());
    i.op = op;
    i.layer = of_layer;
    i.comm = comm;
    i.stream = "exchange";
    i.where = fmt::format("test.toml:{}:9", i.id + 1);
    i.numbers = std::move(numbers);
    i.numbers["async"] = 0;
    plan.load.push_back(std::move(i));
    enter_ledger(op, comm, "load");
  };
  if (topology.load)
    add("kv_blocks", table_comm, -1, {});
  for (size_t c = 0; c < plan.communicators.size() && topology.load; ++c)
    add("warm_up", static_cast<int64_t>(c), -1, {});
  for (const plan::Instruction &i : plan.instructions)
    if (i.op == "fetch")
      add("gather_scales", table_comm, model.engram_layers[static_cast<size_t>(i.numbers.at("table"))],
          {{"table", i.numbers.at("table")}, {"rows_per_part", i.numbers.at("rows_per_part")}});
}

void Builder::begin_step(std::map<int64_t, std::pair<int64_t, int64_t>> &fetches) {
  await(collective("vote", data_comm, {}, {}));
  int64_t flat_ids = ids = buffer("ids", 1, "i32");
  flat_positions = positions = buffer("positions", 1, "i32");
  emit("batch", {}, {ids, positions});
  auto pick = [&](std::vector<int64_t> flat, std::vector<int64_t> mine) {
    emit("mirror_pick", std::move(flat), std::move(mine)).words = {{"axis", "cp"}};
  };
  if (mirrored()) {
    ids = buffer("my_ids", 1, "i32"), positions = buffer("my_positions", 1, "i32");
    pick({flat_ids, flat_positions}, {ids, positions});
  }
  auto primes = engram_primes(model);
  int64_t owners = plan.communicators[static_cast<size_t>(table_comm)].size;
  for (size_t e = 0; e < model.engram_layers.size(); ++e) {
    layer = model.engram_layers[e];
    int64_t per_token = (model.engram_ngram - 1) * model.engram_heads;
    int64_t rows = buffer("engram_rows", per_token, "i64"),
            feats = buffer("engram_feats", per_token * model.engram_dim);
    emit("engram_hash", {flat_ids, flat_positions}, {rows});
    if (mirrored()) {
      int64_t mine = buffer("engram_my_rows", per_token, "i64");
      pick({rows}, {mine});
      rows = mine;
    }
    int64_t unit = std::lcm<int64_t>(256, owners),
            total = std::accumulate(primes[e].begin(), primes[e].end(), int64_t{0});
    int64_t part = (total + unit - 1) / unit * unit / owners;
    fetches[layer] = {
        collective("fetch", table_comm, {rows}, {feats},
                   {{"table", static_cast<double>(e)}, {"rows_per_part", static_cast<double>(part)}}),
        feats};
    layer = -1;
  }
}

void Builder::build() {
  for (plan::Weight &w : model_weights(model))
    known[w.name] = w;
  plan.tool = "test_plan";
  plan.topology = "test";
  serving = topology.dp * topology.cp * topology.tp;
  plan.world = serving + topology.table_ranks;
  plan.serving_ranks = topology.table_ranks > 0 ? serving : 0;
  axes();
  plan.model = model;
  plan.workload.phase = topology.engine_prompts.empty() ? "decode" : "prefill";
  plan.workload.engine_tokens = topology.engine_tokens;
  plan.workload.engine_prompts = topology.engine_prompts;
  plan.workload.history = topology.history;
  plan.workload.context = topology.context;
  plan.workload.routing = topology.routing;
  plan.kv_block_tokens = 4;
  if (model.routed > 0) {
    int64_t slots = model.routed + topology.redundant;
    if (slots % serving != 0)
      throw std::logic_error("the serving ranks must divide the slots");
    plan.experts = {model.routed, slots, slots / serving, {}};
    for (int64_t s = 0; s < slots; ++s)
      plan.experts.slots.push_back(s % model.routed);
  }
  communicators();
  size_buffers();
  plan.arena_bytes["activation"] = 0;

  std::map<int64_t, std::pair<int64_t, int64_t>> fetches; // by layer: instruction, features
  begin_step(fetches);
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
  if (!topology.engine_prompts.empty()) {
    int64_t all = restore({hidden})[0];
    hidden = buffer("last_hidden", model.hidden);
    emit("last_token", {all}, {hidden});
  }
  emit("lm_head", {hidden}, {logits}, {weight("head")});
  emit("argmax", {logits}, {next});
  load_program();
}

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
