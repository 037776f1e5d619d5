// SPDX-License-Identifier: Apache-2.0
//
// The feed-forward sublayer: gate, routed experts and shared expert; or the dense MLP of a model's first
// layers, which tensor parallelism cuts by its inner width. Experts are handed out over ep, and moe_tp cuts
// each by its inner width.
#include "compiler/step/builder.h"

using namespace mlir;

namespace paratope::step {

static Value ffn(StepBuilder &step, const std::string &prefix, Value x, int64_t width, double limit,
                 const std::string &dtype, const std::string &part, const char *cut) {
  int64_t hidden = *step.spec.model.hidden;
  std::vector<SplitDim> inner = cut ? step.split(cut, 1) : std::vector<SplitDim>{};
  Value w13 = step.weight(prefix + "w13", {2, width, hidden}, dtype, "normal", hidden, part, inner);
  Value w2 = step.weight(prefix + "w2", {hidden, width}, dtype, "normal", width, part, inner);
  return step.feed_forward(x, w13, w2, limit);
}

static Value moe(StepBuilder &step, int64_t layer, Value x) {
  const ExpertModel &model = step.spec.model.moe;
  OpBuilder &b = step.builder;
  int64_t hidden = *step.spec.model.hidden, experts = *model.routed, width = *model.width,
          top_k = *model.top_k;
  std::string prefix = fmt::format("layers.{}.moe.", layer);
  const std::string &dtype = *step.spec.moe.expert_dtype;

  Value wg = step.weight(prefix + "gate", {experts, hidden}, "f32", "normal", hidden, "gate");
  Value bias = step.weight(prefix + "bias", {experts}, "f32", "bias", 1, "gate");
  auto gate =
      step.make<GateOp>({step.rows(top_k, step.index32()), step.rows(top_k, b.getF32Type())}, x, wg, bias,
                        b.getI64IntegerAttr(layer), b.getStringAttr(*model.score), b.getI64IntegerAttr(top_k),
                        b.getF64FloatAttr(*model.scaling), b.getI64IntegerAttr(*model.normalise),
                        b.getI64IntegerAttr(*model.groups), b.getI64IntegerAttr(*model.top_groups));
  Value shared;
  if (*model.shared > 0) // its weights are whole on every rank: no collective after it
    shared = ffn(step, prefix + "shared.", x, *model.shared * width, *model.swiglu_limit,
                 dtype == "fp4" ? "fp8" : dtype, "shared", nullptr);
  std::vector<SplitDim> by_expert = step.split("ep", 0), inner = step.split("moe_tp", 2);
  by_expert.insert(by_expert.end(), inner.begin(), inner.end());
  Value w13 = step.weight(prefix + "w13", {experts, 2, width, hidden}, dtype, "normal", hidden, "experts",
                          by_expert, true);
  Value w2 = step.weight(prefix + "w2", {experts, hidden, width}, dtype, "normal", width, "experts",
                         by_expert, true);
  Value y = step.make<RoutedExpertsOp>({step.rows(hidden)}, x, gate.getIdx(), gate.getWeights(), w13, w2,
                                       b.getF64FloatAttr(*model.swiglu_limit))
                .getY();
  return shared ? Value(step.make<AddOp>({step.rows(hidden)}, ValueRange{y, shared}).getSum()) : y;
}

Value build_feed_forward(StepBuilder &step, int64_t layer, Value x) {
  const ExpertModel &model = step.spec.model.moe;
  if (*model.routed == 0 || layer < *model.dense_layers) {
    bool cut = step.mesh.size_of("tp") > 1;
    step.at(fmt::format("layers.{}.mlp", layer), cut ? step.mesh_op : step.model_op,
            cut ? "tp" : "moe.dense_width");
    return ffn(step, fmt::format("layers.{}.mlp.", layer), x, *model.dense_width, *model.swiglu_limit,
               *step.spec.attention.weight_dtype, "dense", "tp");
  }
  step.at(fmt::format("layers.{}.moe", layer), step.mesh_op, step.mesh.size_of("ep") > 1 ? "ep" : "moe_tp");
  return moe(step, layer, x);
}

} // namespace paratope::step
