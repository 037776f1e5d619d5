// SPDX-License-Identifier: Apache-2.0
#include "compiler/ledger/work.h"

#include <algorithm>

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/memory/place.h"
#include "compiler/step/shardings.h"

using namespace mlir;

namespace paratope {

using namespace step;

double StepWork::total_flops() const {
  double total = 0;
  for (const auto &[part, count] : flops)
    total += count;
  return total;
}

double keys_seen(int64_t history, int64_t n, int64_t window, int64_t ratio) {
  double h = static_cast<double>(history), all = static_cast<double>(n);
  // Tokens whose whole past lies in the window come first; the others see `window` keys each.
  double growing = window == 0 ? all : static_cast<double>(std::clamp<int64_t>(window - history, 0, n));
  double keys = growing * h + growing * (growing + 1) / 2 + (all - growing) * static_cast<double>(window);
  if (ratio > 0) {
    auto blocks_before = [&](int64_t x) { // Σ of ⌊u / ratio⌋ for u = 1 … x
      double whole = static_cast<double>(x / ratio), rest = static_cast<double>(x % ratio);
      return static_cast<double>(ratio) * whole * (whole - 1) / 2 + whole * (rest + 1);
    };
    keys += blocks_before(history + n) - blocks_before(history);
  }
  return keys;
}

namespace {

bool is_weight(Value value) { return value.getDefiningOp<WeightOp>() != nullptr; }

// The dispatch that the rows of a value came with; null for rows that are tokens.
DispatchOp dispatch_of(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && isa<ExpertGateUpOp, ExpertDownOp, SwigluOp>(op))
    op = op->getOperand(0).getDefiningOp();
  auto await = dyn_cast_or_null<AwaitOp>(op);
  return await ? await.getPending().getDefiningOp<DispatchOp>() : DispatchOp();
}

struct Reader {
  const TopologySpec &spec;
  const MeshView &mesh;
  int64_t tokens; // of an engine, at most

  int64_t rows(Value value) const {
    if (DispatchOp dispatch = dispatch_of(value))
      return local_shape(cast<RankedTensorType>(dispatch.getX().getType()), mesh)[0] *
             static_cast<int64_t>(dispatch.getTopK());
    return local_shape(cast<RankedTensorType>(value.getType()), mesh)[0];
  }

  int64_t bytes(Value value) const {
    auto type = cast<RankedTensorType>(value.getType());
    int64_t total = rows(value) * device_element_bytes(type.getElementType());
    SmallVector<int64_t> shape = local_shape(type, mesh);
    for (size_t dim = 1; dim < shape.size(); ++dim)
      total *= shape[dim];
    return total;
  }

  // What an op writes: for a collective, what its await hands out.
  static SmallVector<Value> written(Operation *op) {
    SmallVector<Value> values;
    if (isa<AwaitOp, WeightOp>(op))
      return values;
    if (is_collective(op)) {
      for (Operation *user : op->getResult(0).getUsers())
        if (isa<AwaitOp>(user))
          values.append(user->result_begin(), user->result_end());
      return values;
    }
    values.append(op->result_begin(), op->result_end());
    return values;
  }

  // Reads and writes of ops that run as one kernel; of one op, its own.
  int64_t traffic(ArrayRef<Operation *> parts) const {
    llvm::SetVector<Value> reads, writes, made;
    for (Operation *op : parts) {
      for (Value value : op->getOperands())
        if (isa<RankedTensorType>(value.getType()) && !is_weight(value) && !made.contains(value))
          reads.insert(value);
      for (Value value : written(op))
        if (parts.size() == 1 || is_collective(op) || !is_internal(value))
          writes.insert(value);
      if (!is_collective(op) && !isa<AwaitOp>(op)) // what a collective delivers is read from memory
        made.insert(op->result_begin(), op->result_end());
    }
    int64_t total = 0;
    for (Value value : reads)
      total += bytes(value);
    for (Value value : writes)
      total += bytes(value);
    return total;
  }

  static bool launches(Operation *op) { return !isa<WeightOp, AwaitOp, ResultOp, BatchOp, VoteOp>(op); }

