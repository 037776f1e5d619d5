// SPDX-License-Identifier: Apache-2.0
//
// Stage "check", the program as a whole: what no single op can show. A step program edited by hand passes
// here too.
#include "compiler/mesh/view.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPCHECKPROGRAM
#include "Passes.h.inc"

using namespace step;

namespace {

class CheckProgram : public impl::StepCheckProgramBase<CheckProgram> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<MeshView> view = view_mesh(module);
    if (failed(view))
      return signalPassFailure();
    topo::SizesOp sizes = *module.getOps<topo::SizesOp>().begin();
    int64_t rows = static_cast<int64_t>(sizes.getEngines() * sizes.getTokens()), programs = 0;
    bool good = true;
    for (ProgramOp program : module.getOps<ProgramOp>()) {
      if (++programs > 1 || program.getOps<ResultOp>().empty()) {
        topo::error(program.getLoc(), "no-program")
            << "a module has one step.program, and it ends in step.result";
        good = false;
      }
      good = lockstep(program, *view) && good;
      for (BatchOp batch : program.getOps<BatchOp>()) {
        int64_t got = cast<RankedTensorType>(batch.getIds().getType()).getDimSize(0);
        if (got == rows)
          continue;
        topo::error(batch.getLoc(), "wrong-shape") << "the batch has " << got << " rows, expected " << rows
                                                   << ": the engines times the tokens of one";
        good = false;
      }
    }
    if (!good)
      signalPassFailure();
  }

  // Engines that share an exchange step together, and one vote a step tells them whether to.
  static bool lockstep(ProgramOp program, const MeshView &mesh) {
    bool shared = llvm::any_of(program.getBody().front(), [&](Operation &op) {
      if (!is_collective(&op) || isa<VoteOp>(op))
        return false;
      std::string group = group_of(&op); // tp and cp lie inside an engine
      return group != "tp" && group != "cp" && mesh.size_of(group) > 1;
    });
    int64_t engines = mesh.size_of("dp");
    int64_t votes = llvm::range_size(program.getOps<VoteOp>()), needs = shared && engines > 1 ? 1 : 0;
    if (votes == needs)
      return true;
    topo::error(program.getLoc(), "liveness")
        << "a step of " << engines << " engines in lockstep has " << needs << " vote over dp, got " << votes;
    return false;
  }
};

} // namespace
} // namespace paratope
