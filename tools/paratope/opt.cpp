// SPDX-License-Identifier: Apache-2.0
//
// `opt`: mlir-opt for the project's dialects. Only the flags that help with them are shown.
#include <unistd.h>

#include <csignal>

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

#include "compiler/passes.h"
#include "tools/paratope/session.h"

namespace paratope {

int run_opt(int argc, char **argv) {
  std::signal(SIGPIPE, [](int) { _exit(exit_good); }); // LLVM's streams would call a closed pipe a failure
  mlir::DialectRegistry registry;
  registry.insert<topo::TopoDialect, step::StepDialect>();
  registerParatopePasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  std::string name = "paratope opt";
  argv[0] = name.data();
  return mlir::failed(mlir::MlirOptMain(argc, argv, "paratope opt: passes on .mlir files\n", registry))
             ? exit_wrong_input
             : exit_good;
}

} // namespace paratope
