// SPDX-License-Identifier: Apache-2.0
//
// Stage "built": what is legal, has its groups built and shown, and is not compiled into a step yet. One
// place says all of it, at the key that asks, so that nobody learns it from a run; `check` accepts such a
// file with a warning.
#include "fmt/format.h"

#include "compiler/check/topology_check.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_TOPOCHECKBUILT
#include "Passes.h.inc"

namespace {

class Built : public TopologyCheck {
public:
  using TopologyCheck::TopologyCheck;

  void run() {
    if (size("pp") > 1)
      wrong(mesh, "pp", "not-built",
            "groups of pp are built and shown, but the step compiler does not split layers over pp",
            "write pp = 1");
    if (size("tp") > 1 && size("cp") > 1)
      wrong(mesh, "cp", "not-built",
            fmt::format(
                "groups of tp = {} and cp = {} are built and shown, but the step compiler does not cut an "
                "engine both ways",
                size("tp"), size("cp")),
            "write cp = 1", {{topo::location_of(mesh, "tp"), fmt::format("tp = {}", size("tp"))}});
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
