// SPDX-License-Identifier: Apache-2.0
//
// The checks of check.h, from the outside in: axes and communicators, then memory and weights, then the
// instructions one by one, then what only the whole program shows (written before read, awaited once).
#include "runtime/plan/check.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/plan/instruction_set.h"

namespace paratope::plan {
namespace {

using Names = std::vector<std::string_view>;

struct Checker {
  const Plan &plan;
  std::vector<Problem> problems;
  bool ranks_known = true; // every digit sum can be evaluated

  template <class... Args> void report(std::string path, fmt::format_string<Args...> text, Args &&...args) {
    if (problems.size() < max_problems)
      problems.push_back({std::move(path), fmt::format(text, std::forward<Args>(args)...)});
  }

  bool positive(const std::string &path, int64_t value, int64_t least = 1) {
    if (value < least)
      report(path, "got {}, expected at least {}", value, least);
    return value >= least;
  }

  bool one_of(const std::string &path, std::string_view value, const Names &names) {
    bool found = std::find(names.begin(), names.end(), value) != names.end();
    if (!found)
      report(path, "got \"{}\", expected one of {}", value, fmt::join(names, ", "));
    return found;
  }

  // Ids are positions, so that references need no search.
  void numbered(const std::string &path, int64_t id, size_t position) {
    if (id != static_cast<int64_t>(position))
      report(path, "got {}, expected {} (ids count from 0 in order)", id, position);
  }

  bool reference(const std::string &path, int64_t value, size_t count, const char *what) {
    bool good = value >= 0 && value < static_cast<int64_t>(count);
    if (!good)
      report(path, "got {}, expected a {} from 0 to {}", value, what, static_cast<int64_t>(count) - 1);
    return good;
  }

  const Axis *axis(std::string_view name) const {
    for (const Axis &each : plan.axes)
      if (each.name == name)
        return &each;
    return nullptr;
  }

  const Axis *axis_of(const std::string &path, std::string_view name) {
    const Axis *found = axis(name);
    if (!found) {
      Names names;
      for (const Axis &each : plan.axes)
        names.push_back(each.name);
      report(path, "got axis \"{}\", expected one of {}", name, fmt::join(names, ", "));
    }
    return found;
  }

  void digit_sum(const std::string &path, const DigitSum &sum) {
    if (!sum.table.empty() && !sum.digits.empty())
      return fail_ranks(path, "got both digits and a table, expected one of them");
    if (!sum.table.empty() && static_cast<int64_t>(sum.table.size()) != plan.world)
      return fail_ranks(path + "/table",
                        fmt::format("got {} values, expected one a rank: {}", sum.table.size(), plan.world));
    for (size_t i = 0; i < sum.digits.size(); ++i) {
      const Digit &digit = sum.digits[i];
      if (digit.div < 1 || digit.mod < 1)
        return fail_ranks(
            fmt::format("{}/digits/{}", path, i),
            fmt::format("got div {} and mod {}, expected both at least 1", digit.div, digit.mod));
      int64_t largest, ignored;
      if (__builtin_mul_overflow(std::min(digit.mod, plan.world), digit.mul, &largest) ||
          __builtin_mul_overflow(largest, static_cast<int64_t>(sum.digits.size()), &ignored))
        return fail_ranks(fmt::format("{}/digits/{}/mul", path, i),
                          fmt::format("got {}, expected a factor whose sums fit 64 bits", digit.mul));
    }
  }

  void fail_ranks(const std::string &path, std::string message) {
    ranks_known = false;
    report(path, "{}", message);
  }

