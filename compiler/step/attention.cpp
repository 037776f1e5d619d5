// SPDX-License-Identifier: Apache-2.0
//
// The attention sublayer of a decode step, on sharded tensors. Under tensor parallelism heads are cut: q_b by
// rows, the output's low-rank groups by group, the last projection by columns, which leaves a partial sum.
//
//     latent (V4)   x ─ wq_a ─ norm ─ wq_b ─ rope ─┐
//                   x ─ wkv ─ norm ─ rope ─ append ─▶ attention ─ rope⁻¹ ─ wo_a by group ─ wo_b
//                   x ─ compress.wkv (, wgate) ─ append ┘ (layers that keep compressed keys)
//     mla (V3)      the absorbed form: q·wk_b against the latent, the latent's output through wv_b
#include <cmath>

#include "compiler/step/builder.h"

using namespace mlir;

namespace paratope::step {

namespace {

// One layer's attention being built.
struct Attention {
  StepBuilder &step;
  int64_t layer;
  Value x, positions;
  const AttentionModel &model;
  int64_t hidden, heads;
  std::string prefix;
  std::string dtype;

  Attention(StepBuilder &step, int64_t layer, Value x, Value positions)
      : step(step), layer(layer), x(x), positions(positions), model(step.spec.model.attention),
        hidden(*step.spec.model.hidden), heads(*model.heads), prefix(fmt::format("layers.{}.attn.", layer)),
        dtype(*step.spec.attention.weight_dtype) {}

  int64_t window() const { return (*model.window)[static_cast<size_t>(layer) % model.window->size()]; }
  int64_t ratio() const {
    return model.compress_ratios->empty() ? 0 : (*model.compress_ratios)[static_cast<size_t>(layer)];
  }
  // One theta a layer: the inverse rotation of the output is consistent only so.
  double theta() const { return ratio() > 0 ? *model.compress_rope_theta : *model.rope_theta; }

  Value projection(Value in, const char *name, int64_t out, const std::vector<SplitDim> &split = {}) {
    int64_t columns = cast<RankedTensorType>(in.getType()).getDimSize(1);
    return step.linear(
        in, step.weight(prefix + name, {out, columns}, dtype, "normal", columns, "attention", split));
  }

  Value rope(Value in, int64_t num_heads, int64_t head_dim, bool inverse, bool normalise) {
    OpBuilder &b = step.builder;
    int64_t columns = cast<RankedTensorType>(in.getType()).getDimSize(1);
    return step
        .make<RopeOp>({step.rows(columns)}, in, positions, b.getI64IntegerAttr(num_heads),
                      b.getI64IntegerAttr(head_dim), b.getI64IntegerAttr(*model.rope_dim),
                      b.getF64FloatAttr(theta()), b.getI64IntegerAttr(inverse),
                      b.getI64IntegerAttr(normalise), b.getF64FloatAttr(*step.spec.model.rms_eps))
        .getY();
  }

  Value low_rank_query(int64_t head_dim) {
    Value qa = projection(x, "wq_a", *model.q_lora);
    qa = step.rms_norm(qa, prefix + "q_norm", *model.q_lora, "attention");
    return projection(qa, "wq_b", heads * head_dim, step.split("tp", 0));
  }

  Value attend(Value q, int64_t head_dim, int64_t v_dim, double scale) {
    OpBuilder &b = step.builder;
    Value sink;
    if (*model.sink)
      sink = step.weight(prefix + "sink", {heads}, "f32", "bias", 1, "attention", step.split("tp", 0));
    return step
        .make<AttentionOp>({step.rows(heads * v_dim)}, q, positions, sink, b.getI64IntegerAttr(layer),
                           b.getI64IntegerAttr(heads), b.getI64IntegerAttr(head_dim),
                           b.getI64IntegerAttr(v_dim), b.getI64IntegerAttr(window()),
                           b.getI64IntegerAttr(ratio()), b.getF64FloatAttr(scale))
        .getO();
  }

