// SPDX-License-Identifier: Apache-2.0
//
// Stage "exchange": walk the program, and wherever a value's sharding is not what its user needs, insert the
// one collective that makes it so:
//
//     has                        needs            gets
//     [t, {}] partial [tp]       [t, {}]          all_reduce over tp
//     [t, {}]                    [t + tp, {}]     slice_rows (local)
//     [t + tp, {}]               [t, {}]          all_gather over tp
//     [t + og, {}]               [t, {og}]        all_to_all over og, to columns
//     [t, {og}]                  [t + og, {}]     all_to_all over og, back to rows
//     [t, {}] partial [og]       [t + og, {}]     reduce_scatter over og
//     tokens and split experts                    dispatch … combine, or all_gather … reduce_scatter
//     (moe.cpp)
//
// A difference that no single collective mends is an error at the op that needs the other sharding.
#include "compiler/exchange/exchange.h"
#include "compiler/fuse/match.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPINSERTEXCHANGE
#include "Passes.h.inc"

namespace step {

static FlatSymbolRefAttr symbol(OpBuilder &builder, const std::string &group) {
  return FlatSymbolRefAttr::get(builder.getContext(), group);
}

static RankedTensorType with_rows(Value x, const std::vector<std::string> &rows) {
  Sharding sharding = sharding_of(x);
  sharding.dims[0] = rows;
  sharding.partial.clear();
  return with_sharding(cast<RankedTensorType>(x.getType()), sharding);
}

SmallVector<Value> Exchange::await(Location where, Value pending) {
  auto types = cast<PendingType>(pending.getType()).getTypes();
  return SmallVector<Value>(AwaitOp::create(builder, where, types, pending).getResults());
}

Value Exchange::all_reduce(Location where, Value x, const std::string &group) {
  Sharding sharding = sharding_of(x);
  auto type = with_rows(x, sharding.dims[0]);
  Value pending = AllReduceOp::create(builder, where, PendingType::get(builder.getContext(), {type}),
                                      symbol(builder, group), x);
  return await(where, pending)[0];
}

Value Exchange::slice_rows(Location where, Value x, const std::string &axis) {
  std::vector<std::string> rows = sharding_of(x).dims[0];
  rows.push_back(axis);
  return SliceRowsOp::create(builder, where, with_rows(x, rows), x, builder.getStringAttr(axis));
}

SmallVector<Value> Exchange::all_gather(Location where, ValueRange xs, const std::string &group,
                                        const std::vector<std::string> &rows, Value *gather) {
  SmallVector<Type> types;
  for (Value x : xs)
    types.push_back(with_rows(x, rows));
  Value pending = AllGatherOp::create(builder, where, PendingType::get(builder.getContext(), types),
                                      symbol(builder, group), xs);
  if (gather)
    *gather = pending;
  return await(where, pending);
}

Value Exchange::reduce_scatter(Location where, Value x, const std::string &group, Value gather,
                               const std::vector<std::string> &rows) {
  auto type = with_rows(x, rows);
  Value pending = ReduceScatterOp::create(builder, where, PendingType::get(builder.getContext(), {type}),
                                          symbol(builder, group), x, gather);
  return await(where, pending)[0];
}

Value Exchange::to_columns(Location where, Value x, const std::string &group) {
  Sharding sharding{{mesh.outside(group), {group}}, {}};
  auto type = with_sharding(cast<RankedTensorType>(x.getType()), sharding);
  return await(where,
               AllToAllOp::create(builder, where, PendingType::get(builder.getContext(), {type}),
                                  symbol(builder, group), x, Value(), builder.getStringAttr("columns")))[0];
}

Value Exchange::to_rows(Location where, Value x, const std::string &group, Value gather,
                        const std::vector<std::string> &rows) {
  auto type = with_sharding(cast<RankedTensorType>(x.getType()), Sharding{{rows, {}}, {}});
  return await(where,
               AllToAllOp::create(builder, where, PendingType::get(builder.getContext(), {type}),
                                  symbol(builder, group), x, gather, builder.getStringAttr("rows")))[0];
}

} // namespace step

using namespace step;

namespace {

// The last all_to_all over `group` before `op` that brought its ranks' rows together: whose row counts a way
// back undoes.
Value last_to_columns(Operation *op, const std::string &group) {
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode())
    if (auto exchange = dyn_cast<AllToAllOp>(before))
      if (exchange.getGroup() == group && exchange.getSplit() == "columns")
        return exchange.getPending();
  return {};
}