  void check_axes();
  void check_model();
  void check_workload();
  void check_experts();
  void check_communicators();
  void check_buffers();
  void check_weights();
  void check_ledger();
  void check_instructions();
  void check_instruction(const std::string &path, const Instruction &instruction);
  void check_operands(const std::string &path, const Instruction &instruction,
                      const std::vector<int64_t> &ids, std::span<const Operand> operands, const char *what);
  void check_attributes(const std::string &path, const Instruction &instruction, const Operation &op);
  void check_order(const std::string &path, const Instruction &instruction);
  void check_flow();
};

void Checker::check_axes() {
  std::set<std::string_view> names;
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    const Axis &each = plan.axes[i];
    std::string path = fmt::format("/axes/{}", i);
    if (!names.insert(each.name).second)
      report(path + "/name", "got axis \"{}\" twice, expected different names", each.name);
    positive(path + "/size", each.size);
    digit_sum(path + "/block", each.block);
  }
  axis_of("/engine_axis", plan.engine_axis);
  if (!ranks_known)
    return;
  for (size_t i = 0; i < plan.axes.size(); ++i)
    for (int64_t rank = 0; rank < plan.world; ++rank) {
      int64_t block = plan.axes[i].block(rank);
      if (block < 0 || block >= plan.axes[i].size) {
        report(fmt::format("/axes/{}/block", i), "got block {} for rank {}, expected 0 to {}", block, rank,
               plan.axes[i].size - 1);
        break;
      }
    }
}

void Checker::check_model() {
  const Model &m = plan.model;
  positive("/model/hidden", m.hidden);
  positive("/model/layers", m.layers);
  if (positive("/model/vocab", m.vocab) && m.vocab > INT32_MAX)
    report("/model/vocab", "got {}, expected at most {} (ids are i32)", m.vocab, INT32_MAX);
  positive("/model/hyper_connections", m.hyper_connections);
  one_of("/model/attention", m.attention, {"latent", "mla", "gqa"});
  positive("/model/heads", m.heads);
  positive("/model/kv_heads", m.kv_heads);
  for (auto [name, list] : {std::pair{"window", &m.window}, {"compress_ratios", &m.compress_ratios}}) {
    if (!list->empty() && static_cast<int64_t>(list->size()) != m.layers)
      report(fmt::format("/model/{}", name), "got {} entries, expected one a layer: {}", list->size(),
             m.layers);
    for (size_t i = 0; i < list->size(); ++i)
      positive(fmt::format("/model/{}/{}", name, i), (*list)[i], 0);
  }
  if (m.routed > 0 && (m.top_k < 1 || m.top_k > m.routed))
    report("/model/top_k", "got {}, expected 1 to routed = {}", m.top_k, m.routed);
  for (size_t i = 0; i < m.engram_layers.size(); ++i)
    reference(fmt::format("/model/engram_layers/{}", i), m.engram_layers[i],
              static_cast<size_t>(std::max<int64_t>(m.layers, 0)), "layer");
  for (const auto &[name, size] : plan.sizes)
    positive("/sizes/" + name, size);
  positive("/kv_block_tokens", plan.kv_block_tokens);
}

void Checker::check_workload() {
  const Workload &w = plan.workload;
  one_of("/workload/phase", w.phase, {"decode", "prefill"});
  for (size_t i = 0; i < plan.paths.size(); ++i)
    one_of(fmt::format("/paths/{}", i), plan.paths[i], {"real", "placeholder"});
  if (w.engine_tokens.empty())
    report("/workload/engine_tokens", "got no entries, expected tokens of at least one engine");
  for (size_t i = 0; i < w.engine_tokens.size(); ++i)
    positive(fmt::format("/workload/engine_tokens/{}", i), w.engine_tokens[i], 0);
  positive("/workload/context", w.context, 0);
  one_of("/workload/routing/kind", w.routing.kind, {"gate", "uniform", "zipf", "dirichlet", "hot", "trace"});
  if (w.routing.kind == "hot")
    reference("/workload/routing/expert", w.routing.expert,
              static_cast<size_t>(std::max<int64_t>(plan.experts.logical, 0)), "logical expert");
}

void Checker::check_experts() {
  const Experts &e = plan.experts;
  positive("/experts/logical", e.logical, 0);
  positive("/experts/physical", e.physical, 0);
  positive("/experts/local", e.local, 0);
  if (static_cast<int64_t>(e.slots.size()) != e.physical)
    return report("/experts/slots", "got {} slots, expected physical = {}", e.slots.size(), e.physical);
  if (e.logical != plan.model.routed)
    report("/experts/logical", "got {}, expected the model's routed = {}", e.logical, plan.model.routed);
  if (e.logical == 0)
    return;
  if (const Axis *ep = axis("ep");
      ep && e.local != 0 && (e.physical % e.local != 0 || e.physical / e.local != ep->size))
    report("/experts/local", "got {}, expected physical / ep = {} / {}", e.local, e.physical, ep->size);
  std::vector<bool> present(static_cast<size_t>(e.logical));
  for (size_t i = 0; i < e.slots.size(); ++i)
    if (reference(fmt::format("/experts/slots/{}", i), e.slots[i], present.size(), "logical expert"))
      present[static_cast<size_t>(e.slots[i])] = true;
  auto missing = std::find(present.begin(), present.end(), false);
  if (missing != present.end())
    report("/experts/slots", "got no slot for expert {}, expected every expert in at least one",
           missing - present.begin());
}

void Checker::check_communicators() {
  std::vector<int64_t> members;
  for (size_t i = 0; i < plan.communicators.size(); ++i) {
    const Communicator &c = plan.communicators[i];
    std::string path = fmt::format("/communicators/{}", i);
    numbered(path + "/id", c.id, i);
    one_of(path + "/isolation", c.isolation, {"data", "control", "prefetch"});
    one_of(path + "/backend", c.backend, {"host", "nccl", "gloo"});
    if (!positive(path + "/size", c.size) || !positive(path + "/count", c.count))
      continue;
    digit_sum(path + "/color", c.color);
    digit_sum(path + "/key", c.key);
    int64_t total;
    if (__builtin_mul_overflow(c.size, c.count, &total) || total > plan.world) {
      report(path, "got {} groups of {}, expected no more ranks than world = {}", c.count, c.size,
             plan.world);
      continue;
    }
    if (!ranks_known)
      continue;
    // Every rank whose color is not −1 must be the only one with its color and key. Colors may be any
    // numbers; they are numbered here in the order they appear.
    std::map<int64_t, int64_t> groups;
    members.assign(static_cast<size_t>(total), -1);
    int64_t placed = 0;
    for (int64_t rank = 0; rank < plan.world; ++rank) {
      int64_t color = c.color(rank), key = c.key(rank);
      if (color == -1)
        continue;
      int64_t group = groups.emplace(color, static_cast<int64_t>(groups.size())).first->second;
      if (group >= c.count) {
        report(path + "/color",
               "got more than {} colors, expected count = {} of them: {} of rank {} is one more", c.count,
               c.count, color, rank);
        break;
      }
      if (key < 0 || key >= c.size) {
        report(path + "/key", "got key {} for rank {}, expected 0 to {}", key, rank, c.size - 1);
        break;
      }
      int64_t &member = members[static_cast<size_t>(group * c.size + key)];
      if (member >= 0) {
        report(path, "got ranks {} and {} with color {} and key {}, expected one rank", member, rank, color,
               key);
        break;
      }
      member = rank;
      ++placed;
    }
    if (placed < total && problems.empty())
      report(path, "got {} ranks in its groups, expected {} groups of {}", placed, c.count, c.size);
  }
}

void Checker::check_buffers() {
  for (const auto &[name, bytes] : plan.arena_bytes)
    positive("/arena_bytes/" + name, bytes, 0);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer &b = plan.buffers[i];
    std::string path = fmt::format("/buffers/{}", i);
    numbered(path + "/id", b.id, i);
    bool typed = one_of(path + "/dtype", b.dtype, {"f32", "i32", "i64"});
    if (!positive(path + "/rows", b.rows) || !positive(path + "/row_size", b.row_size) ||
        !positive(path + "/offset", b.offset, 0) || !typed)
      continue;
    int64_t need, end;
    if (__builtin_mul_overflow(b.rows, b.row_size, &need) ||
        __builtin_mul_overflow(need, dtype_bytes(b.dtype), &need) ||
        __builtin_add_overflow(b.offset, std::max(b.bytes, need), &end)) {
      report(path, "got {} rows of {} {} at {}, expected a size that fits 64 bits", b.rows, b.row_size,
             b.dtype, b.offset);
      continue;
    }
    if (b.bytes < need)
      report(path + "/bytes", "got {}, expected at least rows * row_size * {} = {}", b.bytes,
             dtype_bytes(b.dtype), need);
    if (b.offset % dtype_bytes(b.dtype) != 0)
      report(path + "/offset", "got {}, expected a multiple of {} for {}", b.offset, dtype_bytes(b.dtype),
             b.dtype);
    auto arena = plan.arena_bytes.find(b.arena);
    if (arena == plan.arena_bytes.end()) {
      Names names;
      for (const auto &[name, bytes] : plan.arena_bytes)
        names.push_back(name);
      report(path + "/arena", "got \"{}\", expected one of {}", b.arena, fmt::join(names, ", "));
    } else if (end > arena->second) {
      report(path, "got a buffer that ends at {}, expected at most arena {}'s {} bytes", end, b.arena,
             arena->second);
    }
  }
}

