// SPDX-License-Identifier: Apache-2.0
//
// The table of shardings.h as code.
#include "compiler/step/shardings.h"

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace paratope::step {

using Axes = std::vector<std::string>;

bool Sharding::is_whole() const {
  return partial.empty() && llvm::all_of(dims, [](const Axes &axes) { return axes.empty(); });
}

static Axes names(ArrayRef<Attribute> attrs) {
  Axes axes;
  for (Attribute attr : attrs)
    axes.push_back(cast<StringAttr>(attr).str());
  return axes;
}

Sharding sharding_of(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  Sharding sharding;
  sharding.dims.resize(static_cast<size_t>(tensor.getRank()));
  if (auto shard = dyn_cast_or_null<topo::ShardAttr>(tensor.getEncoding())) {
    for (size_t dim = 0; dim < sharding.dims.size(); ++dim)
      sharding.dims[dim] = names(shard.axesOf(static_cast<int64_t>(dim)));
    sharding.partial = names(shard.getPartial().getValue());
  }
  return sharding;
}

Sharding sharding_of(Value value) { return sharding_of(value.getType()); }

RankedTensorType with_sharding(RankedTensorType type, const Sharding &sharding) {
  Builder builder(type.getContext());
  if (sharding.is_whole())
    return RankedTensorType::get(type.getShape(), type.getElementType());
  auto list = [&](const Axes &axes) {
    SmallVector<StringRef> refs(axes.begin(), axes.end());
    return builder.getStrArrayAttr(refs);
  };
  SmallVector<Attribute> dims;
  for (const Axes &axes : sharding.dims)
    dims.push_back(list(axes));
  return RankedTensorType::get(
      type.getShape(), type.getElementType(),
      topo::ShardAttr::get(type.getContext(), builder.getArrayAttr(dims), list(sharding.partial)));
}

std::string to_string(const Sharding &sharding) {
  if (sharding.is_whole())
    return "whole on every rank";
  std::string text = "[";
  for (size_t dim = 0; dim < sharding.dims.size(); ++dim)
    text += fmt::format("{}{{{}}}", dim ? ", " : "", fmt::join(sharding.dims[dim], ", "));
  text += "]";
  if (!sharding.partial.empty())
    text += fmt::format(", partial [{}]", fmt::join(sharding.partial, ", "));
  return text;
}

SmallVector<int64_t> local_shape(RankedTensorType type, const MeshView &mesh) {
  SmallVector<int64_t> shape(type.getShape());
  Sharding sharding = sharding_of(Type(type));
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (const std::string &axis : sharding.dims[dim])
      if (mesh.has_axis(axis))
        shape[dim] = (shape[dim] + mesh.axis(axis).size - 1) / mesh.axis(axis).size;
  return shape;
}

//===--- rules ------------------------------------------------------------------------------------------===//

namespace {

// How an op sees its tokens (dim 0), its columns (dim 1), and what it makes of them.
struct Rule {
  Axes in_columns;  // needed on dim 1 of its first operand
  Axes out_columns; // of its results
  Axes partial;     // of its results
};

Axes dim_axes(Value value, size_t dim) {
  Sharding sharding = sharding_of(value);
  return dim < sharding.dims.size() ? sharding.dims[dim] : Axes{};
}

bool is_weight(Value value) { return value.getDefiningOp<WeightOp>() != nullptr; }

// The first operand that carries tokens.
Value tokens_of(Operation *op) {
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()) && !is_weight(operand))
      return operand;
  return {};
}

// The group whose ranks together hold every expert whole: {} when each rank does.
Axes experts_group(Value w13) {
  Axes experts = dim_axes(w13, 0), width = dim_axes(w13, 2);
  if (!experts.empty() && !width.empty())
    return {"experts"};
  return experts.empty() ? width : experts;
}

Rule rule_of(Operation *op) {
  return llvm::TypeSwitch<Operation *, Rule>(op)
      .Case<LinearOp, LmHeadOp>([](auto linear) {
        return Rule{dim_axes(linear.getW(), 1), dim_axes(linear.getW(), 0), dim_axes(linear.getW(), 1)};
      })
      .Case<GateUpOp>([](GateUpOp up) { return Rule{{}, dim_axes(up.getW13(), 1), {}}; })
      .Case<RoutedExpertsOp>(
          [](RoutedExpertsOp experts) { return Rule{{}, {}, experts_group(experts.getW13())}; })
      .Case<ExpertGateUpOp>([](ExpertGateUpOp up) { return Rule{{}, dim_axes(up.getW13(), 2), {}}; })
      .Case<ExpertDownOp>([](ExpertDownOp down) {
        Axes width = dim_axes(down.getW2(), 2);
        return Rule{width, {}, width};
      })
      // Ops that work on each head, or output group, alone keep the heads where their weights are.
      .Case<HeadLinearOp>([](HeadLinearOp heads) {
        Axes columns = dim_axes(heads.getW(), 0);
        return Rule{columns, columns, {}};
      })
      .Case<AttentionOp>([](AttentionOp heads) {
        Axes columns = heads.getSink() ? dim_axes(heads.getSink(), 0) : dim_axes(heads.getQ(), 1);
        return Rule{columns, columns, {}};
      })
      .Case<RopeOp, HeadConcatOp, SwigluOp, KvAppendOp>([](Operation *each) {
        Axes columns = dim_axes(each->getOperand(0), 1);
        return Rule{columns, columns, {}};
      })
      .Case<OGroupProjOp>([](OGroupProjOp groups) {
        Axes columns = dim_axes(groups.getWoA(), 0);
        return Rule{columns, columns, {}};
      })
      .Default([](Operation *) { return Rule{}; });
}

