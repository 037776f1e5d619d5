// SPDX-License-Identifier: Apache-2.0
//
// Stage "fuse": the parts of each fusion become one kernel. Parts keep their ops and their order, so that
// results do not change; they are moved side by side and marked with the kernel they belong to.
//
//     before   gate ─ gate_up ─ swiglu ─ down ─ dispatch ─ await ─ …
//     after    [gate ─ dispatch] ─ [gate_up ─ swiglu] ─ down ─ await ─ …      two kernels, four parts
//
// A kernel stands where its first part stood: later parts, and what they need, come up to it. Ops between
// that need the kernel follow it. Where one is both needed and needs it, they are no kernel.
#include <map>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

#include "compiler/fuse/catalog.h"
#include "compiler/fuse/match.h"
#include "compiler/ledger/work.h"
#include "compiler/passes.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPFUSE
#include "Passes.h.inc"

using namespace step;

namespace {

std::optional<int64_t> cache_of(Operation *op) {
  if (!isa<KvAppendOp, CompressAppendOp, AttentionOp>(op))
    return {};
  return op->getAttrOfType<IntegerAttr>("layer").getInt();
}

// Whether `later` must stay behind `earlier`: it reads what that makes, a layer's cache after an append, or
// is the next collective, since all ranks issue them in one order.
bool depends(Operation *later, Operation *earlier) {
  for (Value operand : later->getOperands())
    if (operand.getDefiningOp() == earlier)
      return true;
  if (is_collective(later) && is_collective(earlier))
    return true;
  std::optional<int64_t> layer = cache_of(later);
  return layer && layer == cache_of(earlier) && !(isa<AttentionOp>(later) && isa<AttentionOp>(earlier));
}

// Ops from the first part to the last, other kernels as one unit each, and which way each can go.
class Span {
public:
  explicit Span(ArrayRef<Operation *> parts) : parts(parts.begin(), parts.end()) {
    for (Operation *op = parts.front();; op = op->getNextNode()) {
      bool part = llvm::is_contained(parts, op);
      std::optional<int64_t> kernel = part ? std::nullopt : kernel_of(op);
      if (kernel && !units.empty() && units.back().kernel == kernel)
        units.back().ops.push_back(op);
      else
        units.push_back({{op}, kernel, part});
      if (op == parts.back())
        break;
    }
  }

  // Brings the parts together; false, and nothing moved, where an op must stand between them. `early`: what
  // need not come before comes after.
  bool close(bool early) {
    for (size_t i = 1; i < units.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if ((units[j].part || units[j].after) && behind(units[i], units[j])) {
          if (units[i].part && units[j].after)
            return false;
          units[i].after |= !units[i].part;
        }
    for (size_t i = units.size(); i-- > 0;)
      for (size_t j = i + 1; j < units.size(); ++j)
        if ((units[j].part || units[j].before) && behind(units[j], units[i]))
          units[i].before |= !units[i].part;
    Operation *behind_all = parts.back();
    for (Unit &unit : units)
      for (Operation *op : unit.ops) {
        if (unit.part)
          continue;
        if (early ? unit.before : !unit.after) {
          op->moveBefore(parts.front());
        } else {
          op->moveAfter(behind_all);
          behind_all = op;
        }
      }
    return true;
  }

private:
  struct Unit {
    SmallVector<Operation *> ops;
    std::optional<int64_t> kernel;
    bool part = false, before = false, after = false;
  };

  static bool behind(const Unit &later, const Unit &earlier) {
    for (Operation *a : later.ops)
      for (Operation *b : earlier.ops)
        if (depends(a, b))
          return true;
    return false;
  }

  SmallVector<Operation *> parts;
  std::vector<Unit> units;
};

class Fuse : public impl::StepFuseBase<Fuse> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    FailureOr<MeshView> mesh = view_mesh(module);
    if (failed(mesh))
      return signalPassFailure();
    FusionContext context{*spec, *mesh, module->hasAttr("topo.notes")};
    for (ProgramOp program : module.getOps<ProgramOp>()) {
      for (Operation &op : program.getBody().front()) { // as a file may have them: decided anew
        op.removeAttr("kernel");
        op.removeAttr("fusion");
      }
      for (const Fusion &fusion : fusions())
        if (wanted(fusion.name, *spec))
          apply(fusion, program, context);
      number(program);
    }
    if (!good)
      return signalPassFailure();
    say_what_it_saves(*spec, *mesh);
  }

