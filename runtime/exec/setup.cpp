// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/setup.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/engram/op.h"
#include "runtime/comm/error.h"
#include "runtime/plan/batch.h"
#include "runtime/weights/shard.h"
#include "runtime/weights/state.h"

namespace paratope {
namespace {

const plan::Axis &axis_named(const plan::Plan &plan, const std::string &name) {
  for (const plan::Axis &axis : plan.axes)
    if (axis.name == name)
      return axis;
  throw RuntimeError(fmt::format("got a plan without axis {}, which is needed to run it", name));
}

// Runs task(0) … task(count − 1) on `threads` threads; the first exception is thrown again here.
void parallel(int64_t threads, size_t count, const std::function<void(size_t)> &task) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++)
      try {
        task(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        failure = failure ? failure : std::current_exception();
        next = count;
      }
  };
  std::vector<std::thread> workers;
  for (int64_t t = 1; t < std::min<int64_t>(threads, static_cast<int64_t>(count)); ++t)
    try {
      workers.emplace_back(work);
    } catch (const std::system_error &) {
      break; // fewer hands do the same work
    }
  work();
  for (std::thread &worker : workers)
    worker.join();
  if (failure)
    std::rethrow_exception(failure);
}

// What can only be said with the ranks in hand. The plan's own checks (runtime/plan/check.h) have passed.
void check_runnable(const plan::Plan &plan) {
  for (const auto *program : {&plan.load, &plan.instructions})
    for (const plan::Instruction &instruction : *program)
      if (instruction.op != "await" && !find_op(instruction.op))
        throw RuntimeError(fmt::format("instruction {}: got op {}, which this backend does not execute",
                                       instruction.id, instruction.op));
  for (const plan::Instruction &instruction : plan.instructions) {
    if (instruction.op != "dispatch" && instruction.op != "combine")
      continue;
    const plan::Axis &ep = axis_named(plan, "ep");
    const plan::Communicator &comm = plan.communicators[static_cast<size_t>(instruction.comm)];
    for (int64_t rank = 0; rank < plan::serving_ranks(plan); ++rank)
      if (comm.size != ep.size || comm.color(rank) == -1 || comm.key(rank) != ep.block(rank))
        throw RuntimeError(fmt::format("instruction {} ({}): got rank {} as member {} of {} in communicator "
                                       "{}, expected its block of axis ep: {} of {}",
                                       instruction.id, instruction.op, rank, comm.key(rank), comm.size,
                                       comm.id, ep.block(rank), ep.size));
  }
}

std::vector<comm::CommunicatorSpec> communicator_specs(const plan::Plan &plan) {
  std::vector<comm::CommunicatorSpec> specs;
  for (const plan::Communicator &c : plan.communicators) {
    std::map<int64_t, std::vector<int64_t>> groups; // by color
    for (int64_t rank = 0; rank < plan.world; ++rank) {
      int64_t color = c.color(rank);
      if (color == -1)
        continue;
      auto &members = groups[color];
      members.resize(static_cast<size_t>(c.size));
      members[static_cast<size_t>(c.key(rank))] = rank;
    }
    comm::CommunicatorSpec spec;
    spec.name = c.groups.empty() ? fmt::format("{}", c.id) : fmt::format("{}", fmt::join(c.groups, "+"));
    for (auto &[color, members] : groups)
      spec.groups.push_back(std::move(members));
    specs.push_back(std::move(spec));
  }
  return specs;
}

// One token that is thrown away, numbered past all others.
void give_placeholder(const plan::Batch &batch, Rank &rank) {
  rank.placeholder = true;
  rank.first_sequence = static_cast<int64_t>(batch.sequences.size()) + rank.engine;
  rank.first_token = batch.tokens + rank.engine;
  rank.sequences = {{0, 1, rank.first_token}};
}

