// SPDX-License-Identifier: Apache-2.0
//
// The attention sublayer of a step, on sharded tensors.
//
//     latent (V4)   x ─ wkv ─ norm ─ rope ─┐ (gather over cp)
//                   x ─ compress.wkv, .wgate ┤ (gather over cp; layers that keep compressed keys)
//                   x ─ wq_a ─ norm ─ wq_b ─ rope ─┤ append ─▶ attention ─ rope⁻¹ ─ wo_a by group ─ wo_b
//     mla (V3)      the absorbed form: q·wk_b against the latent, the latent's output through wv_b
//     gqa           wk, wv ─ one entry [key, value] a kv head ─ append; wq ─ rope ─▶ attention ─ wo
//
// Keys come before queries, so that under context parallelism their gather runs beside the query's
// projections. Tensor parallelism cuts heads: q_b (wq) by rows, the output's groups by group, the last
// projection by columns, which leaves a partial sum; kv heads are cut where there are several. An og split
// cuts the output groups alone: tokens stay where they are until wo_a needs its groups of all of them.
#include <cmath>

#include "compiler/step/builder.h"

using namespace mlir;

namespace paratope::step {

namespace {

// One layer's attention being built.
struct Attention {
  StepBuilder &step;
  int64_t layer;
  Value x, positions, flat_positions;
  const AttentionModel &model;
  int64_t hidden, heads;
  std::string prefix;
  std::string dtype;

  Attention(StepBuilder &step, int64_t layer, Value x, Value positions, Value flat_positions)
      : step(step), layer(layer), x(x), positions(positions), flat_positions(flat_positions),
        model(step.spec.model.attention), hidden(*step.spec.model.hidden), heads(*model.heads),
        prefix(fmt::format("layers.{}.attn.", layer)), dtype(*step.spec.attention.weight_dtype) {}

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

  Value query(int64_t head_dim) {
    if (*model.q_lora == 0)
      return projection(x, "wq", heads * head_dim, step.split("tp", 0));
    Value qa = projection(x, "wq_a", *model.q_lora);
    qa = step.rms_norm(qa, prefix + "q_norm", *model.q_lora, "attention");
    return projection(qa, "wq_b", heads * head_dim, step.split("tp", 0));
  }

  Value attend(Value q, int64_t head_dim, int64_t v_dim, double scale, int64_t v_offset = 0) {
    OpBuilder &b = step.builder;
    Value sink;
    if (*model.sink)
      sink = step.weight(prefix + "sink", {heads}, "f32", "bias", 1, "attention", step.split("tp", 0));
    return step
        .make<AttentionOp>({step.rows(heads * v_dim)}, q, positions, sink, b.getI64IntegerAttr(layer),
                           b.getI64IntegerAttr(heads), b.getI64IntegerAttr(*model.kv_heads),
                           b.getI64IntegerAttr(head_dim), b.getI64IntegerAttr(v_dim),
                           b.getI64IntegerAttr(v_offset), b.getI64IntegerAttr(window()),
                           b.getI64IntegerAttr(ratio()), b.getF64FloatAttr(scale))
        .getO();
  }

  void append(Value kv) {
    KvAppendOp::create(step.builder, step.location(), step.restored(kv), flat_positions,
                       step.builder.getI64IntegerAttr(layer));
  }

  // What the compressor of a layer takes of each token: a candidate and, where several tokens share an entry,
  // its weight among them.
  struct Compressed {
    Value candidate, gate;
  };

  Compressed compressor() {
    Compressed made;
    if (ratio() > 0)
      made.candidate = projection(x, "compress.wkv", *model.head_dim);
    if (ratio() > 1)
      made.gate = projection(x, "compress.wgate", *model.head_dim);
    return made;
  }

  void append(const Compressed &made) {
    if (!made.candidate)
      return;
    OpBuilder &b = step.builder;
    Value c = step.restored(made.candidate), g = made.gate ? step.restored(made.gate) : Value();
    Value gain = step.weight(prefix + "compress.norm", {*model.head_dim}, "f32", "gain", 1, "attention");
    CompressAppendOp::create(b, step.location(), c, g, gain, flat_positions, b.getI64IntegerAttr(layer),
                             b.getI64IntegerAttr(ratio()), b.getI64IntegerAttr(*model.rope_dim),
                             b.getF64FloatAttr(theta()), b.getF64FloatAttr(*step.spec.model.rms_eps));
  }

  Value latent() {
    int64_t dim = *model.head_dim;
    Value kv = projection(x, "wkv", dim);
    kv = rope(step.rms_norm(kv, prefix + "kv_norm", dim, "attention"), 1, dim, false, false);
    Compressed compressed = compressor();
    Value q = rope(query(dim), heads, dim, false, true);
    append(kv);
    append(compressed);
    Value o = rope(attend(q, dim, dim, 1 / std::sqrt(static_cast<double>(dim))), heads, dim, true, false);
    return *model.o_groups > 0 ? grouped_output(o, dim) : projection(o, "wo", hidden, step.split("tp", 1));
  }

