// SPDX-License-Identifier: Apache-2.0
#include "compiler/check/topology_check.h"

#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

TopologyCheck::TopologyCheck(ModuleOp checked) : module(checked) {
  Diagnostics findings;
  spec = topo::to_spec(module, findings);
  if (failed(topo::report(module.getContext(), findings)) || !spec)
    return;
  auto all_sizes = module.getOps<topo::SizesOp>();
  if (all_sizes.empty()) {
    topo::error(module.getLoc(), "missing-section")
        << "the module has no topo.sizes: run --topo-derive-sizes first";
    return;
  }
  mesh = *module.getOps<topo::MeshOp>().begin();
  sizes = *all_sizes.begin();
  ready = true;
}

int64_t TopologyCheck::size(StringRef axis) {
  for (auto [name, value] : llvm::zip(mesh.getAxisNames(), mesh.getAxisSizes()))
    if (cast<StringAttr>(name).getValue() == axis)
      if (auto number = dyn_cast<IntegerAttr>(value))
        return number.getInt();
  return 1;
}

void TopologyCheck::wrong(Operation *op, StringRef key, StringRef code, const std::string &message,
                          const std::string &fix,
                          const std::vector<std::pair<Location, std::string>> &notes) {
  good = false;
  InFlightDiagnostic reported = topo::error(topo::location_of(op, key), code) << message;
  for (const auto &[where, text] : notes)
    reported.attachNote(where) << text;
  if (!fix.empty())
    topo::set_fix(reported, fix);
}

} // namespace paratope