void number_tokens(const plan::Plan &plan, WorldState &state) {
  const plan::Axis &engines = axis_named(plan, plan.engine_axis);
  plan::Batch &batch = state.program.batch;
  batch = plan::batch_of(plan.workload, plan::num_engines(plan));
  for (int64_t e = 0; e < batch.engines(); ++e) {
    bool empty = batch.of_engine(e).empty();
    if (empty && std::find(plan.paths.begin(), plan.paths.end(), "placeholder") == plan.paths.end())
      throw RuntimeError(fmt::format("engine {} has no tokens, and the plan has no placeholder path", e));
    state.placeholders += empty;
  }
  for (auto &rank : state.ranks) {
    for (const plan::Axis &axis : plan.axes)
      rank->blocks[axis.name] = axis.block(rank->rank);
    if (!rank->serving)
      continue;
    rank->engine = engines.block(rank->rank);
    std::span<const plan::Sequence> sequences = batch.of_engine(rank->engine);
    if (sequences.empty()) {
      give_placeholder(batch, *rank);
    } else {
      rank->first_sequence = batch.first_sequence[static_cast<size_t>(rank->engine)];
      rank->first_token = sequences.front().first_token;
      rank->sequences.assign(sequences.begin(), sequences.end());
    }
    for (size_t s = 0; s < rank->sequences.size(); ++s)
      rank->sequence_of.insert(rank->sequence_of.end(), static_cast<size_t>(rank->sequences[s].length),
                               static_cast<int32_t>(s));
    rank->num_tokens = static_cast<int64_t>(rank->sequence_of.size());
  }
}

// Memory that is free for this process, bytes: what the system says is available, or what its container's
// limit leaves (pages of files do not count there: the kernel takes them back).
double available_bytes() {
  auto value_of = [](const char *path, const char *key) {
    std::ifstream file(path);
    for (std::string name, value; file >> name >> value; std::getline(file, value))
      if (name == key)
        return std::strtod(value.c_str(), nullptr);
    return 0.0;
  };
  double available = value_of("/proc/meminfo", "MemAvailable:") * 1024;
  if (available == 0)
    available = std::numeric_limits<double>::infinity(); // not this kind of system: nothing is known
  double limit = 0, used = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit; // "max" leaves it 0
  std::ifstream("/sys/fs/cgroup/memory.current") >> used;
  used -= value_of("/sys/fs/cgroup/memory.stat", "file");
  return limit > 0 ? std::min(available, limit - used) : available;
}

void make_arenas(const plan::Plan &plan, WorldState &state) {
  for (auto &rank : state.ranks) {
    rank->buffers.resize(plan.buffers.size()); // of no rows, and without memory on a table-only rank
    for (const auto &[name, bytes] : plan.arena_bytes) {
      rank->arenas[name] = Arena(static_cast<size_t>(rank->serving ? bytes : 0));
      state.arena_bytes += rank->serving ? bytes : 0;
    }
    for (const plan::Buffer &buffer : plan.buffers)
      if (rank->serving)
        rank->buffers[static_cast<size_t>(buffer.id)].data =
            rank->arenas[buffer.arena].data() + buffer.offset;
    rank->pending.resize(std::max(plan.instructions.size(), plan.load.size()));
    rank->scales.resize(plan.model.engram_layers.size());
    rank->instruction_us.resize(plan.instructions.size());
    for (size_t c = 0; c < plan.communicators.size(); ++c)
      rank->comms.push_back(state.comms->communicator(static_cast<int64_t>(c), rank->rank));
  }
}

// One part of one weight, and the ranks that hold it.
struct ShardTask {
  const plan::Weight *weight;
  AxisBlocks blocks;
  int64_t elements;
  std::vector<size_t> holders;
};

// Ranks whose blocks of the axes a weight is split over are equal hold the same part of it.
std::vector<ShardTask> shard_tasks(const plan::Plan &plan, WorldState &state) {
  std::vector<ShardTask> tasks;
  for (const plan::Weight &weight : plan.weights) {
    std::map<std::vector<int64_t>, size_t> parts;
    for (size_t r = 0; r < state.ranks.size(); ++r) {
      const Rank &rank = *state.ranks[r];
      if (!rank.serving)
        continue;
      std::vector<int64_t> key;
      for (const plan::WeightSplit &split : weight.splits)
        key.push_back(rank.blocks.at(split.axis));
      auto [it, fresh] = parts.emplace(key, tasks.size());
      if (fresh) {
        ShardTask task{&weight, {}, 0, {}};
        for (const plan::WeightSplit &split : weight.splits)
          task.blocks[split.axis] = {rank.blocks.at(split.axis), axis_named(plan, split.axis).size};
        std::vector<int64_t> shape = shard_shape(weight, task.blocks, plan.experts);
        task.elements = num_elements(shape);
        if (static_cast<int64_t>(state.program.weight_shapes.size()) == weight.id)
          state.program.weight_shapes.push_back(shape); // blocks are equal: every rank's part has this shape
        tasks.push_back(std::move(task));
      }
      tasks[it->second].holders.push_back(r);
    }
  }
  return tasks;
}

