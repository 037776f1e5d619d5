// SPDX-License-Identifier: Apache-2.0
//
// Stage "check", shardings: a proof that no op sees a value split, whole or partial in a way it does not
// expect, for programs the compiler built and for those edited by hand. Compute ops by the rules of
// step/shardings.h; each collective by what it does to a sharding.
#include "fmt/format.h"
#include "fmt/ranges.h"

#include "compiler/passes.h"
#include "compiler/step/shardings.h"
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPCHECKSHARDINGS
#include "Passes.h.inc"

using namespace step;

namespace {

using Axes = std::vector<std::string>;

class CheckShardings : public impl::StepCheckShardingsBase<CheckShardings> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<MeshView> view = view_mesh(module);
    if (failed(view))
      return signalPassFailure();
    bool good = true;
    for (ProgramOp program : module.getOps<ProgramOp>())
      for (Operation &op : program.getBody().front()) {
        bool fine = known_axes(&op, *view) && shapes(&op) &&
                    (is_collective(&op) ? collective(&op, *view) : compute(&op, *view));
        good = fine && good;
      }
    if (!good)
      signalPassFailure();
  }

  static std::string label(Operation *op) {
    std::string kind = op->getName().getStringRef().str(), at = name_of(op);
    return at.empty() ? kind : fmt::format("{} at {}", kind, at);
  }

  static bool wrong(Operation *op, Value value, const std::string &what, const Sharding &has,
                    const std::string &need) {
    InFlightDiagnostic reported = topo::error(op->getLoc(), "wrong-sharding")
                                  << label(op) << ": " << what << " is " << to_string(has) << ", expected "
                                  << need;
    if (Operation *def = value.getDefiningOp())
      reported.attachNote(def->getLoc()) << "made by " << label(def);
    return false;
  }

  static bool known_axes(Operation *op, const MeshView &view) {
    for (Value result : op->getResults())
      if (isa<RankedTensorType>(result.getType())) {
        Sharding sharding = sharding_of(result);
        sharding.dims.push_back(sharding.partial);
        for (const Axes &axes : sharding.dims)
          for (const std::string &axis : axes)
            if (!view.has_axis(axis)) {
              topo::error(op->getLoc(), "unknown-axis")
                  << label(op) << ": its result is split over '" << axis << "', which is no axis of the mesh";
              return false;
            }
      }
    return true;
  }

  // Sizes that a rule relies on: static, and equal where two operands meet.
  static bool shapes(Operation *op) {
    auto bad = [&](const std::string &message) {
      topo::error(op->getLoc(), "wrong-shape") << label(op) << ": " << message;
      return false;
    };
    for (Type type : op->getResultTypes()) {
      SmallVector<Type> types = {type};
      if (auto pending = dyn_cast<PendingType>(type))
        types.assign(pending.getTypes().begin(), pending.getTypes().end());
      for (Type one : types)
        if (auto tensor = dyn_cast<RankedTensorType>(one);
            tensor &&
            (tensor.getRank() == 0 || llvm::any_of(tensor.getShape(), [](int64_t dim) { return dim < 1; })))
          return bad("its result has no static shape of positive sizes");
    }
    auto dim = [](Value value, int64_t idx) {
      auto type = cast<RankedTensorType>(value.getType());
      return idx < type.getRank() ? type.getDimSize(idx) : int64_t{-1};
    };
    auto agree = [&](const char *what, int64_t got, int64_t expected) {
      return got == expected || bad(fmt::format("{} is {}, expected {}", what, got, expected));
    };
    auto linear = [&](Value x, Value w, Value y) {
      return agree("the width of its input", dim(x, 1), dim(w, 1)) &&
             agree("the width of its result", dim(y, 1), dim(w, 0)) &&
             agree("the rows of its result", dim(y, 0), dim(x, 0));
    };
    if (auto one = dyn_cast<LinearOp>(op))
      return linear(one.getX(), one.getW(), one.getY());
    if (auto one = dyn_cast<LmHeadOp>(op))
      return linear(one.getX(), one.getW(), one.getLogits());
    if (auto norm = dyn_cast<RmsNormOp>(op))
      return agree("the length of its gain", dim(norm.getGain(), 0),
                   norm.getDims() ? static_cast<int64_t>(*norm.getDims()) : dim(norm.getX(), 1));
    if (auto up = dyn_cast<GateUpOp>(op))
      return agree("the width of its input", dim(up.getX(), 1), dim(up.getW13(), 2)) &&
             agree("the width of its result", dim(up.getH(), 1), 2 * dim(up.getW13(), 1));
    if (auto act = dyn_cast<SwigluOp>(op))
      return agree("the width of its input", dim(act.getH(), 1), 2 * dim(act.getA(), 1));
    if (auto up = dyn_cast<ExpertGateUpOp>(op))
      return agree("the width of its input", dim(up.getRows(), 1), dim(up.getW13(), 3)) &&
             agree("the width of its result", dim(up.getH(), 1), 2 * dim(up.getW13(), 2));
    if (auto down = dyn_cast<ExpertDownOp>(op))
      return agree("the width of its input", dim(down.getA(), 1), dim(down.getW2(), 2)) &&
             agree("the width of its result", dim(down.getOut(), 1), dim(down.getW2(), 1));
    if (auto attention = dyn_cast<AttentionOp>(op))
      return agree("the width of its query", dim(attention.getQ(), 1),
                   static_cast<int64_t>(attention.getHeads() * attention.getHeadDim()));
    if (auto rope = dyn_cast<RopeOp>(op))
      return agree("the width of its input", dim(rope.getX(), 1),
                   static_cast<int64_t>(rope.getHeads() * rope.getHeadDim()));
    if (auto gate = dyn_cast<GateOp>(op))
      return agree("the number of biases", dim(gate.getBias(), 0), dim(gate.getWg(), 0)) &&
             (static_cast<int64_t>(gate.getTopK()) <= dim(gate.getWg(), 0) ||
              bad(fmt::format("top_k is {}, expected at most {} experts",
                              static_cast<int64_t>(gate.getTopK()), dim(gate.getWg(), 0))));
    return true;
  }

  static bool compute(Operation *op, const MeshView &view) {
    if (isa<AwaitOp, WeightOp>(op))
      return true;
    if (isa<ResultOp>(op)) {
      for (Value value : op->getOperands())
        if (!sharding_of(value).partial.empty())
          return wrong(op, value, "what the step gives", sharding_of(value),
                       "a value that is no partial sum");
      return true;
    }
    if (auto slice = dyn_cast<SliceRowsOp>(op)) {
      Axes rows = sharding_of(slice.getY()).dims[0];
      if (!view.independent(rows))
        return wrong(op, slice.getX(), "what it slices", sharding_of(slice.getX()),
                     fmt::format("rows that axis '{}' does not split already", slice.getAxis().str()));
    }
    for (auto [idx, operand] : llvm::enumerate(op->getOperands())) {
      std::optional<Sharding> need = needed(op, static_cast<unsigned>(idx), view);
      if (need && sharding_of(operand) != *need)
        return wrong(op, operand, fmt::format("operand {}", idx), sharding_of(operand), to_string(*need));
    }
    for (OpResult result : op->getResults()) {
      Sharding gives = result_sharding(op, result.getResultNumber(), view);
      if (sharding_of(result) != gives)
        return wrong(op, result, fmt::format("result {}", result.getResultNumber()), sharding_of(result),
                     to_string(gives));
    }
    return true;
  }

  static bool collective(Operation *op, const MeshView &view) {
    std::string group = group_of(op);
    if (!view.groups.count(group)) {
      topo::error(op->getLoc(), "unknown-group") << label(op) << ": there is no group '" << group << "'";
      return false;
    }
    if (!awaited_once(op))
      return false;
    auto result = [&](size_t idx) {
      return sharding_of(cast<PendingType>(op->getResult(0).getType()).getTypes()[idx]);
    };
    Axes outside = view.outside(group);
    if (auto reduce = dyn_cast<AllReduceOp>(op)) {
      Sharding has = sharding_of(reduce.getX()), summed = has;
      summed.partial.clear();
      if (has.partial != Axes{group})
        return wrong(op, reduce.getX(), "its operand", has, fmt::format("a partial sum over [{}]", group));
      return result(0) == summed || wrong(op, op->getResult(0), "its result", result(0), to_string(summed));
    }
    if (auto scatter = dyn_cast<ReduceScatterOp>(op)) {
      Sharding has = sharding_of(scatter.getX());
      if (has.partial != Axes{group} || has.dims[0] != outside)
        return wrong(op, scatter.getX(), "its operand", has,
                     fmt::format("[{{{}}}, {{}}], partial [{}]", fmt::join(outside, ", "), group));
      return (result(0).partial.empty() && view.covers_world(result(0).dims[0])) ||
             wrong(op, op->getResult(0), "its result", result(0), "rows that differ on every rank");
    }
    if (auto gather = dyn_cast<AllGatherOp>(op)) {
      for (auto [idx, x] : llvm::enumerate(gather.getXs())) {
        Sharding has = sharding_of(x), gives = result(idx);
        bool last = !has.dims[0].empty() && has.dims[0].back() == group &&
                    Axes(has.dims[0].begin(), has.dims[0].end() - 1) == gives.dims[0];
        bool all = view.covers_world(has.dims[0]) && gives.dims[0] == outside;
        Sharding whole = has;
        whole.dims[0] = gives.dims[0];
        if (has.partial.empty() && (last || all) && gives != whole)
          return wrong(op, op->getResult(0), fmt::format("result {}", idx), gives, to_string(whole));
        if (!has.partial.empty() || !(last || all))
          return wrong(op, x, fmt::format("operand {}", idx), has, fmt::format("rows split over {}", group));
      }
      return true;
    }
    if (auto dispatch = dyn_cast<DispatchOp>(op)) {
      Sharding has = sharding_of(dispatch.getX());
      Axes rows = has.dims[0];
      if (std::optional<ArrayAttr> replicated = dispatch.getReplicated())
        for (Attribute axis : *replicated)
          rows.push_back(cast<StringAttr>(axis).str());
      if (!has.partial.empty() || !has.dims[1].empty() || !view.covers_world(rows))
        return wrong(op, dispatch.getX(), "what it sends", has,
                     fmt::format("whole rows, split over all {} ranks (tokens that several ranks of '{}' "
                                 "hold would arrive more than once)",
                                 view.world, group));
      if (cast<RankedTensorType>(dispatch.getIdx().getType()).getDimSize(1) !=
          static_cast<int64_t>(dispatch.getTopK())) {
        topo::error(op->getLoc(), "wrong-shape")
            << label(op) << ": top_k is " << static_cast<int64_t>(dispatch.getTopK()) << ", its routing has "
            << cast<RankedTensorType>(dispatch.getIdx().getType()).getDimSize(1) << " choices a token";
        return false;
      }
      for (Value other : {dispatch.getIdx(), dispatch.getWeights()})
        if (sharding_of(other) != has)
          return wrong(op, other, "its routing", sharding_of(other), to_string(has));
      Axes by_expert = outside;
      by_expert.push_back(group);
      Sharding rows_by_expert{{by_expert, {}}, {}};
      for (size_t idx = 0; idx < 2; ++idx)
        if (result(idx) != rows_by_expert)
          return wrong(op, op->getResult(0), fmt::format("result {}", idx), result(idx),
                       to_string(rows_by_expert));
      return true;
    }
    if (auto combine = dyn_cast<CombineOp>(op)) {
      Axes by_expert = outside;
      by_expert.push_back(group);
      Sharding has = sharding_of(combine.getRows());
      if (has.dims[0] != by_expert || !has.dims[1].empty())
        return wrong(op, combine.getRows(), "its operand", has, fmt::format("rows by expert over {}", group));
      auto arrived = combine.getTable().getDefiningOp<AwaitOp>();
      auto sent = arrived ? arrived.getPending().getDefiningOp<DispatchOp>() : DispatchOp();
      if (!sent) {
        topo::error(op->getLoc(), "no-dispatch") << label(op) << ": its table does not come from a dispatch";
        return false;
      }
      Sharding back = sharding_of(sent.getX());
      back.partial = has.partial; // sums pass through: what moe_tp leaves partial stays so
      if (result(0) != back)
        return wrong(op, op->getResult(0), "its result", result(0),
                     to_string(back) + ", as the dispatch sent it");
      if (combine.getShared() && (sharding_of(combine.getShared()) != back || !back.partial.empty()))
        return wrong(op, combine.getShared(), "the shared expert's output", sharding_of(combine.getShared()),
                     back.partial.empty() ? to_string(back) : "none: the combined rows are a partial sum");
      return true;
    }
    if (auto exchange = dyn_cast<AllToAllOp>(op)) {
      Sharding has = sharding_of(exchange.getX()), gives = result(0);
      bool to_columns = exchange.getSplit() == "columns";
      const Sharding &rows = to_columns ? has : gives, &columns = to_columns ? gives : has;
      const Sharding by_columns{{outside, {group}}, {}};
      if (columns != by_columns)
        return wrong(op, exchange.getX(), to_columns ? "its result" : "its operand", columns,
                     to_string(by_columns));
      if (!rows.partial.empty() || !rows.dims[1].empty() || !view.covers_world(rows.dims[0]))
        return wrong(op, exchange.getX(), to_columns ? "its operand" : "its result", rows,
                     "whole rows that differ on every rank");
      auto before = exchange.getGather() ? exchange.getGather().getDefiningOp<AllToAllOp>() : AllToAllOp();
      if (to_columns != !exchange.getGather() ||
          (!to_columns && (!before || before.getSplit() != "columns" || group_of(before) != group))) {
        topo::error(op->getLoc(), "no-gather")
            << label(op) << ": the way back to rows names the all_to_all to columns, over " << group
            << ", whose row counts it undoes";
        return false;
      }
      return true;
    }
    if (auto fetch = dyn_cast<FetchOp>(op)) {
      Sharding has = sharding_of(fetch.getRows()), table = sharding_of(fetch.getTable());
      bool cut = view.size_of(group) == 1 ? table.is_whole() : table.dims[0] == Axes{group};
      if (!cut)
        return wrong(op, fetch.getTable(), "its table", table, fmt::format("rows split over {}", group));
      return result(0) == has || wrong(op, op->getResult(0), "its result", result(0), to_string(has));
    }
    return true;
  }

  static bool awaited_once(Operation *op) {
    int64_t awaits = 0;
    for (Operation *user : op->getResult(0).getUsers())
      awaits += isa<AwaitOp>(user);
    if (awaits == 1)
      return true;
    topo::error(op->getLoc(), "not-awaited")
        << label(op) << " is awaited " << awaits << " times, expected once";
    return false;
  }
};

} // namespace
} // namespace paratope