  void append(Value kv) {
    KvAppendOp::create(step.builder, step.location(), kv, positions, step.builder.getI64IntegerAttr(layer));
  }

  void append_compressed() {
    OpBuilder &b = step.builder;
    int64_t dim = *model.head_dim;
    Value c = projection(x, "compress.wkv", dim), g;
    if (ratio() > 1)
      g = projection(x, "compress.wgate", dim);
    Value gain = step.weight(prefix + "compress.norm", {dim}, "f32", "gain", 1, "attention");
    CompressAppendOp::create(b, step.location(), c, g, gain, positions, b.getI64IntegerAttr(layer),
                             b.getI64IntegerAttr(ratio()), b.getI64IntegerAttr(*model.rope_dim),
                             b.getF64FloatAttr(theta()), b.getF64FloatAttr(*step.spec.model.rms_eps));
  }

  Value latent() {
    int64_t dim = *model.head_dim;
    Value q = rope(low_rank_query(dim), heads, dim, false, true);
    Value kv = projection(x, "wkv", dim);
    kv = step.rms_norm(kv, prefix + "kv_norm", dim, "attention");
    append(rope(kv, 1, dim, false, false));
    if (ratio() > 0)
      append_compressed();
    Value o = rope(attend(q, dim, dim, 1 / std::sqrt(static_cast<double>(dim))), heads, dim, true, false);
    return grouped_output(o, dim);
  }

  Value grouped_output(Value o, int64_t dim) {
    int64_t groups = *model.o_groups, lora = *model.o_lora, width = heads / groups * dim;
    Value wo_a = step.weight(prefix + "wo_a", {groups, lora, width}, dtype, "normal", width, "attention",
                             step.split("tp", 0));
    Value r =
        step.make<OGroupProjOp>({step.rows(groups * lora)}, o, wo_a, step.builder.getI64IntegerAttr(groups))
            .getR();
    return projection(r, "wo_b", hidden, step.split("tp", 1));
  }

  Value mla() {
    OpBuilder &b = step.builder;
    int64_t nope = *model.nope_dim, rotary = *model.rope_dim, latent = *model.kv_lora, v_dim = *model.v_dim;
    Value q = rope(low_rank_query(nope + rotary), heads, nope + rotary, false, false);
    Value wk_b = step.weight(prefix + "wk_b", {heads, latent, nope}, dtype, "normal", nope, "attention",
                             step.split("tp", 0));
    auto i64 = [&](int64_t value) { return b.getI64IntegerAttr(value); };
    Value absorbed =
        step.make<HeadLinearOp>({step.rows(heads * latent)}, q, wk_b, i64(heads), i64(0), i64(nope + rotary))
            .getY();
    q = step.make<HeadConcatOp>({step.rows(heads * (latent + rotary))}, absorbed, q, i64(heads), i64(nope),
                                i64(nope + rotary))
            .getY();
    Value kv = projection(x, "wkv", latent + rotary);
    kv = step.rms_norm(kv, prefix + "kv_norm", latent, "attention");
    append(rope(kv, 1, latent + rotary, false, false));
    Value o = attend(q, latent + rotary, latent, 1 / std::sqrt(static_cast<double>(nope + rotary)));
    Value wv_b = step.weight(prefix + "wv_b", {heads, v_dim, latent}, dtype, "normal", latent, "attention",
                             step.split("tp", 0));
    Value v =
        step.make<HeadLinearOp>({step.rows(heads * v_dim)}, o, wv_b, i64(heads), i64(0), i64(latent)).getY();
    return projection(v, "wo", hidden, step.split("tp", 1));
  }
};

} // namespace

Value build_attention(StepBuilder &step, int64_t layer, Value x, Value positions) {
  bool cut = step.mesh.size_of("tp") > 1;
  step.at(fmt::format("layers.{}.attn", layer), cut ? step.mesh_op : step.model_op,
          cut ? "tp" : "attention.kind");
  Attention attention(step, layer, x, positions);
  return *attention.model.kind == "mla" ? attention.mla() : attention.latent();
}

} // namespace paratope::step
