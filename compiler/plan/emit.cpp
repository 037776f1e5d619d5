// SPDX-License-Identifier: Apache-2.0
//
// One instruction an op. Operands that come from step.weight are weights, all others buffers; an op's
// attributes are the instruction's numbers and words, as far as the instruction set knows them. Counts of
// heads are the rank's own.
#include "compiler/plan/emit.h"

#include "fmt/format.h"

#include "compiler/ledger/ledger.h"
#include "compiler/memory/bill.h"
#include "compiler/memory/place.h"
#include "compiler/step/shardings.h"
#include "dsl/spec/check.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"
#include "runtime/plan/check.h"
#include "runtime/plan/instruction_set.h"

using namespace mlir;

namespace paratope {

using namespace step;

namespace {

plan::DigitSum closed_form(const DigitSum &sum) {
  plan::DigitSum digits;
  for (const Digit &digit : sum.digits)
    digits.digits.push_back({digit.div, digit.mod, digit.mul});
  digits.table = sum.table;
  return digits;
}

class Emitter {
public:
  Emitter(ModuleOp module, const TopologySpec &spec, const MeshView &mesh)
      : module(module), spec(spec), mesh(mesh) {}

  LogicalResult emit(plan::Plan &out) {
    plan = &out;
    sizes = *module.getOps<topo::SizesOp>().begin();
    auto programs = module.getOps<ProgramOp>();
    if (programs.empty() || ++programs.begin() != programs.end())
      return topo::error(module.getLoc(), "no-program") << "a plan is made of one step.program";
    program = *programs.begin();
    whole();
    communicators();
    for (Operation &op : program.getBody().front())
      if (failed(one(op)))
        return failure();
    streams_wait();
    load();
    ledger();
    return success();
  }

private:
  void whole() {
    plan->tool = "paratope";
    plan->tool_version = PARATOPE_VERSION;
    plan->topology = *spec.name;
    plan->world = mesh.world;
    for (topo::MeshOp op : module.getOps<topo::MeshOp>())
      for (auto [name, size] : llvm::zip(op.getAxisNames(), op.getAxisSizes()))
        plan->sizes[cast<StringAttr>(name).str()] = cast<IntegerAttr>(size).getInt();
    for (const ShardAxis &axis : mesh.axes)
      plan->axes.push_back({axis.name, axis.size, closed_form(axis.block)});
    if (!mesh.has_axis("ep"))
      plan->axes.push_back({"ep", 1, {}});
    if (mesh.engine_axes.empty())
      plan->axes.push_back({"engine", 1, {}});
    plan->engine_axis = mesh.engine_axes.empty() ? "engine" : mesh.engine_axes.front();
    model();
    int64_t engine_ranks = mesh.world / static_cast<int64_t>(sizes.getEngines());
    plan->workload.phase = *spec.workload.phase;
    if (plan->workload.phase == "prefill") {
      plan->workload.engine_prompts = *spec.workload.prompt_lengths;
      plan->workload.history = *spec.workload.history_lengths;
    } else {
      for (int64_t tokens : *spec.workload.tokens_per_rank)
        plan->workload.engine_tokens.push_back(tokens * engine_ranks);
      plan->workload.context = *spec.workload.context;
    }
    plan->serving_ranks = sizes.getServing() ? static_cast<int64_t>(*sizes.getServing()) : 0;
    const RoutingSpec &routing = spec.workload.routing;
    plan->workload.routing = {*routing.kind,   *routing.s,    *routing.alpha,
                              *routing.expert, *routing.seed, placed_path(routing.file.where, *routing.file)};
    plan->experts = {static_cast<int64_t>(sizes.getLogical()),
                     static_cast<int64_t>(sizes.getPhysical()),
                     static_cast<int64_t>(sizes.getLocal()),
                     {sizes.getSlots().begin(), sizes.getSlots().end()}};
    plan->kv_block_tokens = kv_page_tokens;
    plan->notes.push_back("the host computes and sends 32-bit floats: fp8, fp4 and bf16 are what the ledger "
                          "and the bill count");
    plan->paths.clear();
    for (Attribute path : program.getPaths())
      plan->paths.push_back(cast<StringAttr>(path).str());
    if (auto notes = module->getAttrOfType<ArrayAttr>("topo.notes")) {
      std::string shrunk;
      for (Attribute note : notes)
        shrunk += (shrunk.empty() ? "tiny: " : ", ") + cast<StringAttr>(note).str();
      plan->notes.push_back(shrunk);
    }
    if (auto arenas = program->getAttrOfType<DictionaryAttr>("arena_bytes"))
      for (NamedAttribute arena : arenas)
        plan->arena_bytes[arena.getName().str()] = cast<IntegerAttr>(arena.getValue()).getInt();
  }