void make_weights(const plan::Plan &plan, const std::vector<ShardTask> &tasks, int64_t threads,
                  WorldState &state) {
  state.shards.resize(tasks.size());
  parallel(threads, tasks.size(), [&](size_t i) {
    state.shards[i].resize(static_cast<size_t>(tasks[i].elements));
    fill_shard(*tasks[i].weight, state.program.store, tasks[i].blocks, plan.experts, state.shards[i].data());
  });
  for (auto &rank : state.ranks)
    rank->weights.resize(plan.weights.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    state.weight_bytes += tasks[i].elements * 4;
    for (size_t r : tasks[i].holders)
      state.ranks[r]->weights[static_cast<size_t>(tasks[i].weight->id)] = state.shards[i].data();
  }
}

// The first dim of the whole entry that a rank holds `local` dims of: 0, or where its kv heads start when
// they are cut (an entry is [key, value] of head 0, then of head 1, …).
int64_t first_dim(const plan::Plan &plan, const Rank &rank, int64_t layer, int64_t local) {
  int64_t whole = whole_entry(plan.model);
  if (local == whole)
    return 0;
  if (plan.model.attention == "gqa" && local % (2 * plan.model.head_dim) == 0)
    for (const plan::Weight &weight : plan.weights)
      if (weight.name == fmt::format("layers.{}.attn.wk", layer))
        for (const plan::WeightSplit &split : weight.splits)
          if (split.dim == 0 && (rank.blocks.at(split.axis) + 1) * local <= whole)
            return rank.blocks.at(split.axis) * local;
  throw RuntimeError(
      fmt::format("layer {}: got cache entries of {} elements, expected {} or an equal part of its kv heads",
                  layer, local, whole));
}

// Tokens a sequence has after `steps` steps; a placeholder's stays one.
int64_t tokens_after(const Rank &rank, const plan::Sequence &sequence, int64_t steps) {
  int64_t added, total;
  if (rank.placeholder)
    return 1;
  if (__builtin_mul_overflow(sequence.length, steps, &added) ||
      __builtin_add_overflow(sequence.history, added, &total) || total > std::numeric_limits<int32_t>::max())
    throw RuntimeError(
        fmt::format("got a context of {} and {} steps of {}, expected positions that fit 32 bits",
                    sequence.history, steps, sequence.length));
  return total;
}

KvCacheOptions cache_options(const plan::Plan &plan, int64_t steps, const Rank &rank) {
  KvCacheOptions options;
  options.sequences = static_cast<int64_t>(rank.sequences.size());
  for (const plan::Sequence &sequence : rank.sequences) {
    int64_t tokens = tokens_after(rank, sequence, steps);
    options.max_tokens = std::max(options.max_tokens, tokens);
    options.pages += (tokens + plan.kv_block_tokens - 1) / plan.kv_block_tokens;
  }
  options.block_tokens = plan.kv_block_tokens;
  options.layers.assign(static_cast<size_t>(plan.model.layers), {1, 0});
  for (const plan::Instruction &instruction : plan.instructions) {
    if (instruction.op == "kv_append") {
      options.layers[static_cast<size_t>(instruction.layer)].entry_size =
          plan.buffers[static_cast<size_t>(instruction.inputs[0])].row_size;
    } else if (instruction.op == "compress_append") {
      options.layers[static_cast<size_t>(instruction.layer)].ratio =
          static_cast<int64_t>(instruction.numbers.at("ratio"));
    }
  }
  return options;
}

void make_cache(const plan::Plan &plan, int64_t steps, Rank &rank) {
  rank.cache = KvCache(cache_options(plan, steps, rank));
  for (size_t s = 0; s < rank.sequences.size(); ++s)
    rank.cache.reserve(static_cast<int64_t>(s), tokens_after(rank, rank.sequences[s], steps));
}