class InsertExchange : public impl::StepInsertExchangeBase<InsertExchange> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    FailureOr<MeshView> mesh = view_mesh(module);
    if (failed(mesh))
      return signalPassFailure();
    OpBuilder builder(&getContext());
    Exchange exchange(builder, *mesh, *spec);
    bool good = true;
    for (ProgramOp program : module.getOps<ProgramOp>()) {
      explain_choice(*spec, *mesh, module);
      // Experts first: they replace ops; what is left then needs one collective at most, each by itself.
      // Layers are alike: where one cannot be exchanged, the others and what follows would only say so again.
      for (RoutedExpertsOp experts : llvm::to_vector(program.getOps<RoutedExpertsOp>()))
        if (failed(exchange_experts(exchange, experts)))
          return signalPassFailure();
      for (EngramGatherOp gather : llvm::to_vector(program.getOps<EngramGatherOp>()))
        good = succeeded(fetch(exchange, gather)) && good;
      SmallVector<Operation *> ops;
      for (Operation &op : program.getBody().front())
        if (!is_collective(&op) && !isa<AwaitOp, SliceRowsOp>(op))
          ops.push_back(&op);
      for (Operation *op : ops) {
        builder.setInsertionPoint(op);
        for (unsigned idx = 0; idx < op->getNumOperands(); ++idx)
          good = succeeded(mend(exchange, op, idx)) && good;
      }
      give_names(program);
    }
    if (!good)
      signalPassFailure();
  }

  // Why `auto` took the exchange it took.
  static void explain_choice(const TopologySpec &spec, const MeshView &mesh, ModuleOp module) {
    int64_t ep = mesh.size_of("ep");
    if (ep == 1 || *spec.moe.exchange != "auto" || module.getOps<topo::MoeOp>().empty())
      return;
    const std::vector<std::string> &fuse = *spec.schedule.fuse;
    bool may = fuse == std::vector<std::string>{"auto"} || llvm::is_contained(fuse, "mega-moe");
    std::string why =
        may ? mega_moe_obstacle(spec, mesh, module->hasAttr("topo.notes")) : "fuse leaves mega-moe out";
    topo::remark(topo::location_of(*module.getOps<topo::MoeOp>().begin(), "exchange"), "exchange-choice")
        << (why.empty()
                ? fmt::format("exchange auto is fused: the ep group of {} ranks lies in one scale-up domain, "
                              "experts are {} and rows {}: one kernel a layer does it all, with fewer "
                              "launches and bytes",
                              ep, *spec.moe.expert_dtype, *spec.moe.dispatch_dtype)
                : "exchange auto is two-stage: " + why);
  }

  // Rows of a table that is cut over enp come from their owners.
  static LogicalResult fetch(Exchange &exchange, EngramGatherOp gather) {
    if (!exchange.mesh.groups.count("enp"))
      return topo::error(gather.getLoc(), "no-group")
             << "the model has Engram tables, and the layout has no group 'enp' to fetch their rows over";
    OpBuilder &b = exchange.builder;
    b.setInsertionPoint(gather);
    Value pending = FetchOp::create(b, gather.getLoc(),
                                    PendingType::get(b.getContext(), {gather.getFeatures().getType()}),
                                    FlatSymbolRefAttr::get(b.getContext(), "enp"), gather.getRows(),
                                    gather.getTable(), gather.getLayerAttr());
    gather.getFeatures().replaceAllUsesWith(exchange.await(gather.getLoc(), pending)[0]);
    gather.erase();
    return success();
  }

  // Output groups: the split moves to columns, and back as rows or as a scattered sum.
  static Value through_columns(Exchange &exchange, Operation *op, Value x, const Sharding &has,
                               const Sharding &need) {
    const MeshView &mesh = exchange.mesh;
    if (has.dims.size() != 2 || need.dims.size() != 2 || !need.partial.empty())
      return {};
    bool apart = mesh.covers_world(has.dims[0]), back = mesh.covers_world(need.dims[0]);
    const std::vector<std::string> &columns = has.dims[1], &wanted = need.dims[1], &sum = has.partial;
    if (apart && columns.empty() && sum.empty() && wanted.size() == 1 &&
        need.dims[0] == mesh.outside(wanted.front()))
      return exchange.to_columns(op->getLoc(), x, wanted.front());
    bool from_columns = columns.size() == 1 && wanted.empty() && sum.empty();
    bool from_sum = columns.empty() && wanted.empty() && sum.size() == 1;
    if (!back || (!from_columns && !from_sum))
      return {};
    const std::string &group = from_columns ? columns.front() : sum.front();
    Value gather = has.dims[0] == mesh.outside(group) ? last_to_columns(op, group) : Value();
    if (!gather)
      return {};
    return from_columns ? exchange.to_rows(op->getLoc(), x, group, gather, need.dims[0])
                        : exchange.reduce_scatter(op->getLoc(), x, group, gather, need.dims[0]);
  }

  LogicalResult mend(Exchange &exchange, Operation *op, unsigned idx) {
    std::optional<Sharding> need = needed(op, idx, exchange.mesh);
    if (!need)
      return success();
    Value x = op->getOperand(idx);
    Sharding has = sharding_of(x);
    if (has == *need)
      return success();
    if (Value moved = through_columns(exchange, op, x, has, *need)) {
      op->setOperand(idx, moved);
      return success();
    }
    bool same_dims = has.dims == need->dims;
    if (same_dims && has.partial.size() == 1 && need->partial.empty()) {
      Value summed = exchange.all_reduce(op->getLoc(), x, has.partial.front());
      // Every later user wants the sum as well.
      Operation *reduction = summed.getDefiningOp<AwaitOp>().getPending().getDefiningOp();
      x.replaceAllUsesExcept(summed, reduction);
      return success();
    }
    auto extends = [](const std::vector<std::string> &longer, const std::vector<std::string> &shorter) {
      return longer.size() == shorter.size() + 1 &&
             std::equal(shorter.begin(), shorter.end(), longer.begin());
    };
    bool same_columns = has.dims.size() == need->dims.size() &&
                        std::equal(has.dims.begin() + 1, has.dims.end(), need->dims.begin() + 1);
    if (same_columns && has.partial.empty() && extends(need->dims[0], has.dims[0])) {
      op->setOperand(idx, exchange.slice_rows(op->getLoc(), x, need->dims[0].back()));
      return success();
    }
    if (same_columns && has.partial.empty() && extends(has.dims[0], need->dims[0]) &&
        exchange.mesh.groups.count(has.dims[0].back())) {
      op->setOperand(idx, exchange.all_gather(op->getLoc(), x, has.dims[0].back(), need->dims[0])[0]);
      return success();
    }
    return topo::error(op->getLoc(), "no-exchange")
           << "operand " << idx << " of " << op->getName() << " is " << to_string(has) << " but is needed as "
           << to_string(*need) << ", and no one collective makes it so";
  }
};

} // namespace
} // namespace paratope