  void model() {
    const ModelSpec &from = spec.model;
    plan::Model &to = plan->model;
    to.name = *from.name;
    to.weights = placed_weights(from);
    to.hidden = *from.hidden;
    to.layers = *from.layers;
    to.vocab = *from.vocab;
    to.hyper_connections = *from.hyper_connections;
    to.seed = *from.seed;
    to.rms_eps = *from.rms_eps;
    to.attention = *from.attention.kind;
    to.heads = *from.attention.heads;
    to.kv_heads = *from.attention.kv_heads;
    to.head_dim = *from.attention.head_dim;
    to.rope_dim = *from.attention.rope_dim;
    to.q_lora = *from.attention.q_lora;
    to.kv_lora = *from.attention.kv_lora;
    to.nope_dim = *from.attention.nope_dim;
    to.v_dim = *from.attention.v_dim;
    to.o_groups = *from.attention.o_groups;
    to.o_lora = *from.attention.o_lora;
    to.rope_theta = *from.attention.rope_theta;
    to.compress_rope_theta = *from.attention.compress_rope_theta;
    for (int64_t layer = 0; layer < to.layers; ++layer) {
      to.window.push_back(
          (*from.attention.window)[static_cast<size_t>(layer) % from.attention.window->size()]);
      to.compress_ratios.push_back(from.attention.compress_ratios->empty()
                                       ? 0
                                       : (*from.attention.compress_ratios)[static_cast<size_t>(layer)]);
    }
    to.sink = *from.attention.sink;
    to.routed = *from.moe.routed;
    to.top_k = *from.moe.top_k;
    to.shared = *from.moe.shared;
    to.expert_width = *from.moe.width;
    to.gate_groups = *from.moe.groups;
    to.gate_top_groups = *from.moe.top_groups;
    to.dense_layers = *from.moe.dense_layers;
    to.dense_width = *from.moe.dense_width;
    to.score = *from.moe.score;
    to.normalise = *from.moe.normalise;
    to.scaling = *from.moe.scaling;
    to.swiglu_limit = *from.moe.swiglu_limit;
    to.engram_layers = *from.engram.layers;
    to.engram_ngram = *from.engram.ngram;
    to.engram_heads = *from.engram.heads;
    to.engram_dim = *from.engram.dim;
    to.engram_vocab_per_head = *from.engram.vocab_per_head;
    to.engram_multipliers = *from.engram.multipliers;
  }

  void communicators() {
    for (topo::CommOp op : module.getOps<topo::CommOp>()) {
      plan::Communicator comm;
      comm.id = static_cast<int64_t>(plan->communicators.size());
      for (Attribute role : op.getRoles()) {
        comm.groups.push_back(cast<StringAttr>(role).str());
        comm_of[comm.groups.back()] = comm.id;
      }
      const GroupLayout &group = mesh.groups.at(op.getGroup().str());
      comm.isolation = op.getIsolation().str();
      comm.backend = "host"; // the only target yet; the topology's own choice is in the IR
      comm.size = group.size;
      comm.count = group.count;
      comm.color = closed_form(group.color);
      comm.key = closed_form(group.key);
      plan->communicators.push_back(std::move(comm));
    }
  }

  int64_t buffer_of(Value value) { return buffer_ids.at(value); }