  Value grouped_output(Value o, int64_t dim) {
    int64_t groups = *model.o_groups, lora = *model.o_lora, width = heads / groups * dim;
    bool og = step.mesh.size_of("og") > 1;
    if (og)
      step.at(fmt::format("layers.{}.attn.out", layer), step.mesh_op, "og");
    Value wo_a = step.weight(prefix + "wo_a", {groups, lora, width}, dtype, "normal", width, "attention",
                             step.split(og ? "og" : "tp", 0));
    Value r =
        step.make<OGroupProjOp>({step.rows(groups * lora)}, o, wo_a, step.builder.getI64IntegerAttr(groups))
            .getR();
    // With og the groups' outputs travel back before a whole wo_b, or its columns are cut, too.
    std::vector<SplitDim> columns = step.split("tp", 1);
    if (og && step.o_exchange.name == "reduce-outputs")
      columns = step.split("og", 1);
    return projection(r, "wo_b", hidden, columns);
  }

  Value mla() {
    OpBuilder &b = step.builder;
    int64_t nope = *model.nope_dim, rotary = *model.rope_dim, latent = *model.kv_lora, v_dim = *model.v_dim;
    auto i64 = [&](int64_t value) { return b.getI64IntegerAttr(value); };
    Value kv = projection(x, "wkv", latent + rotary);
    kv = rope(step.rms_norm(kv, prefix + "kv_norm", latent, "attention"), 1, latent + rotary, false, false);
    Value q = rope(query(nope + rotary), heads, nope + rotary, false, false);
    Value wk_b = step.weight(prefix + "wk_b", {heads, latent, nope}, dtype, "normal", nope, "attention",
                             step.split("tp", 0));
    Value absorbed =
        step.make<HeadLinearOp>({step.rows(heads * latent)}, q, wk_b, i64(heads), i64(0), i64(nope + rotary))
            .getY();
    q = step.make<HeadConcatOp>({step.rows(heads * (latent + rotary))}, absorbed, q, i64(heads), i64(nope),
                                i64(nope + rotary))
            .getY();
    append(kv);
    Value o = attend(q, latent + rotary, latent, 1 / std::sqrt(static_cast<double>(nope + rotary)));
    Value wv_b = step.weight(prefix + "wv_b", {heads, v_dim, latent}, dtype, "normal", latent, "attention",
                             step.split("tp", 0));
    Value v =
        step.make<HeadLinearOp>({step.rows(heads * v_dim)}, o, wv_b, i64(heads), i64(0), i64(latent)).getY();
    return projection(v, "wo", hidden, step.split("tp", 1));
  }

  // The axis that cuts kv heads: tp, or where it has more ranks than there are heads, blocks of it.
  std::vector<SplitDim> kv_split() const {
    if (step.mesh.has_axis("tp-kv"))
      return {{0, "tp-kv"}};
    return *model.kv_heads % step.mesh.size_of("tp") == 0 ? step.split("tp", 0) : std::vector<SplitDim>{};
  }

  Value gqa() {
    OpBuilder &b = step.builder;
    int64_t dim = *model.head_dim, kv_heads = *model.kv_heads;
    Value k = rope(projection(x, "wk", kv_heads * dim, kv_split()), kv_heads, dim, false, false);
    Value v = projection(x, "wv", kv_heads * dim, kv_split());
    Value kv = step.make<HeadConcatOp>({step.rows(2 * kv_heads * dim)}, k, v, b.getI64IntegerAttr(kv_heads),
                                       b.getI64IntegerAttr(0), b.getI64IntegerAttr(dim))
                   .getY();
    Value q = rope(projection(x, "wq", heads * dim, step.split("tp", 0)), heads, dim, false, false);
    append(kv);
    Value o = attend(q, dim, dim, 1 / std::sqrt(static_cast<double>(dim)), dim);
    return projection(o, "wo", hidden, step.split("tp", 1));
  }
};

} // namespace

Value build_attention(StepBuilder &step, int64_t layer, Value x, Value positions, Value flat_positions) {
  bool cut = step.mesh.size_of("tp") > 1;
  step.at(fmt::format("layers.{}.attn", layer), cut ? step.mesh_op : step.model_op,
          cut ? "tp" : "attention.kind");
  Attention attention(step, layer, x, positions, flat_positions);
  const std::string &kind = *attention.model.kind;
  return kind == "mla" ? attention.mla() : kind == "gqa" ? attention.gqa() : attention.latent();
}

} // namespace paratope::step
