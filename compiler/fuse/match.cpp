// SPDX-License-Identifier: Apache-2.0
//
// One function a fusion: from the op that names the place (a dispatch, a swiglu, …) to the others.
#include "compiler/fuse/match.h"

#include <algorithm>
#include <map>

#include "fmt/format.h"

#include "compiler/mesh/domain.h"
#include "compiler/step/shardings.h"

using namespace mlir;

namespace paratope {

using namespace step;

namespace {

constexpr int64_t tile = 128; // columns of a GEMM tile, and values of an fp8 scale block

bool taken(Operation *op) { return kernel_of(op).has_value(); }

int64_t columns(Value value, const MeshView &mesh) {
  return local_shape(cast<RankedTensorType>(value.getType()), mesh)[1];
}

AwaitOp await_of(Operation *collective) {
  for (Operation *user : collective->getResult(0).getUsers())
    if (auto await = dyn_cast<AwaitOp>(user))
      return await;
  return {};
}

Operation *only_user(Value value) { return value.hasOneUse() ? *value.user_begin() : nullptr; }

struct Match {
  const FusionContext &context;
  Site site;

  bool add(Operation *op, const char *what) {
    if (!op)
      return refuse(fmt::format("{} is not next", what));
    if (taken(op))
      return refuse(
          fmt::format("{} is in kernel {} already", what, op->getAttrOfType<StringAttr>("fusion").str()));
    site.parts.push_back(op);
    return true;
  }
  bool refuse(std::string why) {
    if (site.obstacle.empty())
      site.obstacle = std::move(why);
    return false;
  }
  bool tiles(Value value, const char *what) {
    int64_t width = columns(value, context.mesh);
    if (context.tiny || width % tile == 0)
      return true;
    return refuse(fmt::format("{} is {} wide, no multiple of {}", what, width, tile));
  }

  // The gate whose choice a dispatch sends, and what takes a share of it on the way.
  bool gate_before(DispatchOp dispatch) {
    GateOp gate;
    for (Value value : {dispatch.getIdx(), dispatch.getWeights()}) {
      Operation *op = value.getDefiningOp();
      if (auto slice = dyn_cast_or_null<SliceRowsOp>(op)) {
        if (!add(slice, "the share of the gate's choice"))
          return false;
        op = slice.getX().getDefiningOp();
      }
      if (isa_and_present<AwaitOp>(op))
        return refuse("the gate's choice is gathered before it is dispatched");
      gate = dyn_cast_or_null<GateOp>(op);
    }
    return add(gate, "the gate");
  }

  void gate_dispatch(DispatchOp dispatch) {
    if (gate_before(dispatch))
      add(dispatch, "dispatch");
  }

  void gemm_swiglu(SwigluOp swiglu) {
    Operation *gemm = swiglu.getH().getDefiningOp();
    if (!isa_and_present<GateUpOp, ExpertGateUpOp>(gemm) || !swiglu.getH().hasOneUse())
      return void(refuse("its input is no gate/up projection's alone"));
    if (add(gemm, "the gate/up projection") && add(swiglu, "swiglu"))
      tiles(swiglu.getA(), "the activation");
  }

  void gemm_combine(CombineOp combine) {
    const GroupLayout &group = context.mesh.groups.at(group_of(combine));
    int64_t domain = domain_gpus(context.spec.machine);
    if (!in_one_domain(group, domain))
      return void(refuse(fmt::format("the {} group of {} ranks spans scale-up domains of {} GPUs",
                                     group_of(combine), group.size, domain)));
    auto down = combine.getRows().getDefiningOp<ExpertDownOp>();
    if (add(down, "the down projection"))
      add(combine, "combine");
  }

