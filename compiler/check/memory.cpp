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

// The number a user would lower: the batch, or where the file leaves that to the defaults, what it does say.
Location place_to_blame(ModuleOp module, const TopologySpec &spec) {
  auto at = [&](Operation *op, StringRef key) { return topo::location_of(op, key); };
  auto first = [&](auto ops) { return ops.empty() ? module.getOperation() : (*ops.begin()).getOperation(); };
  Operation *workload = first(module.getOps<topo::WorkloadOp>()),
            *machine = first(module.getOps<topo::MachineOp>()),
            *model = first(module.getOps<topo::ModelOp>());
  SmallVector<Location> places = {
      at(workload, *spec.workload.phase == "prefill" ? "prompt_lengths" : "tokens_per_rank")};
  if (spec.machine.gpu_memory_gb.written)
    places.push_back(at(machine, "gpu.memory_gb"));
  places.append({at(workload, "context"), at(model, "use"), at(model, "layers"), at(machine, "use")});
  for (Location place : places)
    if (topo::to_range(place).known())
      return place;
  return module.getLoc();
}

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
    auto gb = [](int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    InFlightDiagnostic reported =
        topo::error(place_to_blame(module, *spec), "does-not-fit")
        << fmt::format("a rank needs {:.2f} GB, a {} has {:.2f} GB", gb(bill->total), *spec->machine.gpu_name,
                       gb(bill->capacity));
    for (const auto &[item, bytes] : bill->rank_bytes)
      if (bytes > 0)
        reported.attachNote(UnknownLoc::get(&getContext()))
            << fmt::format("{:>18} {:10.3f} GB", item, gb(bytes));
    std::string fix;
    bool prefill = *spec->workload.phase == "prefill"; // whose batch is made of several lengths
    if (bill->largest_tokens_per_rank > 0 && !prefill)
      fix += fmt::format("tokens_per_rank = {}", bill->largest_tokens_per_rank);
    if (bill->largest_context > 0 && !prefill)
      fix += fmt::format("{}context = {}", fix.empty() ? "" : " or ", bill->largest_context);
    topo::set_fix(reported, prefill       ? "fewer or shorter prompts, or more ranks"
                            : fix.empty() ? "no batch fits: split the model over more ranks"
                                          : "the largest that fits: " + fix);
    signalPassFailure();
  }
};

} // namespace
} // namespace paratope