  void make_buffer(OpResult result, Operation *op, const std::string &arena, const std::string &name) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> shape = local_shape(type, mesh);
    plan::Buffer buffer;
    buffer.id = static_cast<int64_t>(plan->buffers.size());
    buffer.name = name;
    buffer.dtype = type.getElementType().isInteger(32)   ? "i32"
                   : type.getElementType().isInteger(64) ? "i64"
                                                         : "f32";
    buffer.rows = std::max<int64_t>(1, shape[0]);
    buffer.row_size = 1;
    for (size_t dim = 1; dim < shape.size(); ++dim)
      buffer.row_size *= shape[dim];
    buffer.arena = arena;
    buffer.offset = op->getAttrOfType<DenseI64ArrayAttr>("offsets").asArrayRef()[result.getResultNumber()];
    int64_t bytes = buffer.rows * buffer.row_size * host_element_bytes(type.getElementType());
    buffer.bytes = (std::max<int64_t>(bytes, 1) + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
    buffer_ids[result] = buffer.id;
    plan->buffers.push_back(std::move(buffer));
  }

  void make_weight(WeightOp op) {
    auto type = cast<RankedTensorType>(op.getValue().getType());
    plan::Weight weight;
    weight.id = static_cast<int64_t>(plan->weights.size());
    weight.name = op.getName().str();
    weight.shape.assign(type.getShape().begin(), type.getShape().end());
    weight.init = op.getInit().str();
    weight.fan_in = static_cast<int64_t>(op.getFanIn());
    Sharding sharding = sharding_of(op.getValue());
    for (size_t dim = 0; dim < sharding.dims.size(); ++dim)
      for (const std::string &axis : sharding.dims[dim])
        weight.splits.push_back({static_cast<int64_t>(dim), axis, op.getSlots() && dim == 0});
    if (op.getSlots() && sharding.dims[0].empty()) // every slot is here
      weight.splits.insert(weight.splits.begin(), {0, "ep", true});
    weight_ids[op.getValue()] = weight.id;
    plan->weights.push_back(std::move(weight));
  }

  static std::string position(Location location) {
    SourceRange range = topo::to_range(location);
    return range.known() ? fmt::format("{}:{}:{}", range.file, range.line, range.column) : "";
  }