  void mega_moe(DispatchOp dispatch) {
    std::string why = mega_moe_obstacle(context.spec, context.mesh, context.tiny);
    if (!why.empty())
      return void(refuse(why));
    AwaitOp arrived = await_of(dispatch);
    auto up = dyn_cast_or_null<ExpertGateUpOp>(only_user(arrived.getResult(0)));
    auto act = up ? dyn_cast_or_null<SwigluOp>(only_user(up.getH())) : SwigluOp();
    auto down = act ? dyn_cast_or_null<ExpertDownOp>(only_user(act.getA())) : ExpertDownOp();
    auto combine = down ? dyn_cast_or_null<CombineOp>(only_user(down.getOut())) : CombineOp();
    gate_before(dispatch) && add(dispatch, "dispatch") && add(arrived, "the rows' arrival") &&
        add(up, "the gate/up projection") && add(act, "swiglu") && add(down, "the down projection") &&
        add(combine, "combine");
  }

  // combine ─ (hyper-connections: hc_post ─ hc_pre) or the sum with the residual ─ rms_norm
  void combine_residual_norm(AwaitOp combined) {
    Operation *residual = only_user(combined.getResult(0));
    if (isa_and_present<AllGatherOp, AllReduceOp, ReduceScatterOp>(residual))
      return void(refuse(fmt::format("the combined rows go over {} first", group_of(residual))));
    if (!isa_and_present<HcPostOp, AddOp>(residual))
      return void(refuse("the residual is not next"));
    if (!add(combined, "the combined rows") || !add(residual, "the residual"))
      return;
    Operation *mixed = residual, *norm = nullptr;
    for (Operation *user : residual->getResult(0).getUsers())
      if (isa<EngramGateOp>(user))
        return void(refuse("an Engram layer reads the residual before the next norm"));
    if (isa<HcPostOp>(residual)) {
      mixed = nullptr;
      for (Operation *user : residual->getResult(0).getUsers())
        if (isa<HcPreOp, HcSumOp>(user))
          mixed = user;
      if (!mixed)
        return void(refuse("the streams' next mix is not next"));
      if (!add(mixed, "the streams' mix"))
        return;
    }
    for (Operation *user : mixed->getResult(0).getUsers())
      if (isa<RmsNormOp>(user))
        norm = user;
    add(norm, "the next rms_norm");
  }

  void rope_append(KvAppendOp append) {
    Operation *made_by = append.getKv().getDefiningOp();
    if (isa_and_present<MirrorRestoreOp>(made_by))
      return void(refuse(fmt::format("under cp = {} keys are gathered before they are appended",
                                     context.mesh.size_of("cp"))));
    auto concat = dyn_cast_or_null<HeadConcatOp>(made_by);
    auto rope = dyn_cast_or_null<RopeOp>(concat ? concat.getA().getDefiningOp() : made_by);
    if (!rope || !rope.getY().hasOneUse())
      return void(refuse("the keys are not rotated right before"));
    if (add(rope, "rope") && (!concat || add(concat, "the keys beside the values")))
      add(append, "kv_append");
  }

  void qkv(ArrayRef<LinearOp> projections) {
    if (context.mesh.size_of("cp") > 1)
      return void(
          refuse(fmt::format("under cp = {} the keys' gather is issued before the queries' projection",
                             context.mesh.size_of("cp"))));
    for (LinearOp linear : projections) {
      if (cast<RankedTensorType>(linear.getW().getType()).getElementType() !=
          cast<RankedTensorType>(projections.front()->getOperand(1).getType()).getElementType())
        return void(refuse("the projections' weights are of different types"));
      if (!tiles(linear.getY(), "a projection") || !add(linear, "a projection"))
        return;
    }
  }

