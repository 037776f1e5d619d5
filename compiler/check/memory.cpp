// SPDX-License-Identifier: Apache-2.0
//
// Stage "check", capacity: a step that does not fit the machine's GPU is an error, itemised, before anything
// else is said about it.
#include "fmt/format.h"

#include "compiler/memory/bill.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPCHECKMEMORY
#include "Passes.h.inc"

namespace {

class CheckMemory : public impl::StepCheckMemoryBase<CheckMemory> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    FailureOr<MeshView> mesh = view_mesh(module);
    if (failed(mesh))
      return signalPassFailure();
    FailureOr<MemoryBill> bill = memory_bill(module, *spec, *mesh);
    if (failed(bill))
      return signalPassFailure();
    if (bill->fits)
      return;
    Operation *workload = module;
    for (topo::WorkloadOp op : module.getOps<topo::WorkloadOp>())
      workload = op;
    auto gb = [](int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    InFlightDiagnostic reported =
        topo::error(topo::location_of(workload, "tokens_per_rank"), "does-not-fit")
        << fmt::format("a rank needs {:.2f} GB, a {} has {:.2f} GB", gb(bill->total), *spec->machine.gpu_name,
                       gb(bill->capacity));
    for (const auto &[item, bytes] : bill->rank_bytes)
      if (bytes > 0)
        reported.attachNote(UnknownLoc::get(&getContext()))
            << fmt::format("{:>18} {:10.3f} GB", item, gb(bytes));
    std::string fix;
    if (bill->largest_tokens_per_rank > 0)
      fix += fmt::format("tokens_per_rank = {}", bill->largest_tokens_per_rank);
    if (bill->largest_context > 0)
      fix += fmt::format("{}context = {}", fix.empty() ? "" : " or ", bill->largest_context);
    topo::set_fix(reported, fix.empty() ? "no batch fits: split the model over more ranks"
                                        : "the largest that fits: " + fix);
    signalPassFailure();
  }
};

} // namespace
} // namespace paratope