void Checker::check_weights() {
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const Weight &w = plan.weights[i];
    std::string path = fmt::format("/weights/{}", i);
    numbered(path + "/id", w.id, i);
    one_of(path + "/init", w.init, {"normal", "gain", "bias", "hc_scale"});
    positive(path + "/fan_in", w.fan_in);
    if (w.name.empty())
      report(path + "/name", "got an empty name, expected the tensor's identity in the model");
    if (w.shape.empty())
      report(path + "/shape", "got no dims, expected at least one");
    int64_t bytes = 4;
    bool fits = true;
    for (size_t d = 0; d < w.shape.size(); ++d) {
      positive(fmt::format("{}/shape/{}", path, d), w.shape[d]);
      fits &= !__builtin_mul_overflow(bytes, w.shape[d], &bytes);
    }
    if (!fits)
      report(path + "/shape", "got [{}], expected a size in bytes that fits 64 bits",
             fmt::join(w.shape, ", "));
    std::set<int64_t> dims;
    for (size_t s = 0; s < w.splits.size(); ++s) {
      const WeightSplit &split = w.splits[s];
      std::string at = fmt::format("{}/splits/{}", path, s);
      const Axis *cut = axis_of(at + "/axis", split.axis);
      if (!reference(at + "/dim", split.dim, w.shape.size(), "dim"))
        continue;
      if (!dims.insert(split.dim).second)
        report(at + "/dim", "got dim {} twice, expected each dim split at most once", split.dim);
      int64_t extent = w.shape[static_cast<size_t>(split.dim)];
      if (split.by_slots && extent != plan.experts.logical)
        report(at, "got a dim of {} cut by slots, expected the {} logical experts", extent,
               plan.experts.logical);
      if (!split.by_slots && cut && cut->size > 0 && extent % cut->size != 0)
        report(at, "got {} not divisible by axis {} of size {}, expected equal blocks", extent, cut->name,
               cut->size);
    }
  }
}