  // The norm joins the kernel of its readers, or of its one reader, a GEMM.
  void norm_linear(RmsNormOp norm) {
    if (!add(norm, "the norm"))
      return;
    Operation *first = *norm.getY().user_begin();
    for (Operation *user : norm.getY().getUsers()) {
      if (!isa<LinearOp, LmHeadOp, GateUpOp>(user))
        return void(
            refuse(fmt::format("{} reads it, which is no GEMM", user->getName().stripDialect().str())));
      if (user != first && (!kernel_of(user) || kernel_of(user) != kernel_of(first)))
        return void(refuse("several GEMMs read it, each a kernel of its own"));
    }
    site.parts.push_back(first);
  }
};

// The linears of an attention input, by input, where there are several.
std::vector<SmallVector<LinearOp>> projections_of_one_input(ProgramOp program) {
  std::vector<std::pair<Value, SmallVector<LinearOp>>> inputs;
  for (LinearOp linear : program.getOps<LinearOp>()) {
    if (!StringRef(name_of(linear)).ends_with(".attn"))
      continue;
    auto found = llvm::find_if(inputs, [&](auto &entry) { return entry.first == linear.getX(); });
    if (found == inputs.end())
      inputs.push_back({linear.getX(), {linear}});
    else
      found->second.push_back(linear);
  }
  std::vector<SmallVector<LinearOp>> several;
  for (auto &[input, linears] : inputs)
    if (linears.size() > 1)
      several.push_back(linears);
  return several;
}

} // namespace

std::string mega_moe_obstacle(const TopologySpec &spec, const MeshView &mesh, bool tiny) {
  const std::string &weights = *spec.moe.expert_dtype, &rows = *spec.moe.dispatch_dtype;
  int64_t domain = domain_gpus(spec.machine), hidden = *spec.model.hidden, width = *spec.model.moe.width;
  const GroupLayout &ep = mesh.groups.at("ep");
  if (*spec.moe.exchange == "two-stage")
    return "exchange = \"two-stage\" asks for kernels of their own";
  if (!in_one_domain(ep, domain))
    return fmt::format("the ep group of {} ranks spans scale-up domains of {} GPUs", ep.size, domain);
  if (!((rows == "fp8" && (weights == "fp4" || weights == "fp8")) || (rows == "bf16" && weights == "bf16")))
    return fmt::format("experts are {} and dispatched rows {}, expected fp4 or fp8 × fp8, or bf16 × bf16",
                       weights, rows);
  if (mesh.size_of("moe_tp") > 1)
    return fmt::format("moe_tp = {} cuts experts, and one kernel computes them whole",
                       mesh.size_of("moe_tp"));
  if (!tiny && (hidden % tile != 0 || width % tile != 0))
    return fmt::format("hidden {} and expert width {} are not both multiples of {}", hidden, width, tile);
  return "";
}

std::vector<Site> sites(const std::string &name, ProgramOp program, const FusionContext &context) {
  std::vector<Site> found;
  auto at = [&](auto matcher, auto anchor) {
    Match match{context, {}};
    (match.*matcher)(anchor);
    std::sort(match.site.parts.begin(), match.site.parts.end(),
              [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    found.push_back(std::move(match.site));
  };
  auto each = [&](auto matcher, auto ops) {
    SmallVector<Operation *> anchors(ops.begin(), ops.end());
    using Anchor = std::decay_t<decltype(*ops.begin())>;
    for (Operation *op : anchors)
      at(matcher, cast<Anchor>(op));
  };
  if (name == "mega-moe")
    each(&Match::mega_moe, program.getOps<DispatchOp>());
  else if (name == "gate-dispatch")
    each(&Match::gate_dispatch, program.getOps<DispatchOp>());
  else if (name == "gemm-swiglu")
    each(&Match::gemm_swiglu, program.getOps<SwigluOp>());
  else if (name == "gemm-combine")
    each(&Match::gemm_combine, program.getOps<CombineOp>());
  else if (name == "combine-bias-residual-norm") {
    for (CombineOp combine : program.getOps<CombineOp>())
      at(&Match::combine_residual_norm, await_of(combine));
  } else if (name == "rope-append")
    each(&Match::rope_append, program.getOps<KvAppendOp>());
  else if (name == "qkv") {
    for (ArrayRef<LinearOp> projections : projections_of_one_input(program))
      at(&Match::qkv, projections);
  } else if (name == "norm-linear")
    each(&Match::norm_linear, program.getOps<RmsNormOp>());
  return found;
}

} // namespace paratope
