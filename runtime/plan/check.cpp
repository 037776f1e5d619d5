// SPDX-License-Identifier: Apache-2.0
//
// The checks of check.h, from the outside in: axes and communicators, then memory and weights; the
// instructions, which use all of these, are check_program.cpp's.
#include "runtime/plan/check.h"

#include <cmath>
#include <set>

#include "runtime/plan/batch.h"
#include "runtime/plan/checker.h"

namespace paratope::plan {

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
  check_engines();
}

// Engines are the blocks of serving ranks; the others' blocks lie behind them.
void Checker::check_engines() {
  if (plan.serving_ranks < 0 || plan.serving_ranks > plan.world)
    return report("/serving_ranks", "got {}, expected 0 (all) to world = {}", plan.serving_ranks, plan.world);
  const Axis *engines = axis(plan.engine_axis);
  if (!engines || !problems.empty())
    return;
  std::set<int64_t> present;
  for (int64_t rank = 0; rank < serving_ranks(plan); ++rank)
    present.insert(engines->block(rank));
  int64_t expected = 0;
  for (int64_t block : present)
    if (block != expected++)
      return report("/engine_axis",
                    "got no serving rank in engine {} of axis {}, expected one in each before {}",
                    expected - 1, plan.engine_axis, block);
}

void Checker::check_model() {
  const Model &m = plan.model;
  positive("/model/hidden", m.hidden);
  positive("/model/layers", m.layers);
  if (positive("/model/vocab", m.vocab) && m.vocab > INT32_MAX)
    report("/model/vocab", "got {}, expected at most {} (ids are i32)", m.vocab, INT32_MAX);
  positive("/model/hyper_connections", m.hyper_connections);
  one_of("/model/attention", m.attention, {"latent", "mla", "gqa"});
  if (m.weights != "synthetic" && !(m.weights.starts_with("safetensors:") && m.weights.size() > 12))
    report("/model/weights", "got \"{}\", expected synthetic or safetensors:DIR", m.weights);
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
  if (w.engine_tokens.empty() && w.phase != "prefill")
    report("/workload/engine_tokens", "got no entries, expected tokens of at least one engine");
  if (w.engine_prompts.empty() && w.phase == "prefill")
    report("/workload/engine_prompts",
           "got no entries, expected prompts of at least one engine ([] for none)");
  for (size_t i = 0; i < w.engine_prompts.size(); ++i)
    for (size_t j = 0; j < w.engine_prompts[i].size(); ++j)
      positive(fmt::format("/workload/engine_prompts/{}/{}", i, j), w.engine_prompts[i][j]);
  for (size_t i = 0; i < w.history.size(); ++i)
    positive(fmt::format("/workload/history/{}", i), w.history[i], 0);
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
    one_of(path + "/category", entry.category, {"dense", "exchange", "control", "fetch", "context", "load"});
  }
}

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
  checker.check_load();
  checker.check_instructions();
  checker.check_kernels();
  return checker.problems;
}

} // namespace paratope::plan