// Bytes a cache of this shape takes. A double: what does not fit may not fit 64 bits either.
double cache_bytes(const KvCacheOptions &options) {
  double per_token = 0;
  for (const KvLayerShape &layer : options.layers) {
    auto entry = static_cast<double>(layer.entry_size);
    per_token += entry + (layer.ratio > 0 ? entry / static_cast<double>(layer.ratio) : 0);
  }
  return 4 * per_token * static_cast<double>(options.pages) * static_cast<double>(options.block_tokens);
}

// What each sequence remembers before the first step. Of a window's layer only what a query can still see is
// made; the rest stays poisoned, so that reading it would show.
void fill_cache(const plan::Plan &plan, Rank &rank, int64_t layer) {
  if (rank.placeholder)
    return;
  const plan::Model &model = plan.model;
  const KvLayerShape &shape = rank.cache.shape().layers[static_cast<size_t>(layer)];
  if (shape.entry_size == 1 && whole_entry(model) != 1)
    return; // no instruction appends to this layer
  int64_t first = first_dim(plan, rank, layer, shape.entry_size);
  int64_t whole = whole_entry(model);
  int64_t window = model.window.empty() ? 0 : model.window[static_cast<size_t>(layer)];
  auto fill = [&](PhiloxKey key, int64_t sequence, int64_t place, float *entry) {
    fill_state_row(key, sequence, place, whole, first, shape.entry_size, entry);
  };
  PhiloxKey kv = state_key(model.seed, StateTensor::kv, layer),
            compressed = state_key(model.seed, StateTensor::kv_compressed, layer);
  PhiloxKey open = state_key(model.seed, StateTensor::kv_open, layer),
            gates = state_key(model.seed, StateTensor::kv_open_gate, layer);
  for (int64_t s = 0; s < static_cast<int64_t>(rank.sequences.size()); ++s) {
    int64_t number = rank.first_sequence + s, context = rank.sequences[static_cast<size_t>(s)].history;
    for (int64_t p = window > 0 ? std::max<int64_t>(0, context - window) : 0; p < context; ++p)
      fill(kv, number, p, rank.cache.token(layer, s, p));
    if (shape.ratio == 0)
      continue;
    for (int64_t j = 0; j < context / shape.ratio; ++j)
      fill(compressed, number, j, rank.cache.compressed(layer, s, j));
    for (int64_t p = context - context % shape.ratio; p < context && shape.ratio > 1; ++p) {
      fill(open, number, p, rank.cache.open_candidate(layer, s, p % shape.ratio));
      fill(gates, number, p, rank.cache.open_gate(layer, s, p % shape.ratio));
    }
  }
}

// The ids that are there before the first step: the first to feed in decode, and those n-grams look back on.
void fill_ids(const plan::Plan &plan, Rank &rank) {
  const plan::Model &model = plan.model;
  rank.ids.assign(rank.sequences.size(), 0);
  int64_t longest = 1;
  for (size_t s = 0; s < rank.sequences.size(); ++s) {
    longest = std::max(longest, rank.sequences[s].length);
    if (!rank.placeholder)
      rank.ids[s] = first_token_id(model.seed, rank.first_sequence + static_cast<int64_t>(s), model.vocab);
  }
  if (model.engram_layers.empty())
    return;
  rank.history = TokenHistory(static_cast<int64_t>(rank.sequences.size()), longest + model.engram_ngram - 1);
  for (int64_t s = 0; s < static_cast<int64_t>(rank.sequences.size()); ++s) {
    int64_t history = rank.sequences[static_cast<size_t>(s)].history;
    for (int64_t p = std::max<int64_t>(0, history - model.engram_ngram + 1); p < history; ++p)
      rank.history.record(s, p, context_token_id(model.seed, rank.first_sequence + s, p, model.vocab));
  }
}

void make_state(const plan::Plan &plan, const RunOptions &options, int64_t threads, WorldState &state) {
  parallel(threads, state.ranks.size(), [&](size_t r) {
    Rank &rank = *state.ranks[r];
    if (!rank.serving)
      return;
    make_cache(plan, options.steps, rank);
    for (int64_t layer = 0; layer < plan.model.layers; ++layer)
      fill_cache(plan, rank, layer);
    fill_ids(plan, rank);
  });
  for (auto &rank : state.ranks)
    state.kv_bytes += rank->cache.bytes();
}

} // namespace

