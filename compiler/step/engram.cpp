// SPDX-License-Identifier: Apache-2.0
//
// Engram in a step. Tables are cut by rows over enp; the rows a token needs follow from ids alone:
//
//     ids ─ hash ─ gather (becomes a fetch over enp) ─────────────────▶ gate ─▶ residual
//            before layer 0                                  at layers 1 and 14
#include "compiler/step/builder.h"
#include "kernels/engram/op.h"

using namespace mlir;

namespace paratope::step {

static std::vector<EngramHash> hashes_of(const EngramModel &engram) {
  if (engram.layers->empty())
    return {};
  // Only the primes matter here; multipliers decide which rows, not how many.
  std::vector<std::vector<int64_t>> odd(engram.layers->size(),
                                        std::vector<int64_t>(static_cast<size_t>(*engram.ngram), 1));
  return engram_hashes(*engram.layers, *engram.ngram, *engram.heads, *engram.vocab_per_head, odd);
}

std::map<int64_t, Value> build_engram_rows(StepBuilder &step, Value ids, Value positions) {
  const EngramModel &engram = step.spec.model.engram;
  std::map<int64_t, Value> rows;
  for (int64_t layer : *engram.layers) {
    step.at(fmt::format("layers.{}.engram", layer), step.mesh_op, "enp");
    int64_t per_token = (*engram.ngram - 1) * *engram.heads;
    rows[layer] = step.make<EngramHashOp>({step.flat(per_token, step.builder.getI64Type())}, ids, positions,
                                          step.builder.getI64IntegerAttr(layer))
                      .getRows();
  }
  return rows;
}

std::map<int64_t, Value> build_engram_features(StepBuilder &step, const std::map<int64_t, Value> &rows) {
  const EngramModel &engram = step.spec.model.engram;
  std::map<int64_t, Value> features;
  for (const EngramHash &hash : hashes_of(engram)) {
    step.at(fmt::format("layers.{}.engram", hash.layer), step.mesh_op, "enp");
    int64_t per_token = (*engram.ngram - 1) * *engram.heads;
    Value table = step.weight(fmt::format("layers.{}.engram.table", hash.layer),
                              {engram_padded_rows(hash.rows, step.mesh.size_of("enp")), *engram.dim}, "fp8",
                              "normal", 1, "engram", step.split("enp", 0));
    features[hash.layer] =
        step.make<EngramGatherOp>({step.rows(per_token * *engram.dim)}, rows.at(hash.layer), table,
                                  step.builder.getI64IntegerAttr(hash.layer))
            .getFeatures();
  }
  return features;
}

Value build_engram_gate(StepBuilder &step, int64_t layer, Value residual, Value features) {
  int64_t hidden = *step.spec.model.hidden, streams = *step.spec.model.hyper_connections;
  int64_t width = cast<RankedTensorType>(features.getType()).getDimSize(1);
  std::string prefix = fmt::format("layers.{}.engram.", layer);
  step.at(fmt::format("layers.{}.engram", layer), step.model_op, "engram.layers");
  OpBuilder &b = step.builder;
  SmallVector<Value> weights = {
      step.weight(prefix + "wkv", {(streams + 1) * hidden, width}, *step.spec.attention.weight_dtype,
                  "normal", width, "engram_projections"),
      step.weight(prefix + "h_norm", {streams * hidden}, "f32", "gain", 1, "engram_projections"),
      step.weight(prefix + "key_norm", {streams * hidden}, "f32", "gain", 1, "engram_projections")};
  return step
      .make<EngramGateOp>({step.rows(streams * hidden)}, residual, features, weights,
                          b.getI64IntegerAttr(layer), b.getI64IntegerAttr(streams),
                          b.getF64FloatAttr(*step.spec.model.rms_eps))
      .getY();
}

} // namespace paratope::step
