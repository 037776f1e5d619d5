// SPDX-License-Identifier: Apache-2.0
//
// Tokens lie over the engines, experts over ep. One of two ways brings them together:
//
//     two-stage     x ─ dispatch ─▶ rows by expert ─ expert_ffn ─ combine (+ shared) ─▶ y        2 exchanges
//     all-gather    x ─ all_gather ─▶ every token ─ local experts ─ reduce_scatter ─▶ y          2 exchanges
//
// Under tensor parallelism every rank of tp has the same tokens. Either rank j of tp takes share j of them
// and the results are gathered over tp ("split"), or each dispatches them all ("replicated"). Where an ep
// group's ranks hold the same tokens anyway, all-gather has nothing to gather and one all_reduce adds the
// parts.
#include "compiler/exchange/exchange.h"
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope::step {

namespace {

using Axes = std::vector<std::string>;

// The routed experts of one layer while they are being exchanged. `x`, `idx` and `weights` may become shares.
struct Experts {
  Exchange &exchange;
  RoutedExpertsOp op;
  std::string group; // ep
  Value x, idx, weights, shared;
  AddOp add; // of the shared expert, if any
  Axes rows; // of x

  Location where() { return op.getLoc(); }
  OpBuilder &builder() { return exchange.builder; }
  const MeshView &mesh() { return exchange.mesh; }

  // The addition of the shared expert belongs to the exchange: it can ride on combine, or on a share of the
  // rows.
  void find_shared() {
    if (!op.getY().hasOneUse())
      return;
    auto user = dyn_cast<AddOp>(*op.getY().user_begin());
    if (!user || user.getAddends().size() != 2 || user.getAddends()[0] != op.getY())
      return;
    add = user;
    shared = user.getAddends()[1];
  }

  void take_share(const std::string &axis) {
    x = exchange.slice_rows(where(), x, axis);
    idx = exchange.slice_rows(where(), idx, axis);
    weights = exchange.slice_rows(where(), weights, axis);
    if (shared) {
      auto ffn = shared.getDefiningOp<FfnOp>();
      if (ffn && shared.hasOneUse() &&
          ffn.getX() == op.getX()) { // the shared expert needs only the share, too
        ffn->moveBefore(builder().getInsertionBlock(), builder().getInsertionPoint());
        ffn->setOperand(0, x);
        shared.setType(x.getType());
      } else {
        shared = exchange.slice_rows(where(), shared, axis);
      }
    }
    rows = sharding_of(x).dims[0];
  }

  void finish(Value y) {
    Operation *replaced = add ? add.getOperation() : op.getOperation();
    replaced->getResult(0).replaceAllUsesWith(y);
    if (add)
      add.erase();
    op.erase();
  }

  Value two_stage(ArrayAttr replicated) {
    OpBuilder &b = builder();
    MLIRContext *context = b.getContext();
    auto type = cast<RankedTensorType>(x.getType());
    int64_t hidden = type.getDimSize(1), top_k = cast<RankedTensorType>(idx.getType()).getDimSize(1);
    Axes by_expert = mesh().outside(group);
    by_expert.push_back(group);
    // The most rows a rank can get: every token of its group, once for each of its chosen local slots.
    int64_t slots = local_slots(), from_each = local_shape(type, mesh())[0];
    int64_t capacity = mesh().size_of(group) * from_each * std::min(top_k, slots) * mesh().world;
    Sharding sharding{{by_expert, {}}, {}};
    auto rows_type =
        with_sharding(RankedTensorType::get({capacity, hidden}, type.getElementType()), sharding);
    auto table_type = with_sharding(RankedTensorType::get({capacity, 4}, b.getI32Type()), sharding);
    const MoeSpec &moe = exchange.spec.moe;
    auto symbol = FlatSymbolRefAttr::get(context, group);
    Value sent = DispatchOp::create(b, where(), PendingType::get(context, {rows_type, table_type}), symbol, x,
                                    idx, weights, b.getI64IntegerAttr(top_k),
                                    b.getStringAttr(*moe.dispatch_dtype), replicated);
    SmallVector<Value> arrived = exchange.await(where(), sent);
    Value out = ExpertFfnOp::create(b, where(), rows_type, arrived[0], arrived[1], op.getW13(), op.getW2(),
                                    op.getLimitAttr());
    Value back = CombineOp::create(b, where(), PendingType::get(context, {x.getType()}), symbol, out,
                                   arrived[1], shared, b.getStringAttr(*moe.combine_dtype));
    return exchange.await(where(), back)[0];
  }

  Value gathered() {
    Value gather;
    Axes outside = mesh().outside(group);
    SmallVector<Value> all = exchange.all_gather(where(), {x, idx, weights}, group, outside, &gather);
    Value part = local(all[0], all[1], all[2], outside);
    Value y = exchange.reduce_scatter(where(), part, group, gather, rows);
    return with_shared(y);
  }

  Value local(Value tokens, Value chosen, Value scores, const Axes &outside) {
    auto type = with_sharding(cast<RankedTensorType>(tokens.getType()), Sharding{{outside, {}}, {group}});
    return RoutedExpertsOp::create(builder(), where(), type, tokens, chosen, scores, op.getW13(), op.getW2(),
                                   op.getLimitAttr());
  }

  Value with_shared(Value y) {
    return shared ? Value(AddOp::create(builder(), where(), y.getType(), ValueRange{y, shared})) : y;
  }

  int64_t local_slots() {
    auto module = op->getParentOfType<ModuleOp>();
    return static_cast<int64_t>((*module.getOps<topo::SizesOp>().begin()).getLocal());
  }
};

} // namespace

LogicalResult exchange_experts(Exchange &exchange, RoutedExpertsOp op) {
  const MeshView &mesh = exchange.mesh;
  Axes split = sharding_of(op.getW13()).dims[0];
  if (split.empty()) // every expert is here
    return success();
  Experts experts{exchange,  op,          split.front(),
                  op.getX(), op.getIdx(), op.getWeights(),
                  {},        {},          sharding_of(op.getX()).dims[0]};
  experts.find_shared();
  Operation *after = experts.add ? experts.add.getOperation() : op.getOperation();
  exchange.builder.setInsertionPoint(after);

  bool gather = *exchange.spec.moe.exchange == "all-gather";
  if (gather && experts.rows == mesh.outside(experts.group)) { // the group's ranks hold the same tokens
    Value part = experts.local(experts.x, experts.idx, experts.weights, experts.rows);
    experts.finish(experts.with_shared(exchange.all_reduce(experts.where(), part, experts.group)));
    return success();
  }
  ArrayAttr replicated;
  bool shared_out = false;
  if (!mesh.covers_world(experts.rows)) {
    Axes with_tp = experts.rows;
    with_tp.push_back("tp");
    if (mesh.size_of("tp") == 1 || !mesh.covers_world(with_tp)) {
      topo::error(op.getLoc(), "no-exchange")
          << "tokens are " << to_string(sharding_of(experts.x)) << ", which leaves ranks of '"
          << experts.group << "' with the same tokens: no exchange over it keeps them apart";
      return failure();
    }
    if (!gather && *exchange.spec.moe.tp_dispatch == "replicated") {
      replicated = exchange.builder.getStrArrayAttr({"tp"});
    } else {
      experts.take_share("tp");
      shared_out = true;
    }
  }
  Value y = gather ? experts.gathered() : experts.two_stage(replicated);
  if (shared_out) {
    Axes rows = experts.rows;
    rows.pop_back();
    y = exchange.all_gather(experts.where(), y, "tp", rows)[0];
  }
  experts.finish(y);
  return success();
}

} // namespace paratope::step
