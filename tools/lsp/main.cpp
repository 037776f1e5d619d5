// SPDX-License-Identifier: Apache-2.0
//
// The language server of the dialects: diagnostics, hover, go to definition in .mlir files.
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

#include "compiler/step/dialect.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<paratope::topo::TopoDialect, paratope::step::StepDialect>();
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
