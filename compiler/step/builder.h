// SPDX-License-Identifier: Apache-2.0
//
// What the builders of sublayers share: the topology's values, the mesh, a cursor, and ops whose results are
// typed by the sharding rules as they are made.
#pragma once

#include <map>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"

#include "compiler/step/o_exchange.h"
#include "compiler/step/shardings.h"
#include "dsl/spec/topology.h"

namespace paratope::step {

// A weight that is split: dim → axis.
struct SplitDim {
  int64_t dim;
  std::string axis;
};

class StepBuilder {
public:
  StepBuilder(mlir::ModuleOp module, const TopologySpec &spec, const MeshView &mesh);

  const TopologySpec &spec;
  const MeshView &mesh;
  // Global row counts: of the engines' batches (the most one brings, times engines); of what ranks hold
  // between sublayers, which under cp is mirrored blocks with their padding; and of the sequences.
  int64_t flat_tokens, tokens, sequences;
  bool mirrored; // prompts are cut over cp
  OExchange o_exchange;
  mlir::OpBuilder builder;

  mlir::Type activation() { return builder.getBF16Type(); }
  mlir::Type index32() { return builder.getI32Type(); }

  // Ops that follow are named `name` ("layers.3.attn") and point at the place of `key` of the section op.
  void at(const std::string &name, mlir::Operation *section, llvm::StringRef key);
  mlir::Location location() const { return where; }

  // The axis of a group when it has more than one rank, as the split of `dim`; nothing otherwise.
  std::vector<SplitDim> split(const std::string &group, int64_t dim) const;

  // A weight of `part` (the memory bill's item). Types: "bf16", "fp8", "fp4", "f32".
  mlir::Value weight(const std::string &name, llvm::ArrayRef<int64_t> shape, const std::string &dtype,
                     const std::string &init, int64_t fan_in, const std::string &part,
                     const std::vector<SplitDim> &splits = {}, bool slots = false);

  // An op whose results have these global shapes; their shardings follow from the rules.
  template <class Op, class... Args> Op make(llvm::ArrayRef<mlir::Type> results, Args &&...args) {
    Op op = Op::create(builder, where, results, std::forward<Args>(args)...);
    type_results(op);
    return op;
  }
  mlir::RankedTensorType rows(int64_t columns) {
    return mlir::RankedTensorType::get({tokens, columns}, activation());
  }
  mlir::RankedTensorType rows(int64_t columns, mlir::Type element) {
    return mlir::RankedTensorType::get({tokens, columns}, element);
  }

  mlir::RankedTensorType flat(int64_t columns, mlir::Type element) {
    return mlir::RankedTensorType::get({flat_tokens, columns}, element);
  }

  mlir::Value linear(mlir::Value x, mlir::Value w);
  // gate and up, swiglu, down: x [tokens, hidden] through W13 [2, width, hidden] and W2 [hidden, width]
  mlir::Value feed_forward(mlir::Value x, mlir::Value w13, mlir::Value w2, double limit);
  // Rows of all tokens of an engine, in the order of its prompts; x itself where they are not cut over cp.
  mlir::Value restored(mlir::Value x);
  mlir::Value rms_norm(mlir::Value x, const std::string &gain_name, int64_t dims, const std::string &part);

  mlir::Operation *model_op = nullptr, *moe_op = nullptr, *attention_op = nullptr, *mesh_op = nullptr,
                  *workload_op = nullptr;

private:
  void type_results(mlir::Operation *op);
  mlir::Location where;
};

// The sublayers: x [tokens, hidden], normalised, in; the sublayer's output (perhaps a partial sum) out.
// `positions` are the rows', `flat_positions` those of the engine's whole batch.
mlir::Value build_attention(StepBuilder &step, int64_t layer, mlir::Value x, mlir::Value positions,
                            mlir::Value flat_positions);
mlir::Value build_feed_forward(StepBuilder &step, int64_t layer, mlir::Value x);

// Engram in three parts: the table rows of every Engram layer, which follow from the ids of the whole batch
// alone [flat tokens, rows a token]; their features, asked for before the first layer; and the gated addition
// to the residual [tokens, streams·hidden] where a layer uses them.
std::map<int64_t, mlir::Value> build_engram_rows(StepBuilder &step, mlir::Value ids, mlir::Value positions);
std::map<int64_t, mlir::Value> build_engram_features(StepBuilder &step,
                                                     const std::map<int64_t, mlir::Value> &rows);
mlir::Value build_engram_gate(StepBuilder &step, int64_t layer, mlir::Value residual, mlir::Value features);

} // namespace paratope::step
