// SPDX-License-Identifier: Apache-2.0
//
// What the builders of sublayers share: the topology's values, the mesh, a cursor, and ops whose results are
// typed by the sharding rules as they are made.
#pragma once

#include <map>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"

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
  StepBuilder(mlir::ModuleOp module, const TopologySpec &spec, const MeshView &mesh, int64_t tokens);

  const TopologySpec &spec;
  const MeshView &mesh;
  int64_t tokens; // rows of the global batch: engines × the most an engine brings
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

  mlir::Value linear(mlir::Value x, mlir::Value w);
  mlir::Value rms_norm(mlir::Value x, const std::string &gain_name, int64_t dims, const std::string &part);

  mlir::Operation *model_op = nullptr, *moe_op = nullptr, *mesh_op = nullptr, *workload_op = nullptr;

private:
  void type_results(mlir::Operation *op);
  mlir::Location where;
};

// The sublayers: x [tokens, hidden], normalised, in; the sublayer's output (perhaps a partial sum) out.
mlir::Value build_attention(StepBuilder &step, int64_t layer, mlir::Value x, mlir::Value positions);
mlir::Value build_feed_forward(StepBuilder &step, int64_t layer, mlir::Value x);

// Engram in two parts: the features of every Engram layer, which depend on token ids alone and are asked for
// before the first layer; and their gated addition to the residual [tokens, streams·hidden] where a layer
// uses them.
std::map<int64_t, mlir::Value> build_engram_features(StepBuilder &step, mlir::Value ids,
                                                     mlir::Value positions);
mlir::Value build_engram_gate(StepBuilder &step, int64_t layer, mlir::Value residual, mlir::Value features);

} // namespace paratope::step
