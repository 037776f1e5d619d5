// SPDX-License-Identifier: Apache-2.0
#include "compiler/step/builder.h"

#include "dsl/topo/location.h"

using namespace mlir;

namespace paratope::step {

template <class Op> static Operation *first(ModuleOp module) {
  auto ops = module.getOps<Op>();
  return ops.empty() ? module.getOperation() : (*ops.begin()).getOperation();
}

StepBuilder::StepBuilder(ModuleOp module, const TopologySpec &topology, const MeshView &mesh_view)
    : spec(topology), mesh(mesh_view), builder(module.getContext()), where(module.getLoc()) {
  topo::SizesOp sizes = *module.getOps<topo::SizesOp>().begin();
  auto engines = static_cast<int64_t>(sizes.getEngines());
  flat_tokens = engines * static_cast<int64_t>(sizes.getTokens());
  mirrored = sizes.getMirror().has_value();
  tokens = mirrored ? engines * mesh.size_of("cp") * static_cast<int64_t>(*sizes.getMirror()) : flat_tokens;
  sequences = sizes.getSequences() ? engines * static_cast<int64_t>(*sizes.getSequences()) : flat_tokens;
  attention_op = first<topo::AttentionOp>(module);
  o_exchange = choose_o_exchange(spec, mesh);
  model_op = first<topo::ModelOp>(module);
  moe_op = first<topo::MoeOp>(module);
  mesh_op = first<topo::MeshOp>(module);
  workload_op = first<topo::WorkloadOp>(module);
}

void StepBuilder::at(const std::string &name, Operation *section, StringRef key) {
  where = NameLoc::get(builder.getStringAttr(name), topo::location_of(section, key));
}

std::vector<SplitDim> StepBuilder::split(const std::string &group, int64_t dim) const {
  if (mesh.size_of(group) == 1)
    return {};
  return {{dim, group}};
}

static Type element_type(Builder &builder, const std::string &dtype) {
  if (dtype == "fp8")
    return Float8E4M3FNType::get(builder.getContext());
  if (dtype == "fp4")
    return Float4E2M1FNType::get(builder.getContext());
  return dtype == "f32" ? Type(builder.getF32Type()) : Type(builder.getBF16Type());
}

Value StepBuilder::weight(const std::string &name, ArrayRef<int64_t> shape, const std::string &dtype,
                          const std::string &init, int64_t fan_in, const std::string &part,
                          const std::vector<SplitDim> &splits, bool slots) {
  Sharding sharding;
  sharding.dims.resize(shape.size());
  for (const SplitDim &one : splits)
    sharding.dims[static_cast<size_t>(one.dim)].push_back(one.axis);
  RankedTensorType type = with_sharding(RankedTensorType::get(shape, element_type(builder, dtype)), sharding);
  Location named = NameLoc::get(builder.getStringAttr(name), where);
  return WeightOp::create(builder, named, type, builder.getStringAttr(name), builder.getStringAttr(init),
                          builder.getI64IntegerAttr(fan_in), slots ? builder.getUnitAttr() : UnitAttr(),
                          builder.getStringAttr(part));
}

void StepBuilder::type_results(Operation *op) {
  for (OpResult result : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      result.setType(with_sharding(type, result_sharding(op, result.getResultNumber(), mesh)));
}

Value StepBuilder::feed_forward(Value x, Value w13, Value w2, double limit) {
  int64_t width = cast<RankedTensorType>(w13.getType()).getDimSize(1);
  Value h = make<GateUpOp>({rows(2 * width)}, x, w13).getH();
  Value a = make<SwigluOp>({rows(width)}, h, builder.getF64FloatAttr(limit)).getA();
  return linear(a, w2);
}

Value StepBuilder::restored(Value x) {
  if (!mirrored)
    return x;
  auto type = cast<RankedTensorType>(x.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = flat_tokens;
  return make<MirrorRestoreOp>({RankedTensorType::get(shape, type.getElementType())}, x,
                               builder.getStringAttr("cp"))
      .getFlat();
}

Value StepBuilder::linear(Value x, Value w) {
  int64_t out = cast<RankedTensorType>(w.getType()).getDimSize(0);
  return make<LinearOp>({rows(out)}, x, w).getY();
}

Value StepBuilder::rms_norm(Value x, const std::string &gain_name, int64_t dims, const std::string &part) {
  int64_t columns = cast<RankedTensorType>(x.getType()).getDimSize(1);
  Value gain = weight(gain_name, {dims}, "f32", "gain", 1, part);
  IntegerAttr only = dims == columns ? IntegerAttr() : builder.getI64IntegerAttr(dims);
  return make<RmsNormOp>({rows(columns)}, x, gain, builder.getF64FloatAttr(*spec.model.rms_eps), only).getY();
}

} // namespace paratope::step
