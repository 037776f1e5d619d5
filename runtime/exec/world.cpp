// SPDX-License-Identifier: Apache-2.0
//
// The executor: a rank's thread walks the instructions, step after step; the caller's thread sets up, waits,
// and judges (world.h shows the phases).
#include "runtime/exec/world.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "runtime/comm/error.h"
#include "runtime/exec/dump.h"
#include "runtime/exec/op.h"
#include "runtime/exec/setup.h"
#include "runtime/exec/verify.h"
#include "runtime/plan/batch.h"
#include "runtime/plan/check.h"
#include "runtime/plan/instruction_set.h"
#include "runtime/trace/trace.h"

namespace paratope {
namespace {

using Clock = std::chrono::steady_clock;

// A rank is a thread; more than this many are refused with a reason instead of failing somewhere inside.
constexpr int64_t max_ranks = 4096;

struct Bound {
  OpFunction run = nullptr, finish = nullptr;     // finish: completes at this instruction
  const plan::Instruction *instruction = nullptr; // an await runs on its collective's
  bool issues = false;
};

struct Execution {
  Execution(const plan::Plan &the_plan, const RunOptions &the_options, WorldState &the_state)
      : plan(the_plan), options(the_options), state(the_state) {}

  const plan::Plan &plan;
  const RunOptions &options;
  WorldState &state;
  std::vector<Bound> load, program;
  Dump *dump = nullptr;
  Clock::time_point start;

  // Steps all ranks take: a rank may start step s when some rank already has, or nobody has asked to stop.
  std::mutex step_mutex;
  int64_t newest_step = -1;
  std::atomic<int64_t> bytes_in_flight{0}, next_flow{1};

