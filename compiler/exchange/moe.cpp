// SPDX-License-Identifier: Apache-2.0
//
// Tokens lie over the engines, experts over ep and, each by its width, over moe_tp. One of two ways brings
// them together:
//
//     two-stage     x ─ dispatch ─▶ rows by expert ─ gate_up ─ swiglu ─ down ─ combine (+ shared) ─▶ y
//     all-gather    x ─ all_gather ─▶ every token ─ local experts ─ reduce_scatter ─▶ y
//
// All-gather works over the group whose ranks together hold every expert whole: ep, moe_tp, or `experts`
// where both split them. With moe_tp the two-stage exchange gathers tokens over moe_tp first, and
// reduce_scatter adds the partial sums after.
//
// Under tensor parallelism every rank of tp has the same tokens. Either rank j of tp takes share j of them
// and the results are gathered over tp ("split"), or each dispatches them all ("replicated"). Where a group's
// ranks hold the same tokens anyway there is nothing to gather, and one all_reduce adds the parts.
#include "compiler/exchange/exchange.h"

#include "fmt/format.h"

#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope::step {

namespace {

using Axes = std::vector<std::string>;

// The routed experts of one layer while they are being exchanged. `x`, `idx` and `weights` may become shares.
struct Experts {
  Exchange &exchange;
  RoutedExpertsOp op;
  Axes over,
      width; // what splits the experts, and what splits each one's width: {} or {"ep"}, {} or {"moe_tp"}
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

  // The shared expert needs only the share, too, where nothing else reads it.
  bool share_of_shared() {
    auto down = shared.getDefiningOp<LinearOp>();
    auto act = down ? down.getX().getDefiningOp<SwigluOp>() : SwigluOp();
    auto up = act ? act.getH().getDefiningOp<GateUpOp>() : GateUpOp();
    if (!up || up.getX() != op.getX() || !shared.hasOneUse() || !down.getX().hasOneUse() ||
        !act.getH().hasOneUse())
      return false;
    up->setOperand(0, x);
    for (Operation *each : {up.getOperation(), act.getOperation(), down.getOperation()}) {
      each->moveBefore(builder().getInsertionBlock(), builder().getInsertionPoint());
      Sharding sharding = sharding_of(each->getResult(0));
      sharding.dims[0] = sharding_of(x).dims[0];
      each->getResult(0).setType(
          with_sharding(cast<RankedTensorType>(each->getResult(0).getType()), sharding));
    }
    return true;
  }

  void take_share(const std::string &axis) {
    x = exchange.slice_rows(where(), x, axis);
    idx = exchange.slice_rows(where(), idx, axis);
    weights = exchange.slice_rows(where(), weights, axis);
    if (shared && !share_of_shared())
      shared = exchange.slice_rows(where(), shared, axis);
    rows = sharding_of(x).dims[0];
  }

  void finish(Value y) {
    Operation *replaced = add ? add.getOperation() : op.getOperation();
    replaced->getResult(0).replaceAllUsesWith(y);
    if (add)
      add.erase();
    op.erase();
  }

  // Rows of x, idx and weights dispatched over ep; the weighted sums back in x's rows, partial where moe_tp
  // cuts.
  Value two_stage(ArrayAttr replicated) {
    OpBuilder &b = builder();
    MLIRContext *context = b.getContext();
    const std::string &group = over.front();
    auto type = cast<RankedTensorType>(x.getType());
    int64_t hidden = type.getDimSize(1), top_k = cast<RankedTensorType>(idx.getType()).getDimSize(1);
    int64_t inner = cast<RankedTensorType>(op.getW13().getType()).getDimSize(2);
    Axes by_expert = mesh().outside(group);
    by_expert.push_back(group);
    // The most rows a rank can get: every token of its group, once for each of its chosen local slots.
    int64_t slots = local_slots(), from_each = local_shape(type, mesh())[0];
    int64_t capacity = mesh().size_of(group) * from_each * std::min(top_k, slots) * mesh().world;
    auto rows_of = [&](int64_t columns, Type element, const Axes &column_axes, const Axes &partial) {
      return with_sharding(RankedTensorType::get({capacity, columns}, element),
                           Sharding{{by_expert, column_axes}, partial});
    };
    Type element = type.getElementType();
    const MoeSpec &moe = exchange.spec.moe;
    auto symbol = FlatSymbolRefAttr::get(context, group);
    Value sent = DispatchOp::create(
        b, where(),
        PendingType::get(context, {rows_of(hidden, element, {}, {}), rows_of(4, b.getI32Type(), {}, {})}),
        symbol, x, idx, weights, b.getI64IntegerAttr(top_k), b.getStringAttr(*moe.dispatch_dtype),
        replicated);
    SmallVector<Value> arrived = exchange.await(where(), sent);
    Value h = ExpertGateUpOp::create(b, where(), rows_of(2 * inner, element, width, {}), arrived[0],
                                     arrived[1], op.getW13());
    Value a = SwigluOp::create(b, where(), rows_of(inner, element, width, {}), h, op.getLimitAttr());
    Value out =
        ExpertDownOp::create(b, where(), rows_of(hidden, element, {}, width), a, arrived[1], op.getW2());
    Value bias = width.empty() ? shared : Value(); // a partial sum has no one rank to add it
    Value back = CombineOp::create(
        b, where(), PendingType::get(context, {with_sharding(type, Sharding{{rows, {}}, width})}), symbol,
        out, arrived[1], bias, b.getStringAttr(*moe.combine_dtype));
    Value y = exchange.await(where(), back)[0];
    return y;
  }

