// SPDX-License-Identifier: Apache-2.0
//
// What the instructions of a plan do: operands that fit, collectives that are awaited once, nothing read
// before it is written, ranks that hold table rows only left out.
#include <map>
#include <set>

#include "runtime/plan/batch.h"
#include "runtime/plan/checker.h"

namespace paratope::plan {

namespace {

constexpr std::string_view load_ops[] = {"kv_blocks", "warm_up", "gather_scales"};

bool is_load_op(std::string_view op) {
  return std::find(std::begin(load_ops), std::end(load_ops), op) != std::end(load_ops);
}
} // namespace

void Checker::check_operands(const std::string &path, const Instruction &instruction,
                             const std::vector<int64_t> &ids, std::span<const Operand> operands,
                             const char *what) {
  if (!Operation::accepts(operands, ids.size()))
    return report(path, "got {} {} for {}, expected {}", ids.size(), what, instruction.op,
                  Operation::count_text(operands));
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string at = fmt::format("{}/{}", path, i);
    if (!reference(at, ids[i], plan.buffers.size(), "buffer"))
      continue;
    const Operand &operand = operand_at(operands, ids.size(), i);
    const Buffer &buffer = plan.buffers[static_cast<size_t>(ids[i])];
    if (operand.dtype != "any" && operand.dtype != buffer.dtype)
      report(at, "got {} {} as {} of {}, expected {}", buffer.dtype, buffer.name, operand.name,
             instruction.op, operand.dtype);
  }
}

void Checker::check_attributes(const std::string &path, const Instruction &instruction, const Operation &op) {
  auto check = [&](const char *kind, const auto &present, const auto &required, const auto &optional) {
    for (std::string_view name : required)
      if (!present.count(std::string(name)))
        report(path, "got no {} \"{}\", expected one for {}", kind, name, op.name);
    for (const auto &[name, value] : present) {
      auto among = [&key = name](const auto &names) {
        return std::find(names.begin(), names.end(), key) != names.end();
      };
      if (among(required) || among(optional))
        continue;
      Names known(required.begin(), required.end());
      known.insert(known.end(), optional.begin(), optional.end());
      report(fmt::format("{}/{}s/{}", path, kind, name), "got an attribute {} does not take, expected {}",
             op.name, known.empty() ? "none" : fmt::format("one of {}", fmt::join(known, ", ")));
    }
  };
  check("number", instruction.numbers, op.required_numbers, op.optional_numbers);
  check("word", instruction.words, op.required_words, op.optional_words);
  for (const auto &[name, value] : instruction.numbers)
    if (!std::isfinite(value))
      report(path + "/numbers/" + name, "got {}, expected a finite number", value);
  if (auto it = instruction.words.find("score"); it != instruction.words.end())
    one_of(path + "/words/score", it->second, {"sqrtsoftplus", "sigmoid", "softmax"});
  if (auto it = instruction.words.find("axis"); it != instruction.words.end())
    axis_of(path + "/words/axis", it->second);
}

void Checker::check_order(const std::string &path, const Instruction &instruction) {
  for (size_t i = 0; i < instruction.waits.size(); ++i)
    if (instruction.waits[i] < 0 || instruction.waits[i] >= instruction.id)
      report(fmt::format("{}/waits/{}", path, i), "got {}, expected an instruction before {}",
             instruction.waits[i], instruction.id);
  if (instruction.op != "await") {
    if (instruction.awaits != -1)
      report(path + "/awaits", "got {} on {}, expected awaits only on await", instruction.awaits,
             instruction.op);
    return;
  }
  if (instruction.awaits < 0 || instruction.awaits >= instruction.id)
    return report(path + "/awaits", "got {}, expected a collective before {}", instruction.awaits,
                  instruction.id);
  const Instruction &collective = plan.instructions[static_cast<size_t>(instruction.awaits)];
  const Operation *op = find_operation(collective.op);
  if (op && !op->collective)
    report(path + "/awaits", "got {} ({}), expected a collective", instruction.awaits, collective.op);
  else if (collective.outputs != instruction.outputs)
    report(path + "/outputs", "got [{}], expected the outputs of collective {}: [{}]",
           fmt::join(instruction.outputs, ", "), collective.id, fmt::join(collective.outputs, ", "));
}

