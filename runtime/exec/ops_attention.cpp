// SPDX-License-Identifier: Apache-2.0
//
// Attention and what surrounds it: the rank's paged cache is an operand no instruction names. A row's
// sequence follows from its token.
#include "kernels/attention/op.h"
#include "runtime/exec/op.h"

#include <fmt/format.h>

namespace paratope {
namespace {

void run_rope(Call &call) {
  RopeOptions options;
  options.heads = call.integer("heads");
  options.head_dim = call.integer("head_dim");
  options.rope_dim = call.integer("rope_dim");
  options.theta = call.number("theta");
  options.inverse = call.integer("inverse", 0) != 0;
  options.normalise = call.integer("normalise", 0) != 0;
  options.eps = call.number("eps", 0);
  rope(call.input(0), call.input_i32(1), options, call.output(0, call.rows(0)));
}

void run_kv_append(Call &call) {
  call.check_whole_batch(0);
  kv_append(call.rank.cache, call.instruction.layer, call.input(0), call.input_i32(1), call.sequences(0));
}

void run_compress_append(Call &call) {
  call.check_whole_batch(0);
  ConstRows c = call.input(0), g;
  size_t last = call.instruction.inputs.size() - 1;
  if (last == 2)
    g = call.input(1);
  int64_t ratio = call.integer("ratio"),
          held = call.rank.cache.shape().layers[static_cast<size_t>(call.instruction.layer)].ratio;
  if (ratio != held)
    call.fail(fmt::format("got ratio {}, expected the layer's {}", ratio, held));
  if (ratio > 1 && last != 2)
    call.fail(fmt::format("got no gate logits for ratio {}, expected inputs c, g, positions", ratio));
  CompressOptions options{call.integer("rope_dim"), call.number("theta"), call.number("eps")};
  compress_append(call.rank.cache, call.instruction.layer, c, g, call.input_i32(last),
                  call.weight(0, {c.row_size}), options, call.sequences(0));
}

void run_attention(Call &call) {
  AttentionOptions options;
  options.heads = call.integer("heads");
  options.kv_heads = call.integer("kv_heads", 1);
  options.head_dim = call.integer("head_dim");
  options.v_dim = call.integer("v_dim");
  options.v_offset = call.integer("v_offset", 0);
  options.window = call.integer("window");
  options.scale = call.number("scale");
  int64_t held = call.rank.cache.shape().layers[static_cast<size_t>(call.instruction.layer)].ratio;
  if (call.integer("ratio", held) != held)
    call.fail(fmt::format("got ratio {}, expected the layer's {}", call.integer("ratio"), held));
  const float *sink = call.optional_weight(0, {options.heads});
  attention(call.rank.cache, call.instruction.layer, call.input(0), call.input_i32(1), sink, options,
            call.output(0, call.rows(0)), call.sequences(0));
}

void run_head_linear(Call &call) {
  ConstRows x = call.input(0);
  Rows y = call.output(0, x.rows);
  const std::vector<int64_t> &shape = call.weight_shape(0);
  if (shape.size() != 3)
    call.fail(fmt::format("got a weight of {} dims, expected [heads, N, K]", shape.size()));
  HeadPart part{call.integer("x_head", shape[2]), call.integer("x_offset", 0), shape[2]};
  head_linear(x, shape[0], part, call.weight(0, {shape[0], y.row_size / shape[0], shape[2]}), y);
}

void run_head_concat(Call &call) {
  int64_t heads = call.integer("heads"), head = call.integer("x_head"), offset = call.integer("x_offset");
  ConstRows a = call.input(0);
  Rows y = call.output(0, a.rows);
  check_positive("head_concat", "heads", heads);
  head_concat(a, call.input(1), heads, {head, offset, (y.row_size - a.row_size) / heads}, y);
}

void run_o_group_proj(Call &call) {
  ConstRows o = call.input(0);
  Rows r = call.output(0, o.rows);
  const std::vector<int64_t> &shape = call.weight_shape(0);
  if (shape.size() != 3)
    call.fail(fmt::format("got a weight of {} dims, expected [groups, R, K]", shape.size()));
  o_group_proj(o, shape[0], call.weight(0, {shape[0], r.row_size / shape[0], o.row_size / shape[0]}), r);
}

constexpr OpEntry ops[] = {
    {"rope", run_rope},
    {"kv_append", run_kv_append},
    {"compress_append", run_compress_append},
    {"attention", run_attention},
    {"head_linear", run_head_linear},
    {"head_concat", run_head_concat},
    {"o_group_proj", run_o_group_proj},
};

} // namespace

std::span<const OpEntry> attention_ops() { return ops; }

} // namespace paratope
