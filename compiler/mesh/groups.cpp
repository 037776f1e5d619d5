// SPDX-License-Identifier: Apache-2.0
//
// Stage "group": patterns become communicators in closed form. Equal groups share one, unless they must not:
//
//     isolation   data       dispatch, combine, gathers, reductions of the step's own order
//                 control    liveness and votes: off the data path, so that neither waits for the other
//                 prefetch   Engram: in flight while the exchanges of earlier layers run
//
// Sharing is decided by members in order, backend and isolation class, never by a group's role. Groups of one
// rank build no communicator. Every rank takes part in every split, in the order the ops stand.
#include "fmt/format.h"
#include "mlir/IR/Builders.h"

#include "compiler/mesh/view.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_TOPOBUILDGROUPS
#include "Passes.h.inc"

namespace {

std::string isolation_of(const std::string &group) {
  if (group == "dp" || group.rfind("cpu_", 0) == 0)
    return "control";
  return group == "enp" ? "prefetch" : "data";
}

std::string backend_of(const std::string &group, const std::string &isolation, const TopologySpec &spec) {
  bool cpu = group.rfind("cpu_", 0) == 0 || (isolation == "control" && *spec.engine.control_plane == "cpu");
  return cpu ? "gloo" : "nccl";
}

class BuildGroups : public impl::TopoBuildGroupsBase<BuildGroups> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (topo::CommOp old : llvm::make_early_inc_range(module.getOps<topo::CommOp>()))
      old.erase();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    FailureOr<MeshView> view = view_mesh(module);
    if (failed(view))
      return signalPassFailure();

    Operation *last = nullptr;
    OpBuilder builder(&getContext());
    std::vector<topo::CommOp> built;
    for (topo::GroupOp group : module.getOps<topo::GroupOp>())
      last = group;
    if (last)
      builder.setInsertionPointAfter(last);
    SmallVector<topo::GroupOp> groups(module.getOps<topo::GroupOp>());
    for (topo::GroupOp group : groups) {
      std::string name = group.getSymName().str();
      const GroupLayout &layout = view->groups.at(name);
      // A group of one rank needs no communicator, unless the step asks it for its handle.
      if (layout.size == 1 && !(name == "enp" && !spec->model.engram.layers->empty()))
        continue;
      std::string isolation = isolation_of(name), backend = backend_of(name, isolation, *spec);
      topo::CommOp shared;
      for (topo::CommOp comm : built)
        if (comm.getIsolation() == isolation && comm.getBackend() == backend &&
            same_groups(view->groups.at(comm.getGroup().str()), layout)) {
          shared = comm;
          break;
        }
      if (shared) {
        SmallVector<Attribute> roles(shared.getRoles().begin(), shared.getRoles().end());
        roles.push_back(builder.getStringAttr(name));
        shared.setRolesAttr(builder.getArrayAttr(roles));
        topo::remark(group.getLoc(), "shared-communicator")
            << "group '" << name << "' shares the communicator of '" << shared.getGroup()
            << "': same ranks in the same order, both " << isolation;
        continue;
      }
      DenseI64ArrayAttr color_of, key_of;
      if (!layout.closed_form()) {
        color_of = builder.getDenseI64ArrayAttr(layout.color.table);
        key_of = builder.getDenseI64ArrayAttr(layout.key.table);
      }
      auto comm = topo::CommOp::create(
          builder, group.getLoc(), FlatSymbolRefAttr::get(&getContext(), name),
          builder.getI64IntegerAttr(layout.size), builder.getI64IntegerAttr(layout.count),
          AffineMapAttr::get(to_affine(&getContext(), layout.color)),
          AffineMapAttr::get(to_affine(&getContext(), layout.key)), builder.getStrArrayAttr({name}),
          builder.getStringAttr(isolation), builder.getStringAttr(backend), color_of, key_of);
      built.push_back(comm);
    }
    auto dp = view->groups.find("dp"), ep = view->groups.find("ep");
    if (dp != view->groups.end() && ep != view->groups.end() && dp->second.size > 1 && ep->second.size > 1 &&
        !same_members(dp->second, ep->second))
      explain_crossing(module, *view, dp->second, ep->second);
  }

  // dp ≠ ep is legal; where the two groupings cross is worth knowing.
  void explain_crossing(ModuleOp module, const MeshView &view, const GroupLayout &dp, const GroupLayout &ep) {
    auto listed = [](const std::vector<int64_t> &ranks) {
      std::string text = fmt::format(
          "{}", fmt::join(ranks.begin(),
                          ranks.begin() + static_cast<int64_t>(std::min<size_t>(ranks.size(), 8)), " "));
      return "[" + text + (ranks.size() > 8 ? " …]" : "]");
    };
    if (dp.size > max_table_ranks || ep.size > max_table_ranks)
      return;
    int64_t first = dp.rank_offset; // of this mesh's ranks
    for (topo::GroupOp group : module.getOps<topo::GroupOp>())
      if (group.getSymName() == "ep")
        topo::remark(group.getLoc(), "crossing-groups")
            << "dp and ep group the " << view.world << " ranks differently: rank " << first << " votes with "
            << listed(members(dp, color_of(dp, first))) << " and exchanges with "
            << listed(members(ep, color_of(ep, first)));
  }
};

} // namespace
} // namespace paratope