void Checker::check_instruction(const std::string &path, const Instruction &instruction) {
  const Operation *op = find_operation(instruction.op);
  if (!op) {
    Names names;
    for (const Operation &each : instruction_set())
      names.push_back(each.name);
    return report(path + "/op", "got unknown op \"{}\", expected one of {}", instruction.op,
                  fmt::join(names, ", "));
  }
  check_operands(path + "/inputs", instruction, instruction.inputs, op->inputs, "inputs");
  check_operands(path + "/outputs", instruction, instruction.outputs, op->outputs, "outputs");
  if (!Operation::accepts(op->weights, instruction.weights.size()))
    report(path + "/weights", "got {} weights for {}, expected {}", instruction.weights.size(), op->name,
           Operation::count_text(op->weights));
  for (size_t i = 0; i < instruction.weights.size(); ++i)
    reference(fmt::format("{}/weights/{}", path, i), instruction.weights[i], plan.weights.size(), "weight");
  if ((op->name == "all_gather" || op->name == "mirror_pick") &&
      instruction.inputs.size() != instruction.outputs.size())
    report(path + "/outputs", "got {} outputs of {}, expected one an input: {}", instruction.outputs.size(),
           op->name, instruction.inputs.size());
  check_attributes(path, instruction, *op);
  one_of(path + "/stream", instruction.stream, {"compute", "exchange", "prefetch", "control"});
  if (op->layered)
    reference(path + "/layer", instruction.layer,
              static_cast<size_t>(std::max<int64_t>(plan.model.layers, 0)), "layer");
  if (op->collective)
    reference(path + "/comm", instruction.comm, plan.communicators.size(), "communicator");
  else if (instruction.comm != -1)
    report(path + "/comm", "got {} on {}, expected a communicator only on collectives", instruction.comm,
           op->name);
  check_exchange_pairs(path, instruction);
  check_table(path, instruction);
  check_serving(path, instruction);
  check_order(path, instruction);
}

// What undoes a gather, or an all-to-all of columns, names it: the rows are that instruction's.
void Checker::check_exchange_pairs(const std::string &path, const Instruction &instruction) {
  auto of = instruction.numbers.find("of");
  auto split = instruction.words.find("split");
  bool rows = split != instruction.words.end() && split->second == "rows";
  if (split != instruction.words.end() && one_of(path + "/words/split", split->second, {"columns", "rows"}) &&
      rows != (of != instruction.numbers.end()))
    return report(path + "/numbers/of", "got {} for an all_to_all of {}, expected {}", rows ? "none" : "one",
                  split->second, rows ? "the all_to_all of columns it undoes" : "none");
  if (of == instruction.numbers.end())
    return;
  const Instruction *made = of->second >= 0 && of->second < static_cast<double>(instruction.id)
                                ? &plan.instructions[static_cast<size_t>(of->second)]
                                : nullptr;
  bool columns =
      made && made->op == "all_to_all" && made->words.count("split") && made->words.at("split") == "columns";
  bool gather = made && made->op == "all_gather" && !rows;
  if (!columns && !gather)
    report(path + "/numbers/of", "got {}, expected {} before {}", of->second,
           rows ? "an all_to_all of columns" : "an all_gather, or an all_to_all of columns,", instruction.id);
  else if (made->comm != instruction.comm)
    report(path + "/comm", "got {}, expected that of instruction {}, whose rows come back: {}",
           instruction.comm, made->id, made->comm);
}