  static bool wanted(const std::string &name, const TopologySpec &spec) {
    const std::vector<std::string> &fuse = *spec.schedule.fuse;
    return fuse == std::vector<std::string>{"auto"} || llvm::is_contained(fuse, name);
  }

  Location place() {
    auto schedules = getOperation().getOps<topo::ScheduleOp>();
    return schedules.empty() ? getOperation().getLoc() : topo::location_of(*schedules.begin(), "fuse");
  }

  void apply(const Fusion &fusion, ProgramOp program, const FusionContext &context) {
    int64_t made = 0;
    std::map<std::string, int64_t> obstacles;
    for (Site &site : sites(fusion.name, program, context)) {
      if (site.obstacle.empty() && !join(site, fusion.name, *context.spec.schedule.overlap != "none"))
        site.obstacle = "an op that needs the first part is needed by the last";
      if (site.obstacle.empty())
        ++made;
      else
        ++obstacles[site.obstacle];
    }
    if (fusion.name == std::string("mega-moe") && *context.spec.moe.exchange == "fused" &&
        !obstacles.empty()) {
      topo::error(topo::location_of(*getOperation().getOps<topo::MoeOp>().begin(), "exchange"),
                  "fused-not-possible")
          << "the fused exchange is one kernel, and " << obstacles.begin()->first;
      good = false;
      return;
    }
    bool asked = *context.spec.schedule.fuse != std::vector<std::string>{"auto"};
    std::string reasons = obstacles.empty() && made == 0 ? "the step has nothing of the kind" : "";
    for (const auto &[why, times] : obstacles)
      reasons += fmt::format("{}{}{}", reasons.empty() ? "" : "; ", why,
                             obstacles.size() > 1 || made > 0 ? fmt::format(" ({} times)", times) : "");
    if (made == 0 && asked)
      topo::warning(place(), "unused-fusion") << "fusion " << fusion.name << " applies nowhere: " << reasons;
    else if (!reasons.empty())
      topo::remark(place(), "fusion-not-taken")
          << "fusion " << fusion.name << (made > 0 ? " is not everywhere: " : " is not taken: ") << reasons;
  }

  // One kernel of the parts; with one that a part is in already, of both.
  bool join(const Site &site, std::string name, bool early) {
    Builder builder(&getContext());
    llvm::SetVector<Operation *> parts(site.parts.begin(), site.parts.end());
    for (Operation *part : site.parts)
      if (std::optional<int64_t> kernel = kernel_of(part)) {
        name = part->getAttrOfType<StringAttr>("fusion").str() + "+" + name;
        for (Operation &op : *part->getBlock())
          if (kernel_of(&op) == kernel)
            parts.insert(&op);
      }
    SmallVector<Operation *> ordered = parts.takeVector();
    llvm::sort(ordered, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    if (!Span(ordered).close(early))
      return false;
    for (Operation *op : ordered) {
      op->setAttr("kernel", builder.getI64IntegerAttr(next_kernel));
      op->setAttr("fusion", builder.getStringAttr(name));
    }
    ++next_kernel;
    return true;
  }

  // Kernels in order of launch.
  void number(ProgramOp program) {
    Builder builder(&getContext());
    std::map<int64_t, int64_t> numbers;
    for (Operation &op : program.getBody().front())
      if (std::optional<int64_t> kernel = kernel_of(&op))
        op.setAttr("kernel",
                   builder.getI64IntegerAttr(
                       numbers.emplace(*kernel, static_cast<int64_t>(numbers.size())).first->second));
  }

  void say_what_it_saves(const TopologySpec &spec, const MeshView &mesh) {
    for (const FusionSaving &saving : work_of(getOperation(), spec, mesh).savings)
      topo::remark(place(), "fused") << "fusion " << saving.fusion << ": " << saving.kernels << " kernels, "
                                     << saving.launches << " launches and " << saving.bytes
                                     << " bytes of activations fewer a step";
  }

  int64_t next_kernel = 0;
  bool good = true;
};

} // namespace
} // namespace paratope