// Tokens as the op must see them on dim 0.
Axes rows_needed(Operation *op, const MeshView &mesh) {
  if (isa<KvAppendOp, CompressAppendOp, MirrorPickOp, MirrorRestoreOp, LastTokenOp>(op))
    return mesh.engine_axes;
  if (auto experts = dyn_cast<RoutedExpertsOp>(op)) {
    Axes split = experts_group(experts.getW13());
    if (!split.empty())
      return mesh.outside(split.front());
  }
  if (isa<ExpertGateUpOp, ExpertDownOp>(op)) {
    Axes split = dim_axes(op->getOperand(2), 0);
    if (split.empty())
      return dim_axes(op->getOperand(0), 0);
    Axes rows = mesh.outside(split.front());
    rows.insert(rows.end(), split.begin(), split.end());
    return rows;
  }
  if (auto groups = dyn_cast<OGroupProjOp>(op)) {
    Axes split = dim_axes(groups.getWoA(), 0);
    if (!split.empty())
      return mesh.outside(split.front());
  }
  if (auto linear = dyn_cast<LinearOp>(op))
    if (dim_axes(linear.getX(), 1) != dim_axes(linear.getW(), 1))
      return mesh.token_axes;
  Value tokens = tokens_of(op);
  return tokens ? dim_axes(tokens, 0) : Axes{};
}

// The split of a weight that its op can work with: free where it decides the rule, bound to another weight's
// where the two belong together, whole in every other dim.
std::optional<Sharding> weight_needed(Operation *op, Value weight, int64_t rank) {
  Sharding need;
  need.dims.resize(static_cast<size_t>(rank));
  auto keep = [&](size_t dim, Value of, size_t of_dim) {
    if (dim < need.dims.size())
      need.dims[dim] = dim_axes(of, of_dim);
  };
  if (isa<LinearOp, LmHeadOp, FetchOp>(op))
    return std::nullopt;
  if (isa<GateUpOp>(op)) {
    keep(1, weight, 1); // the inner width
  } else if (auto experts = dyn_cast<RoutedExpertsOp>(op)) {
    keep(0, experts.getW13(), 0);
    keep(2, experts.getW13(), 2);
  } else if (isa<ExpertGateUpOp, ExpertDownOp>(op)) {
    keep(0, weight, 0);
    keep(2, weight, 2);
  } else if (isa<OGroupProjOp, HeadLinearOp, AttentionOp>(op)) {
    keep(0, weight, 0);
  }
  return need;
}

} // namespace

std::optional<Sharding> needed(Operation *op, unsigned idx, const MeshView &mesh) {
  Value operand = op->getOperand(idx);
  auto type = dyn_cast<RankedTensorType>(operand.getType());
  if (!type)
    return std::nullopt;
  if (is_weight(operand))
    return weight_needed(op, operand, type.getRank());
  if (isa<AwaitOp>(op))
    return std::nullopt;
  Sharding sharding;
  sharding.dims.resize(static_cast<size_t>(type.getRank()));
  if (!sharding.dims.empty())
    sharding.dims[0] = rows_needed(op, mesh);
  Rule rule = rule_of(op);
  bool heads = isa<RopeOp, AttentionOp, HeadLinearOp, HeadConcatOp, KvAppendOp>(op);
  bool columns = operand == op->getOperand(0) || (isa<HeadConcatOp>(op) && idx == 1);
  if (sharding.dims.size() > 1 && columns)
    sharding.dims[1] = rule.in_columns;
  if (heads && !columns && sharding.dims.size() > 1)
    sharding.dims[1] = {};
  return sharding;
}

Sharding result_sharding(Operation *op, unsigned idx, const MeshView &mesh) {
  auto type = cast<RankedTensorType>(op->getResult(idx).getType());
  Sharding sharding;
  sharding.dims.resize(static_cast<size_t>(type.getRank()));
  if (auto weight = dyn_cast<WeightOp>(op))
    return sharding_of(weight.getValue());
  if (isa<BatchOp>(op)) {
    sharding.dims[0] = mesh.engine_axes;
    return sharding;
  }
  Rule rule = rule_of(op);
  if (!sharding.dims.empty())
    sharding.dims[0] = rows_needed(op, mesh);
  if (auto slice = dyn_cast<SliceRowsOp>(op))
    sharding.dims[0].push_back(slice.getAxis().str());
  if (isa<MirrorPickOp>(op))
    sharding.dims[0] = mesh.token_axes;
  if (sharding.dims.size() > 1)
    sharding.dims[1] = rule.out_columns;
  sharding.partial = rule.partial;
  return sharding;
}

} // namespace paratope::step
