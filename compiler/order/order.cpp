// SPDX-License-Identifier: Apache-2.0
//
// Stage "order": collectives are issued as soon as their operands exist and awaited only where their results
// are used, so that what lies between them overlaps. Each op gets its stream:
//
//     compute    ── gate ──────────── shared ffn ─── expert_ffn ──────────── hc_post ──
//     exchange           └─ dispatch ───────────┘            └─ combine ─┘
//     control    vote: liveness, off the data path
//
// Kernels stay whole: a collective that is a part of one is issued where its kernel stands, and takes the
// kernel to its stream.
//
// The order of collectives against each other never changes: every rank issues them alike.
#include <set>

#include "mlir/IR/Builders.h"

#include "compiler/passes.h"
#include "compiler/step/dialect.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPORDER
#include "Passes.h.inc"

using namespace step;

namespace {

class Order : public impl::StepOrderBase<Order> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    bool overlap = *spec->schedule.overlap != "none";
    for (ProgramOp program : module.getOps<ProgramOp>()) {
      if (overlap) {
        issue_early(program);
        await_late(program);
      }
      std::set<int64_t> sending; // kernels that issue a collective
      for (Operation &op : program.getBody().front())
        if (std::optional<int64_t> kernel = kernel_of(&op); kernel && is_collective(&op))
          sending.insert(*kernel);
      Builder builder(&getContext());
      for (Operation &op : program.getBody().front()) {
        if (isa<WeightOp, ResultOp>(op))
          continue;
        bool sends = is_collective(&op) || (kernel_of(&op) && sending.count(*kernel_of(&op)));
        StringRef stream = isa<VoteOp>(op)    ? "control"
                           : isa<FetchOp>(op) ? "prefetch"
                           : sends            ? "exchange"
                                              : "compute";
        op.setAttr("stream", builder.getStringAttr(stream));
      }
    }
  }

  // Right after the last operand is made, but never before an earlier collective of the same group.
  static void issue_early(ProgramOp program) {
    SmallVector<Operation *> collectives;
    for (Operation &op : program.getBody().front())
      if (is_collective(&op) && !isa<VoteOp>(op))
        collectives.push_back(&op);
    // The end of the kernel that an op is a part of.
    auto end_of = [](Operation *op) {
      while (kernel_of(op) && op->getNextNode() && kernel_of(op->getNextNode()) == kernel_of(op))
        op = op->getNextNode();
      return op;
    };
    llvm::StringMap<Operation *> last_on;
    for (Operation *op : collectives) {
      Operation *after = last_on.lookup(group_of(op));
      for (Value operand : op->getOperands())
        if (Operation *def = operand.getDefiningOp(); def && (!after || after->isBeforeInBlock(def)))
          after = def;
      if (after && !kernel_of(op) && end_of(after)->getNextNode() != op && end_of(after)->isBeforeInBlock(op))
        op->moveAfter(end_of(after));
      last_on[group_of(op)] = op;
    }
  }

  // Right before the first op that reads what the collective gives.
  static void await_late(ProgramOp program) {
    SmallVector<AwaitOp> awaits(program.getOps<AwaitOp>());
    for (AwaitOp await : awaits) {
      Operation *first = nullptr;
      for (Value value : await.getResults())
        for (Operation *user : value.getUsers())
          if (!first || user->isBeforeInBlock(first))
            first = user;
      if (!first || kernel_of(await))
        continue;
      while (kernel_of(first) && kernel_of(first->getPrevNode()) == kernel_of(first))
        first = first->getPrevNode();
      if (await->getNextNode() != first)
        await->moveBefore(first);
    }
  }
};

} // namespace
} // namespace paratope