  void count(ArrayRef<Operation *> parts, StepWork &work) const {
    int64_t single = 0, alone = 0;
    for (Operation *op : parts) {
      alone += launches(op);
      single += launches(op) ? traffic({op}) : 0;
    }
    bool kernel = parts.size() > 1;
    int64_t together = kernel ? traffic(parts) : single;
    work.launches_unfused += alone;
    work.launches += kernel ? 1 : alone;
    work.bytes_unfused += single;
    work.bytes += together;
    if (!kernel)
      return;
    std::string fusion = parts.front()->getAttrOfType<StringAttr>("fusion").str();
    auto found = llvm::find_if(work.savings, [&](const FusionSaving &s) { return s.fusion == fusion; });
    if (found == work.savings.end())
      found = work.savings.insert(found, FusionSaving{fusion});
    ++found->kernels;
    found->launches += alone - 1;
    found->bytes += single - together;
  }

  // Multiply-adds of an op with a weight: each row against the part of the weight that a rank holds, of
  // experts against one of them.
  void flops(Operation *op, StepWork &work) const {
    auto add = [&](const std::string &part, double count) {
      auto found = llvm::find_if(work.flops, [&](const auto &entry) { return entry.first == part; });
      if (found == work.flops.end())
        work.flops.emplace_back(part, count);
      else
        found->second += count;
    };
    if (auto attention = dyn_cast<AttentionOp>(op))
      add("attention scores", attention_flops(attention));
    if (isa<EmbedOp, FetchOp, RmsNormOp>(op))
      return;
    for (Value operand : op->getOperands()) {
      auto weight = operand.getDefiningOp<WeightOp>();
      if (!weight)
        continue;
      SmallVector<int64_t> shape = local_shape(cast<RankedTensorType>(weight.getValue().getType()), mesh);
      if (shape.size() < 2)
        continue;
      double row_count = static_cast<double>(rows(op->getOperand(0))), each = 1;
      for (size_t dim = weight.getSlots() ? 1 : 0; dim < shape.size(); ++dim)
        each *= static_cast<double>(shape[dim]);
      if (auto local = dyn_cast<RoutedExpertsOp>(op)) { // of gathered tokens, those for the experts here
        row_count *= static_cast<double>(*spec.model.moe.top_k);
        const Sharding experts = sharding_of(local.getW13());
        for (const std::string &axis : experts.dims[0])
          row_count /= static_cast<double>(mesh.axis(axis).size);
      }
      bool output = weight.getName().contains(".attn.wo");
      add(output              ? "attention output"
          : isa<LmHeadOp>(op) ? "lm_head"
                              : weight.getPart().str(),
          2 * row_count * each);
    }
  }

  double attention_flops(AttentionOp op) const {
    double heads = static_cast<double>(op.getHeads());
    const Sharding query = sharding_of(op.getQ());
    for (const std::string &axis : query.dims[1])
      heads /= static_cast<double>(mesh.axis(axis).size);
    double width = static_cast<double>(op.getHeadDim() + op.getVDim());
    return 2 * heads * width *
           keys(static_cast<int64_t>(op.getWindow()), static_cast<int64_t>(op.getRatio()));
  }

  // Of all queries of a rank: its engine's, shared among the ranks of cp.
  double keys(int64_t window, int64_t ratio) const {
    const WorkloadSpec &workload = spec.workload;
    if (*workload.phase == "decode")
      return static_cast<double>(tokens) * keys_seen(*workload.context, 1, window, ratio);
    double most = 0;
    for (const std::vector<int64_t> &prompts : *workload.prompt_lengths) {
      double sum = 0;
      for (size_t i = 0; i < prompts.size(); ++i)
        sum += keys_seen(workload.history_lengths->empty()
                             ? 0
                             : (*workload.history_lengths)[i % workload.history_lengths->size()],
                         prompts[i], window, ratio);
      most = std::max(most, sum);
    }
    return most / static_cast<double>(mesh.size_of("cp"));
  }
};

} // namespace

StepWork work_of(ModuleOp module, const TopologySpec &spec, const MeshView &mesh) {
  StepWork work;
  Reader reader{spec, mesh, static_cast<int64_t>((*module.getOps<topo::SizesOp>().begin()).getTokens())};
  for (ProgramOp program : module.getOps<ProgramOp>()) {
    SmallVector<Operation *> parts;
    auto flush = [&] {
      if (!parts.empty())
        reader.count(parts, work);
      parts.clear();
    };
    for (Operation &op : program.getBody().front()) {
      reader.flops(&op, work);
      if (isa<WeightOp>(op))
        continue;
      if (!parts.empty() && (!kernel_of(&op) || kernel_of(&op) != kernel_of(parts.front())))
        flush();
      parts.push_back(&op);
      if (!kernel_of(&op))
        flush();
    }
    flush();
  }
  return work;
}

} // namespace paratope
