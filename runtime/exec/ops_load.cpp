// SPDX-License-Identifier: Apache-2.0
//
// What happens once, before the first step: the ranks agree on the KV pages all of them have, every
// communicator is used once (one that is created when it is first needed would show up in the middle of a
// step), and the scales of Engram tables go to every rank.
//
//     rank 0  scales of rows 0 … n−1    ┐                  [ 0 … n−1 | n … 2n−1 | … ]  on every rank,
//     rank 1  scales of rows n … 2n−1   ┴─ all-gather ──▶  kept beside the weights
#include "kernels/engram/op.h"
#include "runtime/exec/op.h"

#include <limits>

#include <fmt/format.h>

namespace paratope {
namespace {

void reduce_word(Call &call, comm::Reduce reduce) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator_of(call);
  pending.bytes = 8;
  pending.ticket =
      pending.communicator->all_reduce({site_of(call), &pending.word, &pending.word_result, 1, reduce});
}

// A rank without a cache leaves the choice to the others.
void run_kv_blocks(Call &call) {
  pending_of(call).word = call.rank.serving ? call.rank.cache.pages() : std::numeric_limits<int64_t>::max();
  reduce_word(call, comm::Reduce::min_i64);
}

void finish_kv_blocks(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator->complete(pending.ticket);
  call.rank.kv_blocks = pending.word_result;
}

void run_warm_up(Call &call) {
  pending_of(call).word = 0;
  reduce_word(call, comm::Reduce::max_i64);
}

void finish_warm_up(Call &call) { pending_of(call).communicator->complete(pending_of(call).ticket); }

void run_gather_scales(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator_of(call);
  const plan::Model &model = call.program.plan->model;
  int64_t members = pending.communicator->size(), part = call.integer("rows_per_part"),
          groups = engram_scale_groups(model.engram_dim), first = pending.communicator->rank() * part;
  pending.mine.resize(static_cast<size_t>(part * groups));
  call.program.store.fill(fmt::format("layers.{}.engram.scale", call.instruction.layer),
                          init_named("gain", 1), first * groups, part * groups, pending.mine.data());
  std::vector<float> &all = call.rank.scales[static_cast<size_t>(call.integer("table"))];
  all.resize(static_cast<size_t>(members * part * groups));
  pending.rows_of.resize(static_cast<size_t>(members));
  pending.parts = {{pending.mine.data(), all.data(), groups * 4}};
  pending.bytes = part * groups * 4;
  pending.ticket =
      pending.communicator->all_gather({site_of(call), pending.parts, part, members * part, pending.rows_of});
}

void finish_gather_scales(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator->complete(pending.ticket);
  pending.mine = {}; // nobody reads it again
}

constexpr OpEntry ops[] = {{"kv_blocks", run_kv_blocks, finish_kv_blocks},
                           {"warm_up", run_warm_up, finish_warm_up},
                           {"gather_scales", run_gather_scales, finish_gather_scales}};

} // namespace

std::span<const OpEntry> load_ops() { return ops; }

} // namespace paratope