namespace {

// Refuses what would be killed half-way: items and the sum against what is free.
void check_memory(const plan::Plan &plan, const RunOptions &options, const std::vector<ShardTask> &tasks,
                  const WorldState &state) {
  double weights = 0, arenas = 0, caches = 0, scales = 0;
  for (const ShardTask &task : tasks)
    weights += 4 * static_cast<double>(task.elements);
  for (const auto &[name, bytes] : plan.arena_bytes)
    arenas += static_cast<double>(bytes) * static_cast<double>(plan::serving_ranks(plan));
  for (const auto &rank : state.ranks)
    if (rank->serving)
      caches += cache_bytes(cache_options(plan, options.steps, *rank));
  for (const plan::Instruction &instruction : plan.load)
    if (instruction.op == "gather_scales") {
      const plan::Communicator &comm = plan.communicators[static_cast<size_t>(instruction.comm)];
      scales += 4 * instruction.numbers.at("rows_per_part") * static_cast<double>(comm.size) *
                static_cast<double>(comm.size * comm.count) *
                static_cast<double>(engram_scale_groups(plan.model.engram_dim));
    }
  double available = available_bytes(), total = weights + arenas + caches + scales;
  if (total > available)
    throw RuntimeError(fmt::format(
        "got weights {:.3f} GB, arenas {:.3f} GB, caches {:.3f} GB and Engram scales {:.3f} GB on {} "
        "ranks, expected at most the {:.3f} GB of memory here (fewer steps, tokens or context, or a "
        "smaller model, would fit; `paratope run --tiny` shrinks it)",
        weights / 1e9, arenas / 1e9, caches / 1e9, scales / 1e9, plan.world, available / 1e9));
}

} // namespace

int64_t whole_entry(const plan::Model &model) {
  if (model.attention == "latent")
    return model.head_dim;
  if (model.attention == "mla")
    return model.kv_lora + model.rope_dim;
  return 2 * model.kv_heads * model.head_dim;
}

void set_up(const plan::Plan &plan, const RunOptions &options, int64_t threads, WorldState &state) {
  check_runnable(plan);
  const plan::Model &model = plan.model;
  state.program.store = open_weights(model, options.base_dir);
  state.program.plan = &plan;
  state.program.keep_outputs = options.verify || !options.dump.empty();
  if (plan.experts.logical > 0)
    state.program.slots = slot_table(plan.experts.slots, plan.experts.logical,
                                     plan.experts.physical / std::max<int64_t>(plan.experts.local, 1));
  if (plan.experts.logical > 0 && plan.workload.routing.kind != "gate") {
    state.draw = prepare_routing(plan.workload.routing, plan.experts.logical, model.top_k, options.base_dir);
    state.program.draw = &state.draw;
  }
  if (!model.engram_layers.empty())
    state.program.hashes = engram_hashes(
        model.engram_layers, model.engram_ngram, model.engram_heads, model.engram_vocab_per_head,
        model.engram_multipliers.empty()
            ? drawn_multipliers(model.seed, static_cast<int64_t>(model.engram_layers.size()),
                                model.engram_ngram, model.vocab)
            : model.engram_multipliers);
  for (int64_t r = 0; r < plan.world; ++r) {
    state.ranks.push_back(std::make_unique<Rank>());
    state.ranks.back()->rank = r;
    state.ranks.back()->serving = r < plan::serving_ranks(plan);
  }
  comm::InprocOptions comm_options;
  comm_options.ranks = plan.world;
  comm_options.timeout = options.timeout;
  comm_options.max_running = threads < plan.world ? threads : 0;
  state.comms = std::make_unique<comm::InprocWorld>(comm_options, communicator_specs(plan));
  number_tokens(plan, state);
  std::vector<ShardTask> tasks = shard_tasks(plan, state);
  check_memory(plan, options, tasks, state);
  make_arenas(plan, state);
  make_weights(plan, tasks, threads, state);
  make_state(plan, options, threads, state);
}

} // namespace paratope