  LogicalResult one(Operation &op) {
    if (auto weight = dyn_cast<WeightOp>(op)) {
      // Tables are no weight of the plan: their rows are made, or kept, by the owner of a fetch.
      if (!llvm::all_of(weight->getUsers(), [](Operation *user) { return isa<FetchOp>(user); }))
        make_weight(weight);
      return success();
    }
    if (isa<ResultOp>(op))
      return success();
    plan::Instruction inst;
    inst.id = static_cast<int64_t>(plan->instructions.size());
    inst.op = isa<RoutedExpertsOp>(op) ? "local_experts" : op.getName().stripDialect().str();
    const plan::Operation *known = plan::find_operation(inst.op);
    if (!known)
      return topo::error(op.getLoc(), "unknown-instruction")
             << "'" << inst.op << "' is no instruction of a plan";
    inst.name = name_of(isa<AwaitOp>(op) ? cast<AwaitOp>(op).getPending().getDefiningOp() : &op);
    inst.where = position(op.getLoc());
    if (auto stream = op.getAttrOfType<StringAttr>("stream"))
      inst.stream = stream.str();
    attributes(op, *known, inst);

    for (Value operand : op.getOperands()) {
      if (auto weight = weight_ids.find(operand); weight != weight_ids.end())
        inst.weights.push_back(weight->second);
      else if (isa<RankedTensorType>(operand.getType()) && !operand.getDefiningOp<WeightOp>())
        inst.inputs.push_back(buffer_of(operand));
    }
    if (auto await = dyn_cast<AwaitOp>(op)) {
      inst.awaits = instruction_of.at(await.getPending().getDefiningOp());
      for (Value value : await.getResults())
        inst.outputs.push_back(buffer_of(value));
    } else if (is_collective(&op)) {
      inst.comm = comm_of.at(group_of(&op));
      inst.numbers["async"] = 1;
      // Its results are the buffers that its await hands out.
      for (Operation *user : op.getResult(0).getUsers())
        if (auto waiter = dyn_cast<AwaitOp>(user))
          for (OpResult value : waiter->getResults()) {
            make_buffer(value, waiter, arena_of(&op), fmt::format("{}.{}", inst.name, inst.op));
            inst.outputs.push_back(buffer_of(value));
          }
    } else {
      for (OpResult result : op.getResults()) {
        make_buffer(result, &op, "activation", fmt::format("{}.{}", inst.name, inst.op));
        inst.outputs.push_back(buffer_of(result));
      }
    }
    if (auto fetch = dyn_cast<FetchOp>(op)) {
      const std::vector<int64_t> &layers = *spec.model.engram.layers;
      inst.numbers["table"] = static_cast<double>(llvm::find(layers, inst.layer) - layers.begin());
      inst.numbers["rows_per_part"] =
          static_cast<double>(local_shape(cast<RankedTensorType>(fetch.getTable().getType()), mesh)[0]);
      inst.words["storage"] = *spec.engram.storage;
      fetches.push_back(inst);
    }
    Value undone = isa<ReduceScatterOp>(op) ? cast<ReduceScatterOp>(op).getGather()
                   : isa<AllToAllOp>(op)    ? cast<AllToAllOp>(op).getGather()
                                            : Value();
    if (undone)
      inst.numbers["of"] = static_cast<double>(instruction_of.at(undone.getDefiningOp()));
    instruction_of[&op] = inst.id;
    if (auto fusion = op.getAttrOfType<StringAttr>("fusion")) {
      if (kernel != kernel_of(&op))
        plan->kernels.push_back({fusion.str(), inst.id, 0});
      ++plan->kernels.back().count;
    }
    kernel = kernel_of(&op);
    locations.push_back(op.getLoc());
    plan->instructions.push_back(std::move(inst));
    return success();
  }

  // What the instruction set knows of an op's attributes; counts of heads and groups shrink to the rank's.
  void attributes(Operation &op, const plan::Operation &known, plan::Instruction &inst) {
    auto listed = [](const std::vector<std::string_view> &a, const std::vector<std::string_view> &b,
                     StringRef name) {
      return llvm::is_contained(a, std::string_view(name)) || llvm::is_contained(b, std::string_view(name));
    };
    NamedAttrList attrs(op.getAttrDictionary());
    for (NamedAttribute attr : attrs) {
      StringRef name = attr.getName().getValue();
      if (name == "layer")
        inst.layer = cast<IntegerAttr>(attr.getValue()).getInt();
      if (listed(known.required_numbers, known.optional_numbers, name)) {
        if (auto integer = dyn_cast<IntegerAttr>(attr.getValue()))
          inst.numbers[name.str()] = static_cast<double>(integer.getInt());
        else if (auto real = dyn_cast<FloatAttr>(attr.getValue()))
          inst.numbers[name.str()] = real.getValueAsDouble();
      }
      if (listed(known.required_words, known.optional_words, name))
        if (auto word = dyn_cast<StringAttr>(attr.getValue()))
          inst.words[name.str()] = word.str();
    }
    if (isa<RopeOp, AttentionOp, HeadConcatOp>(op)) {
      Sharding sharding = sharding_of(op.getOperand(0));
      for (const std::string &axis : sharding.dims[1])
        inst.numbers["heads"] /= static_cast<double>(mesh.axis(axis).size);
      if (isa<AttentionOp>(op) && inst.numbers["kv_heads"] > 1)
        for (const std::string &axis : sharding.dims[1])
          inst.numbers["kv_heads"] =
              std::max(1.0, inst.numbers["kv_heads"] / static_cast<double>(mesh.axis(axis).size));
    }
  }

