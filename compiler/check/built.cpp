// SPDX-License-Identifier: Apache-2.0
//
// Stage "built": what is legal, has its groups built and shown, and is not compiled into a step yet. One
// place says all of it, at the key that asks, so that nobody learns it from a run; `check` accepts such a
// file with a warning.
#include "fmt/format.h"

#include "compiler/check/topology_check.h"
#include "compiler/passes.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_TOPOCHECKBUILT
#include "Passes.h.inc"

namespace {

class Built : public TopologyCheck {
public:
  using TopologyCheck::TopologyCheck;

  void run() {
    ranks_serve();
    not_built_yet();
    exchange_is_built();
    fusions_are_built();
  }

private:
  void ranks_serve() {
    int64_t serving = size("dp") * size("cp") * size("tp");
    if (world() > serving && size("enp") > serving && *spec->engram.extra_ranks == "table-only")
      wrong(
          mesh, "enp", "not-built",
          fmt::format("enp = {} adds {} ranks that hold table rows only, and such ranks are not executed yet",
                      size("enp"), world() - serving),
          "write [engram] extra_ranks = \"serve\"");
  }

  void not_built_yet() {
    auto phase = [&](const char *text) {
      wrong(section<topo::WorkloadOp>(), "phase", "not-built", text, "write phase = \"decode\"");
    };
    if (*spec->workload.phase == "prefill")
      phase("prefill steps are read and their groups are built, but no step is compiled for them yet");
    for (const char *axis : {"pp", "og", "moe_tp"})
      if (size(axis) > 1)
        wrong(mesh, axis, "not-built",
              fmt::format(
                  "groups of {} are built and shown, but the step compiler does not split a step over {} yet",
                  axis, axis),
              fmt::format("write {} = 1", axis));
    if (*spec->model.attention.kind == "gqa")
      wrong(section<topo::ModelOp>(), "attention.kind", "not-built",
            "steps are compiled for latent and mla attention, not for gqa yet");
    if (*spec->model.weights != "synthetic")
      wrong(section<topo::ModelOp>(), "weights", "not-built",
            "weights are generated: loading them from files is not built yet",
            "write weights = \"synthetic\"");
  }

  void fusions_are_built() {
    const std::vector<std::string> &fuse = *spec->schedule.fuse;
    if (!fuse.empty() && fuse != std::vector<std::string>{"auto"})
      wrong(section<topo::ScheduleOp>(), "fuse", "not-built",
            fmt::format("fusions are not built yet, got '{}'", fuse.front()),
            "write fuse = \"auto\" (which fuses nothing today) or []");
  }

  void exchange_is_built() {
    if (*spec->moe.exchange == "fused" && size("ep") > 1)
      wrong(section<topo::MoeOp>(), "exchange", "not-built",
            "the fused exchange is one persistent GPU kernel, and it is not built yet",
            "write exchange = \"two-stage\"");
  }
};

class CheckBuilt : public impl::TopoCheckBuiltBase<CheckBuilt> {
  void runOnOperation() override {
    Built check(getOperation());
    if (check.ready)
      check.run();
    if (!check.ready || !check.good)
      signalPassFailure();
  }
};

} // namespace
} // namespace paratope