  // The two-stage exchange where each expert is cut over moe_tp, whose ranks hold different tokens.
  Value two_stage_between(const std::string &cut) {
    Value gather;
    Axes home = rows;
    SmallVector<Value> all =
        exchange.all_gather(where(), {x, idx, weights}, cut, mesh().outside(cut), &gather);
    x = all[0], idx = all[1], weights = all[2], rows = mesh().outside(cut);
    Value part = two_stage(builder().getStrArrayAttr({cut}));
    rows = home;
    return exchange.reduce_scatter(where(), part, cut, gather, home);
  }

  Value gathered(const std::string &group) {
    Value gather;
    Axes outside = mesh().outside(group);
    SmallVector<Value> all = exchange.all_gather(where(), {x, idx, weights}, group, outside, &gather);
    Value part = local(all[0], all[1], all[2], group);
    return exchange.reduce_scatter(where(), part, group, gather, rows);
  }

  Value local(Value tokens, Value chosen, Value scores, const std::string &group) {
    auto type = with_sharding(cast<RankedTensorType>(tokens.getType()),
                              Sharding{{mesh().outside(group), {}}, {group}});
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

// Whether the ranks of a group differ in nothing that the rows are split by.
static bool same_tokens(const MeshView &mesh, Axes rows, const std::string &group) {
  rows.push_back(group);
  return mesh.independent(rows);
}

// No exchange brings tokens and experts together: said once, at the key of [moe] that asks for it.
static LogicalResult cannot(RoutedExpertsOp experts, StringRef key, const std::string &why,
                            const std::string &fix, StringRef code = "no-exchange") {
  auto module = experts->getParentOfType<ModuleOp>();
  auto sections = module.getOps<topo::MoeOp>();
  Location place = sections.empty() ? experts.getLoc() : topo::location_of(*sections.begin(), key);
  InFlightDiagnostic said = topo::error(place, code) << why;
  topo::set_fix(said, fix);
  return said;
}

LogicalResult exchange_experts(Exchange &exchange, RoutedExpertsOp op) {
  const MeshView &mesh = exchange.mesh;
  Sharding split = sharding_of(op.getW13());
  Experts experts{exchange,
                  op,
                  split.dims[0],
                  split.dims[2],
                  op.getX(),
                  op.getIdx(),
                  op.getWeights(),
                  {},
                  {},
                  sharding_of(op.getX()).dims[0]};
  if (experts.over.empty() && experts.width.empty()) // every expert is here, whole
    return success();
  bool both = !experts.over.empty() && !experts.width.empty();
  std::string group = both ? "experts" : experts.over.empty() ? experts.width.front() : experts.over.front();
  bool gather = *exchange.spec.moe.exchange == "all-gather" || experts.over.empty();
  if (both && gather && !mesh.has_axis("experts"))
    return cannot(
        op, "exchange",
        "experts are split over ep and moe_tp, and the layout has no group 'experts' of both to gather over",
        "add to [group]: experts = \"(edp ep moe_tp) -> edp (ep moe_tp)\"", "no-group");
  experts.find_shared();
  Operation *after = experts.add ? experts.add.getOperation() : op.getOperation();
  exchange.builder.setInsertionPoint(after);

  if (gather && experts.rows == mesh.outside(group)) { // the group's ranks hold the same tokens
    Value part = experts.local(experts.x, experts.idx, experts.weights, group);
    experts.finish(experts.with_shared(exchange.all_reduce(experts.where(), part, group)));
    return success();
  }
  ArrayAttr replicated;
  bool shared_out = false;
  if (!mesh.covers_world(experts.rows)) {
    Axes with_tp = experts.rows;
    with_tp.push_back("tp");
    if (mesh.size_of("tp") == 1 || !mesh.covers_world(with_tp)) {
      return cannot(
          op, "exchange",
          fmt::format("tokens are {}, which leaves ranks of '{}' with the same tokens: no exchange over it "
                      "keeps them apart",
                      to_string(sharding_of(experts.x)), group),
          "give the group a pattern whose members hold different tokens");
    }
    if (!gather && *exchange.spec.moe.tp_dispatch == "replicated") {
      replicated = exchange.builder.getStrArrayAttr({"tp"});
    } else {
      experts.take_share("tp");
      shared_out = true;
    }
  }
  Value y;
  if (gather)
    y = experts.with_shared(experts.gathered(group));
  else if (experts.width.empty())
    y = experts.two_stage(replicated);
  else if (replicated && !same_tokens(mesh, experts.rows, experts.width.front()))
    return cannot(
        op, "tp_dispatch",
        "with tp_dispatch replicated the ranks of 'moe_tp' must hold the same tokens, and they do not",
        "write tp_dispatch = \"split\"");
  else if (replicated) // moe_tp's ranks hold the same tokens: their parts are added where they are
    y = experts.with_shared(
        exchange.all_reduce(experts.where(), experts.two_stage(replicated), experts.width.front()));
  else
    y = experts.with_shared(experts.two_stage_between(experts.width.front()));
  if (shared_out) {
    Axes rows = experts.rows;
    rows.pop_back();
    y = exchange.all_gather(experts.where(), y, "tp", rows)[0];
  }
  experts.finish(y);
  return success();
}

} // namespace paratope::step
