// SPDX-License-Identifier: Apache-2.0
//
// The compiler's passes, by the stage they belong to (pipeline.cpp has the order and the reasons).

#ifndef PARATOPE_PASSES
#define PARATOPE_PASSES

include "mlir/Pass/PassBase.td"

class ParatopePass<string argument, string text> : Pass<argument, "::mlir::ModuleOp"> {
  let summary = text;
  let dependentDialects = ["::paratope::topo::TopoDialect", "::paratope::step::StepDialect"];
}

def TopoTiny : ParatopePass<"topo-tiny", "shrink the model's widths and the batch, so that a CPU can run the step">;
def TopoDeriveSizes : ParatopePass<"topo-derive-sizes", "world, engines, replicas and physical experts">;
def TopoCheckLegality : ParatopePass<"topo-check-legality", "what the axes, the model and the machine allow together">;
def TopoCheckBuilt : ParatopePass<"topo-check-built", "what is legal, but no step is compiled for yet">;
def TopoBuildGroups : ParatopePass<"topo-build-groups", "patterns to communicators in closed form, equal ones shared">;
def StepBuild : ParatopePass<"step-build", "the model's step on sharded tensors, without collectives">;
def StepInsertExchange : ParatopePass<"step-insert-exchange", "a collective wherever a producer's sharding is not its consumer's">;
def StepCheckShardings : ParatopePass<"step-check-shardings", "every operand's sharding is what its op needs">;
def StepCheckProgram : ParatopePass<"step-check-program", "one program, its vote, its batch and its result">;
def StepCheckMemory : ParatopePass<"step-check-memory", "the step fits a GPU of the machine, itemised">;
def StepFuse : ParatopePass<"step-fuse", "parts of a fusion side by side, as one kernel">;
def StepOrder : ParatopePass<"step-order", "streams; collectives issued as early, awaited as late as data allows">;
def StepPlace : ParatopePass<"step-place", "every buffer's offset in its arena, from liveness">;

#endif