// A fetched row is worth nothing without its scales, which are gathered once, at load.
void Checker::check_table(const std::string &path, const Instruction &instruction) {
  auto table = instruction.numbers.find("table"), part = instruction.numbers.find("rows_per_part");
  if (table == instruction.numbers.end() || part == instruction.numbers.end())
    return;
  const std::vector<int64_t> &layers = plan.model.engram_layers;
  double number = table->second;
  if (!(number >= 0 && number < static_cast<double>(layers.size())) || number != std::floor(number))
    return report(path + "/numbers/table", "got {}, expected a table from 0 to {}", number,
                  static_cast<int64_t>(layers.size()) - 1);
  if (!(part->second >= 1) || part->second != std::floor(part->second))
    report(path + "/numbers/rows_per_part", "got {}, expected an integer of at least 1", part->second);
  if (instruction.op == "gather_scales" && instruction.layer != layers[static_cast<size_t>(number)])
    report(path + "/layer", "got {}, expected the layer of table {}: {}", instruction.layer, number,
           layers[static_cast<size_t>(number)]);
  if (instruction.op != "fetch")
    return;
  auto size_of = [&](int64_t comm) {
    bool known = comm >= 0 && comm < static_cast<int64_t>(plan.communicators.size());
    return known ? plan.communicators[static_cast<size_t>(comm)].size : -1;
  };
  for (const Instruction &load : plan.load) {
    if (load.op != "gather_scales" || !load.numbers.count("table") || load.numbers.at("table") != number)
      continue;
    if (load.numbers.count("rows_per_part") && load.numbers.at("rows_per_part") != part->second)
      report(path + "/numbers/rows_per_part", "got {}, expected that of the table's gather_scales: {}",
             part->second, load.numbers.at("rows_per_part"));
    else if (size_of(load.comm) != size_of(instruction.comm))
      report(path + "/comm", "got a fetch from {} owners, expected the {} of the table's gather_scales",
             size_of(instruction.comm), size_of(load.comm));
    return;
  }
  report(path, "got no gather_scales of table {} in load, expected one (the table's rows need their scales)",
         number);
}

// Table-only ranks issue fetches alone: beside serving ranks in any other collective of a step they would be
// waited for. A group of nothing but table-only ranks is idle, and harmless.
void Checker::check_serving(const std::string &path, const Instruction &instruction) {
  int64_t serving = serving_ranks(plan);
  if (!ranks_known || serving == plan.world || instruction.op == "fetch" || instruction.comm < 0 ||
      instruction.comm >= static_cast<int64_t>(plan.communicators.size()))
    return;
  const Communicator &comm = plan.communicators[static_cast<size_t>(instruction.comm)];
  std::map<int64_t, int64_t> serves; // color → a rank of it that serves
  for (int64_t rank = 0; rank < serving; ++rank)
    serves.emplace(comm.color(rank), rank);
  for (int64_t rank = serving; rank < plan.world; ++rank)
    if (auto mixed = serves.find(comm.color(rank)); mixed != serves.end() && mixed->first != -1)
      return report(
          path + "/comm",
          "got {} over communicator {}, which has table-only rank {} in one group with serving rank {}, "
          "expected serving ranks alone",
          instruction.op, comm.id, rank, mixed->second);
}

// Follows the program once: what is written, what is in flight, what is awaited.
void Checker::check_flow() {
  std::vector<char> written(plan.buffers.size());
  std::vector<int64_t> pending(plan.buffers.size(), -1); // the collective that is writing it
  std::set<int64_t> in_flight;
  for (const Instruction &instruction : plan.instructions) {
    std::string path = fmt::format("/instructions/{}", instruction.id);
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      auto id = static_cast<size_t>(instruction.inputs[i]);
      if (pending[id] >= 0)
        report(fmt::format("{}/inputs/{}", path, i),
               "got {}, which collective {} is still writing; await it first", plan.buffers[id].name,
               pending[id]);
      else if (!written[id])
        report(fmt::format("{}/inputs/{}", path, i), "got {}, which nothing has written yet",
               plan.buffers[id].name);
    }
    if (instruction.op == "await" && !in_flight.erase(instruction.awaits))
      report(path + "/awaits", "got {}, which is not in flight (awaited before, or complete when issued)",
             instruction.awaits);
    bool asynchronous = find_operation(instruction.op)->collective && !completes_at_issue(instruction);
    if (asynchronous)
      in_flight.insert(instruction.id);
    for (int64_t output : instruction.outputs) {
      auto id = static_cast<size_t>(output);
      if (pending[id] >= 0 && pending[id] != instruction.awaits)
        report(path + "/outputs", "got {}, which collective {} is still writing; await it first",
               plan.buffers[id].name, pending[id]);
      pending[id] = asynchronous ? instruction.id : -1;
      written[id] = 1;
    }
  }
  for (int64_t id : in_flight)
    report(fmt::format("/instructions/{}", id), "got {} that nothing awaits, expected one await",
           plan.instructions[static_cast<size_t>(id)].op);
}