  // An instruction starts when those of other streams that made its operands are done; an await is one of the
  // stream it stands on.
  void streams_wait() {
    std::map<int64_t, int64_t> made_by; // buffer → instruction
    for (plan::Instruction &inst : plan->instructions) {
      for (int64_t input : inst.inputs)
        if (auto found = made_by.find(input); found != made_by.end())
          if (plan->instructions[static_cast<size_t>(found->second)].stream != inst.stream &&
              !llvm::is_contained(inst.waits, found->second))
            inst.waits.push_back(found->second);
      for (int64_t output : inst.outputs)
        made_by[output] = inst.id;
    }
  }

  // Before the first step: every communicator is warmed, since one that is built lazily first shows in the
  // middle of a step; Engram scales reach every rank; ranks agree on the pages of KV they all have.
  void load() {
    auto issue = [&](const std::string &op, const std::string &name, int64_t comm) -> plan::Instruction & {
      plan::Instruction inst;
      inst.id = static_cast<int64_t>(plan->load.size());
      inst.op = op;
      inst.name = name;
      inst.comm = comm;
      inst.numbers["async"] = 0;
      inst.stream = "control";
      plan->load.push_back(std::move(inst));
      return plan->load.back();
    };
    for (topo::CommOp comm : module.getOps<topo::CommOp>()) {
      std::string name = cast<StringAttr>(comm.getRoles()[0]).str();
      issue("warm_up", name, comm_of.at(name)).where = position(comm.getLoc());
    }
    for (const plan::Instruction &fetch : fetches) {
      plan::Instruction &scales = issue("gather_scales", fetch.name, fetch.comm);
      scales.layer = fetch.layer;
      scales.numbers["table"] = fetch.numbers.at("table");
      scales.numbers["rows_per_part"] = fetch.numbers.at("rows_per_part");
      scales.where = fetch.where;
    }
    if (auto world = comm_of.find("world"); world != comm_of.end()) {
      const std::string where = plan->load[static_cast<size_t>(world->second)].where; // its communicator's
      issue("kv_blocks", "world", world->second).where = where;
    }
  }

  void ledger() {
    Ledger read = ledger_of(module, spec, mesh);
    read.lines.insert(read.lines.end(), read.load.begin(), read.load.end());
    for (const LedgerLine &line : read.lines)
      plan->ledger.push_back({line.op, line.group, comm_of.at(line.group), line.ranks, line.bytes_per_rank,
                              line.times, line.blocking, line.where, line.category, line.predicted_us});
  }

  ModuleOp module;
  const TopologySpec &spec;
  const MeshView &mesh;
  plan::Plan *plan = nullptr;
  topo::SizesOp sizes;
  ProgramOp program;
  std::map<std::string, int64_t> comm_of;
  llvm::DenseMap<Value, int64_t> buffer_ids, weight_ids;
  llvm::DenseMap<Operation *, int64_t> instruction_of;
  std::vector<plan::Instruction> fetches;
  std::optional<int64_t> kernel; // of the instruction before

public:
  std::vector<Location> locations; // of each instruction
};

} // namespace

FailureOr<plan::Plan> emit_plan(ModuleOp module, const EmitOptions &options) {
  Diagnostics findings;
  std::optional<TopologySpec> spec = topo::to_spec(module, findings);
  if (failed(topo::report(module.getContext(), findings)) || !spec)
    return failure();
  FailureOr<MeshView> mesh = view_mesh(module);
  if (failed(mesh))
    return failure();
  plan::Plan plan;
  plan.source = options.source;
  plan.source_hash = options.source_hash;
  Emitter emitter(module, *spec, *mesh);
  if (failed(emitter.emit(plan)))
    return failure();
  // What the runtime would refuse is refused here, at the op that asks for it.
  bool good = true;
  for (const plan::Problem &problem : plan::check(plan)) {
    size_t idx = 0;
    bool of_instruction =
        sscanf(problem.path.c_str(), "/instructions/%zu", &idx) == 1 && idx < emitter.locations.size();
    topo::error(of_instruction ? emitter.locations[idx] : module.getLoc(), "bad-plan") << problem.text();
    good = false;
  }
  if (!good)
    return failure();
  return plan;
}

} // namespace paratope
