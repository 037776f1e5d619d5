// SPDX-License-Identifier: Apache-2.0
//
// Tools of exchange insertion: each makes one collective (and its await) at the builder's place.
#pragma once

#include "mlir/IR/Builders.h"

#include "compiler/step/shardings.h"
#include "dsl/spec/topology.h"

namespace paratope::step {

class Exchange {
public:
  Exchange(mlir::OpBuilder &builder, const MeshView &mesh, const TopologySpec &spec)
      : builder(builder), mesh(mesh), spec(spec) {}

  mlir::OpBuilder &builder;
  const MeshView &mesh;
  const TopologySpec &spec;

  // The sum over `group` of a value that is partial over it.
  mlir::Value all_reduce(mlir::Location where, mlir::Value x, const std::string &group);
  // This rank's share of rows that are whole over `axis`.
  mlir::Value slice_rows(mlir::Location where, mlir::Value x, const std::string &axis);
  // Rows of all of `group`: dim 0 of each value then has the axes `rows`. `gather` is the pending collective.
  llvm::SmallVector<mlir::Value> all_gather(mlir::Location where, mlir::ValueRange xs,
                                            const std::string &group, const std::vector<std::string> &rows,
                                            mlir::Value *gather = nullptr);
  // Undoes `gather` on a value that is partial over `group`: each rank its own rows of the sum.
  mlir::Value reduce_scatter(mlir::Location where, mlir::Value x, const std::string &group,
                             mlir::Value gather, const std::vector<std::string> &rows);
  // Split by rows, over `group` too, to split by columns over `group`: all tokens of the group, one block of
  // columns.
  mlir::Value to_columns(mlir::Location where, mlir::Value x, const std::string &group);
  // The way back. `gather` is the pending to_columns whose row counts it undoes.
  mlir::Value to_rows(mlir::Location where, mlir::Value x, const std::string &group, mlir::Value gather,
                      const std::vector<std::string> &rows);
  llvm::SmallVector<mlir::Value> await(mlir::Location where, mlir::Value pending);
};

// Brings tokens and experts together around one routed_experts op, by the topology's exchange.
mlir::LogicalResult exchange_experts(Exchange &exchange, RoutedExpertsOp experts);

} // namespace paratope::step