// Before the first step every collective is complete when it is issued, and there are no buffers yet.
void Checker::check_load() {
  std::set<double> tables;
  for (size_t i = 0; i < plan.load.size(); ++i) {
    const Instruction &instruction = plan.load[i];
    std::string path = fmt::format("/load/{}", i);
    numbered(path + "/id", instruction.id, i);
    const Operation *op = find_operation(instruction.op);
    if (!op || !is_load_op(instruction.op)) {
      report(path + "/op", "got \"{}\", expected one of {}", instruction.op, fmt::join(load_ops, ", "));
      continue;
    }
    check_operands(path + "/inputs", instruction, instruction.inputs, op->inputs, "inputs");
    check_operands(path + "/outputs", instruction, instruction.outputs, op->outputs, "outputs");
    if (!instruction.weights.empty())
      report(path + "/weights", "got {} weights for {}, expected 0", instruction.weights.size(), op->name);
    check_attributes(path, instruction, *op);
    one_of(path + "/stream", instruction.stream, {"compute", "exchange", "prefetch", "control"});
    reference(path + "/comm", instruction.comm, plan.communicators.size(), "communicator");
    if (!completes_at_issue(instruction))
      report(path + "/numbers/async",
             "got a collective that an await would complete, expected async 0 at load");
    if (!instruction.waits.empty() || instruction.awaits != -1)
      report(path, "got waits or awaits, expected none: load runs in order");
    check_table(path, instruction);
    auto table = instruction.numbers.find("table");
    if (table != instruction.numbers.end() && !tables.insert(table->second).second)
      report(path + "/numbers/table", "got table {} twice, expected each table's scales once", table->second);
  }
}

void Checker::check_instructions() {
  if (plan.instructions.empty())
    report("/instructions", "got none, expected a program");
  for (size_t i = 0; i < plan.instructions.size(); ++i)
    numbered(fmt::format("/instructions/{}/id", i), plan.instructions[i].id, i);
  if (!problems.empty())
    return;
  for (const Instruction &instruction : plan.instructions) {
    std::string path = fmt::format("/instructions/{}", instruction.id);
    if (is_load_op(instruction.op))
      report(path + "/op", "got {} in a step, expected it in load", instruction.op);
    else
      check_instruction(path, instruction);
  }
  if (problems.empty())
    check_flow();
}

// Parts of a kernel are launched together: they stand side by side, and in no second kernel.
void Checker::check_kernels() {
  int64_t free = 0; // the first instruction that no kernel so far has
  int64_t instructions = static_cast<int64_t>(plan.instructions.size());
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const Kernel &kernel = plan.kernels[i];
    std::string path = fmt::format("/kernels/{}", i);
    if (kernel.fusion.empty())
      report(path + "/fusion", "got an empty name, expected the fusion's");
    if (kernel.count < 2)
      report(path + "/count", "got {}, expected at least 2 instructions", kernel.count);
    if (kernel.first < free || kernel.first >= instructions)
      report(path + "/first", "got {}, expected an instruction from {} to {}", kernel.first, free,
             instructions - 1);
    else if (kernel.count > instructions - kernel.first)
      report(path + "/count", "got {} from instruction {}, expected at most {}", kernel.count, kernel.first,
             instructions - kernel.first);
    else
      free = kernel.first + std::max<int64_t>(kernel.count, 1);
  }
}

} // namespace paratope::plan