void Checker::check_ledger() {
  for (size_t i = 0; i < plan.ledger.size(); ++i) {
    const LedgerEntry &entry = plan.ledger[i];
    std::string path = fmt::format("/ledger/{}", i);
    if (entry.comm != -1)
      reference(path + "/comm", entry.comm, plan.communicators.size(), "communicator");
    positive(path + "/ranks", entry.ranks);
    positive(path + "/times", entry.times, 0);
    positive(path + "/bytes_per_rank", entry.bytes_per_rank, 0);
    one_of(path + "/category", entry.category, {"dense", "exchange", "control", "fetch"});
  }
}

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
  if ((op->name == "all_gather") && instruction.inputs.size() != instruction.outputs.size())
    report(path + "/outputs", "got {} outputs of all_gather, expected one an input: {}",
           instruction.outputs.size(), instruction.inputs.size());
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
  if (op->name == "reduce_scatter")
    if (auto it = instruction.numbers.find("of"); it != instruction.numbers.end()) {
      double of = it->second;
      if (!(of >= 0 && of < static_cast<double>(instruction.id)) ||
          plan.instructions[static_cast<size_t>(of)].op != "all_gather")
        report(path + "/numbers/of", "got {}, expected an all_gather before {}", of, instruction.id);
    }
  check_order(path, instruction);
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

void Checker::check_instructions() {
  if (plan.instructions.empty())
    report("/instructions", "got none, expected a program");
  for (size_t i = 0; i < plan.instructions.size(); ++i)
    numbered(fmt::format("/instructions/{}/id", i), plan.instructions[i].id, i);
  if (!problems.empty())
    return;
  for (const Instruction &instruction : plan.instructions)
    check_instruction(fmt::format("/instructions/{}", instruction.id), instruction);
  if (problems.empty())
    check_flow();
}

} // namespace

int64_t dtype_bytes(std::string_view dtype) {
  if (dtype == "f32" || dtype == "i32")
    return 4;
  return dtype == "i64" ? 8 : 0;
}

bool completes_at_issue(const Instruction &instruction) {
  auto it = instruction.numbers.find("async");
  return it != instruction.numbers.end() && it->second == 0;
}

std::vector<Problem> check(const Plan &plan) {
  Checker checker{plan, {}};
  if (plan.version != plan_version)
    checker.report("/version", "got plan version {}, expected {}", plan.version, plan_version);
  if (!checker.positive("/world", plan.world))
    return checker.problems;
  checker.check_axes();
  checker.check_model();
  checker.check_workload();
  checker.check_experts();
  checker.check_communicators();
  checker.check_buffers();
  checker.check_weights();
  checker.check_ledger();
  checker.check_instructions();
  return checker.problems;
}

} // namespace paratope::plan