  double now_us() const { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }
  void bind();
  bool may_start(int64_t step);
  void run_rank(Rank &rank);
  void run_load(Rank &rank);
  void run_step(Rank &rank, int64_t step);
  double run(Rank &rank, const Bound &bound, const plan::Instruction &instruction, int64_t step, double from);
  void trace(Rank &rank, const Bound &bound, const plan::Instruction &instruction, int64_t step, double from,
             double to);
};

// Looks every op up once.
void Execution::bind() {
  for (const plan::Instruction &instruction : plan.load) {
    const OpEntry *op = find_op(instruction.op);
    load.push_back({op->run, op->finish, &instruction, true});
  }
  for (const plan::Instruction &instruction : plan.instructions) {
    Bound bound;
    bound.instruction = &instruction;
    if (instruction.op == "await") {
      bound.instruction = &plan.instructions[static_cast<size_t>(instruction.awaits)];
      bound.finish = find_op(bound.instruction->op)->finish;
    } else {
      const OpEntry *op = find_op(instruction.op);
      bound.run = op->run;
      bound.issues = op->finish != nullptr;
      if (op->finish && plan::completes_at_issue(instruction))
        bound.finish = op->finish;
    }
    program.push_back(bound);
  }
}

// A rank that holds table rows alone answers fetches, and takes part in nothing else of a step.
bool takes_part(const Rank &rank, const plan::Instruction &collective) {
  return rank.serving || collective.op == "fetch";
}

bool Execution::may_start(int64_t step) {
  std::lock_guard lock(step_mutex);
  if (step > newest_step && options.stop && options.stop->load())
    return false;
  if (step > newest_step) {
    newest_step = step;
    if (options.progress && options.steps > 1)
      options.progress(fmt::format("step {} of {}", step + 1, options.steps));
  }
  return true;
}

void Execution::trace(Rank &rank, const Bound &bound, const plan::Instruction &instruction, int64_t step,
                      double from, double to) {
  TraceWriter &trace = *options.trace;
  trace.span({rank.rank, instruction.stream, instruction.op, instruction.name, instruction.where,
              plan::fusion_of(plan, instruction.id), instruction.id, step, from, to});
  if (!bound.issues && !bound.finish)
    return;
  const plan::Instruction &collective = *bound.instruction;
  Pending &pending = rank.pending[static_cast<size_t>(collective.id)];
  if (bound.issues)
    trace.bytes_in_flight(to, bytes_in_flight += pending.bytes);
  if (bound.finish)
    trace.bytes_in_flight(to, bytes_in_flight -= pending.bytes);
  // The arrow goes from where a dispatch was issued to where its combine was complete.
  if (collective.op == "dispatch" && bound.issues) {
    pending.exchange->flow = next_flow++;
    trace.flow(true, pending.exchange->flow, rank.rank, from);
  }
}

// Runs one instruction, which began at `from`. Returns when it ended.
double Execution::run(Rank &rank, const Bound &bound, const plan::Instruction &instruction, int64_t step,
                      double from) {
  Call call{state.program, *bound.instruction, rank, step};
  int64_t flow = 0;
  try {
    if (bound.run)
      bound.run(call);
    if (bound.finish) {
      if (options.trace && bound.instruction->op == "combine")
        flow = rank.pending[static_cast<size_t>(bound.instruction->id)].exchange->flow;
      bound.finish(call);
    }
  } catch (const std::exception &error) {
    if (state.comms->poisoned())
      throw; // another rank's report
    throw RuntimeError(
        fmt::format("{}, instruction {} {}{}{}: {}", step < 0 ? "load" : fmt::format("step {}", step),
                    instruction.id, instruction.op, instruction.name.empty() ? "" : " " + instruction.name,
                    instruction.where.empty() ? "" : " (" + instruction.where + ")", error.what()));
  }
  double to = now_us();
  if (options.trace) {
    trace(rank, bound, instruction, step, from, to);
    if (flow)
      options.trace->flow(false, flow, rank.rank, to);
  }
  return to;
}

void Execution::run_load(Rank &rank) {
  double from = now_us();
  for (size_t i = 0; i < load.size(); ++i)
    if (rank.comms[static_cast<size_t>(plan.load[i].comm)]) // a rank of no group has nothing to load
      from = run(rank, load[i], plan.load[i], -1, from);
  rank.load_end_us = load.empty() ? 0 : from;
}

void Execution::run_step(Rank &rank, int64_t step) {
  if (options.verify) // stale rows must not pass for new ones
    for (auto &[name, arena] : rank.arenas) {
      const float poison = std::numeric_limits<float>::quiet_NaN();
      for (size_t at = 0; at + sizeof poison <= arena.size(); at += sizeof poison)
        std::memcpy(arena.data() + at, &poison, sizeof poison);
    }
  double from = now_us();
  for (size_t i = 0; i < program.size(); ++i) {
    if (!takes_part(rank, *program[i].instruction))
      continue;
    double to = run(rank, program[i], plan.instructions[i], step, from);
    if (dump)
      dump->observe(rank, plan.instructions[i], step);
    rank.instruction_us[i] += to - from;
    from = to;
  }
  rank.step_end_us.push_back(from);
}

void Execution::run_rank(Rank &rank) {
  comm::InprocWorld &comms = *state.comms;
  comms.enter(rank.rank);
  try {
    run_load(rank);
    for (int64_t step = 0; step < options.steps && may_start(step); ++step)
      run_step(rank, step);
  } catch (const std::exception &error) {
    rank.failure = error.what();
  }
  comms.leave(rank.rank, rank.failure);
}

// How often each (op, communicator) is issued in a step by the ledger, or at load, for one rank.
Rank::Counts ledger_counts(const plan::Plan &plan, const Rank &rank, bool at_load) {
  Rank::Counts counts;
  for (const plan::LedgerEntry &entry : plan.ledger)
    if ((entry.category == "load") == at_load && entry.comm >= 0 && entry.times > 0 &&
        rank.comms[static_cast<size_t>(entry.comm)] && (at_load || rank.serving || entry.op == "fetch"))
      counts[{entry.op, entry.comm}] += entry.times;
  return counts;
}

int64_t sum(const Rank::Counts &counts) {
  int64_t total = 0;
  for (const auto &[key, times] : counts)
    total += times;
  return total;
}

// Of every rank, what it issued in `steps` steps (or at load) against the ledger. `issued` and `expected` are
// those of the rank that issued most.
void compare_with_ledger(const plan::Plan &plan, const WorldState &state, bool at_load, RunResult &result) {
  size_t mismatches = 0;
  int64_t &most_issued = at_load ? result.load_issued : result.collectives_issued,
          &most_expected = at_load ? result.load_expected : result.collectives_expected;
  std::string when = at_load ? "at load" : fmt::format("in {} steps", result.steps);
  for (const auto &rank : state.ranks) {
    Rank::Counts expected = ledger_counts(plan, *rank, at_load),
                 issued = at_load ? rank->issued_at_load : rank->issued;
    for (const auto &[key, times] : expected)
      issued.emplace(key, 0);
    for (const auto &[key, times] : issued) {
      auto it = expected.find(key);
      int64_t want = (it == expected.end() ? 0 : it->second) * (at_load ? 1 : result.steps);
      if (times != want && mismatches++ < 5)
        result.failures.push_back(
            fmt::format("rank {}: got {} {} over communicator {} {}, expected {} by the ledger", rank->rank,
                        times, key.first, key.second, when, want));
    }
    if (sum(issued) >= most_issued) {
      most_issued = sum(issued);
      most_expected = sum(expected) * (at_load ? 1 : result.steps);
    }
  }
}

void add_times(const plan::Plan &plan, const WorldState &state, RunResult &result) {
  std::map<std::string, OpTime> by_op;
  for (const plan::Instruction &instruction : plan.instructions) {
    // Waiting is told apart by what is waited for.
    std::string name = instruction.op;
    if (name == "await")
      name += " " + plan.instructions[static_cast<size_t>(instruction.awaits)].op;
    OpTime &time = by_op[name];
    time.op = name;
    time.count += 1;
    bool all = instruction.op == "fetch" || name == "await fetch";
    int64_t ranks = all ? plan.world : plan::serving_ranks(plan);
    for (const auto &rank : state.ranks)
      time.us += rank->instruction_us[static_cast<size_t>(instruction.id)] / static_cast<double>(ranks);
  }
  for (auto &[name, time] : by_op) {
    time.us /= static_cast<double>(std::max<int64_t>(result.steps, 1));
    result.per_op.push_back(time);
  }
  std::stable_sort(result.per_op.begin(), result.per_op.end(),
                   [](const OpTime &a, const OpTime &b) { return a.us > b.us; });
}

// A step's time is from the moment the last rank finished the step before (or what there was to load) to the
// moment the last rank finished this one.
void add_steps(const WorldState &state, RunResult &result) {
  size_t steps = std::numeric_limits<size_t>::max();
  for (const auto &rank : state.ranks)
    steps = std::min(steps, rank->step_end_us.size());
  double before = 0;
  for (const auto &rank : state.ranks)
    before = std::max(before, rank->load_end_us);
  for (size_t s = 0; s < steps; ++s) {
    double end = 0;
    for (const auto &rank : state.ranks)
      end = std::max(end, rank->step_end_us[s]);
    result.step_times_us.push_back(end - before);
    before = end;
  }
  result.steps = static_cast<int64_t>(steps);
}

void run_threads(Execution &execution) {
  std::vector<std::thread> threads;
  execution.start = Clock::now();
  try {
    for (auto &rank : execution.state.ranks)
      threads.emplace_back([&execution, &rank] { execution.run_rank(*rank); });
  } catch (const std::system_error &error) { // those that have started must not wait for those that will not
    execution.state.comms->poison(fmt::format("cannot start a thread for each of {} ranks: {}",
                                              execution.state.ranks.size(), error.what()));
  }
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

RunResult run_plan(const plan::Plan &plan, const RunOptions &options) {
  RunResult result;
  result.world = plan.world;
  result.topology = plan.topology;
  result.notes = plan.notes;
  auto say = [&](const std::string &what) {
    if (options.progress)
      options.progress(what);
  };
  if (plan.world > max_ranks) {
    result.refused = true;
    result.failures.push_back(
        fmt::format("got a world of {} ranks, expected at most {} (each is a thread of this process)",
                    plan.world, max_ranks));
    return result;
  }
  int64_t threads =
      options.threads > 0 ? options.threads : std::max<int64_t>(1, std::thread::hardware_concurrency());
  WorldState state;
  std::unique_ptr<Dump> dump;
  auto began = Clock::now();
  try {
    say(fmt::format("setting up {} ranks", plan.world));
    set_up(plan, options, threads, state);
    if (!options.dump.empty())
      dump = std::make_unique<Dump>(plan, options.dump, options.steps);
  } catch (const std::bad_alloc &) {
    result.refused = true;
    result.failures.push_back(
        "set-up: got no more memory for weights, caches and arenas (a smaller model or workload would fit)");
    return result;
  } catch (const std::exception &error) {
    result.refused = true;
    result.failures.push_back(fmt::format("set-up: {}", error.what()));
    return result;
  }
  result.setup_s = std::chrono::duration<double>(Clock::now() - began).count();
  result.tokens_per_step = state.program.batch.tokens;
  result.placeholders = state.placeholders;
  result.weight_bytes = state.weight_bytes;
  result.arena_bytes = state.arena_bytes;
  result.kv_bytes = state.kv_bytes;
  if (options.trace)
    for (int64_t rank = 0; rank < plan.world; ++rank)
      options.trace->name_rank(rank, plan.topology);

  Execution execution(plan, options, state);
  execution.bind();
  execution.dump = dump.get();
  run_threads(execution);

  add_steps(state, result);
  add_times(plan, state, result);
  result.interrupted = result.steps < options.steps && options.stop && options.stop->load();
  if (state.comms->poisoned())
    result.failures.push_back(state.comms->report());
  for (const auto &rank : state.ranks) {
    result.sent += rank->rows_sent;
    result.received += rank->rows_received;
    if (rank->kv_blocks >= 0 && (result.kv_blocks < 0 || rank->kv_blocks < result.kv_blocks))
      result.kv_blocks = rank->kv_blocks;
  }
  result.sent_bytes = state.comms->sent_bytes();
  result.received_bytes = state.comms->received_bytes();
  if (!result.failures.empty()) {
    const Rank &first = *state.ranks[0];
    result.collectives_expected = sum(ledger_counts(plan, first, false)) * result.steps;
    result.collectives_issued = sum(first.issued);
    result.load_expected = sum(ledger_counts(plan, first, true));
    result.load_issued = sum(first.issued_at_load);
    return result; // what a failed run did not send or compute says nothing
  }
  compare_with_ledger(plan, state, true, result);
  compare_with_ledger(plan, state, false, result);
  if (result.sent != result.received || result.sent_bytes != result.received_bytes)
    result.failures.push_back(
        fmt::format("got {} rows and {} bytes received, expected the {} rows and {} bytes sent",
                    result.received, result.received_bytes, result.sent, result.sent_bytes));
  if (dump)
    try {
      say(fmt::format("writing {}", options.dump));
      dump->write(state, result.steps);
    } catch (const std::exception &error) {
      result.failures.push_back(error.what());
    }
  if (options.verify && !result.interrupted) { // who interrupts does not want to wait for the reference
    say("comparing with the reference");
    result.verify = verify_run(plan, state, result.steps, threads, options.base_dir);
    if (!result.verify.ok)
      result.failures.push_back("outputs are not equal to the reference");
  }
  return result;
}

} // namespace paratope
