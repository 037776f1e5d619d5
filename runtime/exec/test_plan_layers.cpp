// SPDX-License-Identifier: Apache-2.0
//
// The layers of a test plan: attention of two kinds over every split, and the feed-forward half with every
// exchange.
#include <cmath>

#include <fmt/format.h>

#include "runtime/exec/test_plan_builder.h"

namespace paratope::test {

int64_t Builder::norm(const std::string &name, int64_t x, const std::string &gain) {
  int64_t y = buffer(name, row_size(x));
  emit("rms_norm", {x}, {y}, {weight(gain)}).numbers = {{"eps", model.rms_eps}};
  return y;
}

int64_t Builder::linear(const std::string &name, int64_t x, const std::string &w, int64_t width,
                        std::vector<plan::WeightSplit> splits) {
  int64_t y = buffer(name, width, "f32", plan.buffers[static_cast<size_t>(x)].rows);
  emit("linear", {x}, {y}, {weight(w, std::move(splits))});
  return y;
}

int64_t Builder::rope(const std::string &name, int64_t x, int64_t heads, bool normalise, bool inverse) {
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

int64_t Builder::ratio() const {
  return model.compress_ratios.empty() ? 0 : model.compress_ratios[static_cast<size_t>(layer)];
}

// Latents, and what a compressor pools, go to the cache of every rank of the engine.
void Builder::append_latents(int64_t x) {
  std::string p = fmt::format("layers.{}.attn.", layer);
  std::vector<int64_t> rows = {
      rope("kv_rope", norm("kv_norm", linear("kv", x, p + "wkv", model.head_dim), p + "kv_norm"), 1, false,
           false)};
  if (ratio() > 0)
    rows.push_back(linear("c", x, p + "compress.wkv", model.head_dim));
  if (ratio() > 1)
    rows.push_back(linear("g", x, p + "compress.wgate", model.head_dim));
  rows = restore(rows);
  emit("kv_append", {rows[0], flat_positions}, {});
  if (ratio() == 0)
    return;
  std::vector<int64_t> inputs(rows.begin() + 1, rows.end());
  inputs.push_back(flat_positions);
  emit("compress_append", inputs, {}, {weight(p + "compress.norm")}).numbers = {
      {"ratio", static_cast<double>(ratio())},
      {"rope_dim", static_cast<double>(model.rope_dim)},
      {"theta", model.compress_rope_theta},
      {"eps", model.rms_eps}};
}

int64_t Builder::attend(int64_t q, int64_t kv_heads, int64_t v_offset) {
  int64_t o = buffer("o", row_size(q));
  std::vector<int64_t> sink;
  if (model.sink)
    sink.push_back(weight(fmt::format("layers.{}.attn.sink", layer), {{0, "tp", false}}));
  emit("attention", {q, positions}, {o}, sink).numbers = {
      {"heads", static_cast<double>(model.heads / topology.tp)},
      {"kv_heads", static_cast<double>(kv_heads)},
      {"head_dim", static_cast<double>(model.head_dim)},
      {"v_dim", static_cast<double>(model.head_dim)},
      {"v_offset", static_cast<double>(v_offset)},
      {"scale", 1 / std::sqrt(static_cast<double>(model.head_dim))},
      {"window", model.window.empty() ? 0 : static_cast<double>(model.window[static_cast<size_t>(layer)])},
      {"ratio", static_cast<double>(ratio())}};
  return o;
}

// o of all heads → the attention's output, by output groups: whole, cut by tp, or exchanged inside og.
int64_t Builder::output_groups(int64_t o) {
  std::string p = fmt::format("layers.{}.attn.", layer);
  int64_t og = topology.og, cut = og * topology.tp, all = og * max_tokens;
  const char *axis = og > 1 ? "og" : "tp";
  int64_t columns = -1;
  if (og > 1) {
    int64_t mine = buffer("o_columns", row_size(o) / og, "f32", all);
    columns = collective("all_to_all", og_comm, {o}, {mine});
    plan.instructions[static_cast<size_t>(columns)].words = {{"split", "columns"}};
    await(columns);
    o = mine;
  }
  int64_t r = buffer("r", model.o_groups / cut * model.o_lora, "f32", all);
  emit("o_group_proj", {o}, {r}, {weight(p + "wo_a", {{0, axis, false}})});
  std::map<std::string, double> of = {{"of", static_cast<double>(columns)}};
  if (og > 1 && !topology.reduce_outputs) {
    int64_t back = buffer("r_rows", model.o_groups * model.o_lora);
    int64_t rows = collective("all_to_all", og_comm, {r}, {back}, of);
    plan.instructions[static_cast<size_t>(rows)].words = {{"split", "rows"}};
    await(rows);
    return linear("attn_out", back, p + "wo_b", model.hidden);
  }
  int64_t y = linear("attn_out", r, p + "wo_b", model.hidden, {{1, axis, false}});
  if (og == 1)
    return reduced("attn_sum", y);
  int64_t mine = buffer("attn_mine", model.hidden);
  await(collective("reduce_scatter", og_comm, {y}, {mine}, of));
  return mine;
}

int64_t Builder::reduced(const std::string &name, int64_t partial) {
  if (topology.tp == 1)
    return partial;
  int64_t sum = buffer(name, model.hidden);
  await(collective("all_reduce", tp_comm, {partial}, {sum}));
  return sum;
}

int64_t Builder::latent_attention(int64_t x) {
  std::string p = fmt::format("layers.{}.attn.", layer);
  int64_t heads = model.heads / topology.tp;
  int64_t q_low = norm("q_norm", linear("q_a", x, p + "wq_a", model.q_lora), p + "q_norm");
  int64_t q = rope("q_rope", linear("q", q_low, p + "wq_b", heads * model.head_dim, {{0, "tp", false}}),
                   heads, true, false);
  append_latents(x);
  return output_groups(rope("o_rope", attend(q, 1, 0), heads, false, true));
}

// Kv heads are cut over as many ranks of tp as there are, and whole on the ranks beyond.
int64_t Builder::grouped_query_attention(int64_t x) {
  std::string p = fmt::format("layers.{}.attn.", layer);
  int64_t heads = model.heads / topology.tp, kv_heads = model.kv_heads / axis_size("tp-kv"),
          width = kv_heads * model.head_dim;
  int64_t q = rope("q_rope", linear("q", x, p + "wq", heads * model.head_dim, {{0, "tp", false}}), heads,
                   false, false);
  int64_t k = rope("k_rope", linear("k", x, p + "wk", width, {{0, "tp-kv", false}}), kv_heads, false, false);
  int64_t v = linear("v", x, p + "wv", width, {{0, "tp-kv", false}}), kv = buffer("kv", 2 * width);
  emit("head_concat", {k, v}, {kv}).numbers = {{"heads", static_cast<double>(kv_heads)},
                                               {"x_offset", 0},
                                               {"x_head", static_cast<double>(model.head_dim)}};
  emit("kv_append", {restore({kv})[0], flat_positions}, {});
  return reduced("attn_sum", linear("attn_out", attend(q, kv_heads, model.head_dim), p + "wo", model.hidden,
                                    {{1, "tp", false}}));
}

int64_t Builder::attention(int64_t x) {
  return model.attention == "gqa" ? grouped_query_attention(x) : latent_attention(x);
}

int64_t Builder::feed_forward(const std::string &name, int64_t x, const std::string &w, int64_t width,
                              bool split) {
  std::vector<plan::WeightSplit> cut;
  if (split) {
    cut = {{1, "tp", false}};
    width /= topology.tp;
  }
  int64_t h = buffer(name + "_h", 2 * width), a = buffer(name + "_a", width);
  emit("gate_up", {x}, {h}, {weight(w + "w13", cut)});
  emit("swiglu", {h}, {a}).numbers = {{"limit", model.swiglu_limit}};
  return linear(name, a, w + "w2", model.hidden, cut);
}

int64_t Builder::experts(int64_t x) {
  std::string p = fmt::format("layers.{}.", layer);
  if (topology.exchange == "none" || layer < model.dense_layers)
    return reduced("mlp_sum", feed_forward("mlp", x, p + "mlp.", model.dense_width, true));
  int64_t whole = x;
  if (topology.tp > 1) { // each rank of an engine dispatches its slice of the tokens
    x = buffer("slice", model.hidden);
    emit("slice_rows", {whole}, {x}).words = {{"axis", "tp"}};
  }
  int64_t idx = buffer("idx", model.top_k, "i32"), w = buffer("w", model.top_k);
  plan::Instruction &gate = emit("gate", {x}, {idx, w}, {weight(p + "moe.gate"), weight(p + "moe.bias")});
  gate.words = {{"score", model.score}};
  gate.numbers = {{"top_k", static_cast<double>(model.top_k)},
                  {"groups", static_cast<double>(model.gate_groups)},
                  {"top_groups", static_cast<double>(model.gate_top_groups)},
                  {"normalise", model.normalise},
                  {"scaling", model.scaling}};
  int64_t y =
      topology.exchange == "all-gather" ? all_gather_experts(x, idx, w) : two_stage_experts(x, idx, w);
  if (topology.tp == 1)
    return y;
  int64_t gathered = buffer("moe_whole", model.hidden);
  await(collective("all_gather", tp_comm, {y}, {gathered}));
  return gathered;
}

int64_t Builder::two_stage_experts(int64_t x, int64_t idx, int64_t w) {
  std::string p = fmt::format("layers.{}.moe.", layer);
  int64_t max_rows = max_tokens * serving * model.top_k, width = model.expert_width;
  int64_t rows = buffer("rows", model.hidden, "f32", max_rows), table = buffer("table", 1, "i64");
  int64_t dispatch = collective("dispatch", data_comm, {x, idx, w}, {rows, table});
  int64_t shared = feed_forward("shared", x, p + "shared.", model.shared * width, false);
  await(dispatch);
  int64_t h = buffer("expert_h", 2 * width, "f32", max_rows), a = buffer("expert_a", width, "f32", max_rows),
          out = buffer("expert_rows", model.hidden, "f32", max_rows);
  emit("expert_gate_up", {rows, table}, {h}, {weight(p + "w13", {{0, "ep", true}})});
  emit("swiglu", {h}, {a}).numbers = {{"limit", model.swiglu_limit}};
  emit("expert_down", {a, table}, {out}, {weight(p + "w2", {{0, "ep", true}})});
  int64_t y = buffer("moe", model.hidden);
  await(collective("combine", data_comm, {out, table, shared}, {y}));
  return y;
}

int64_t Builder::all_gather_experts(int64_t x, int64_t idx, int64_t w) {
  std::string p = fmt::format("layers.{}.moe.", layer);
  int64_t shared = feed_forward("shared", x, p + "shared.", model.shared * model.expert_width, false);
  int64_t all = max_tokens * serving;
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

} // namespace paratope::test
