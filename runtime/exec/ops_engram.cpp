// SPDX-License-Identifier: Apache-2.0
//
// Engram: hash, fetch, gate. A fetch is one instruction of two messages: row numbers to their owners, rows
// back.
//
//     issue   rows ──▶ owner = row div rows_per_part     [ row … ]      8 bytes each
//     await   owner gathers and answers                  [ row values ] D f32 each, in the order asked
//             value = stored row · its scales, which were gathered at load
//
// A table-only rank asks for nothing, and answers.
//
// An owner takes the rows it is asked for from the store of weights (it draws them, or reads them from the
// mapped file) instead of holding millions that nobody reads in a run this short.
#include "kernels/engram/op.h"
#include "runtime/exec/exchange.h"

#include <fmt/format.h>

namespace paratope {
namespace {

void run_engram_hash(Call &call) {
  call.check_whole_batch(0);
  for (const EngramHash &hash : call.program.hashes)
    if (hash.layer == call.instruction.layer)
      return engram_hash(hash, call.input_i32(0), call.input_i32(1), call.rank.history,
                         call.output_i64(0, call.rows(0)), call.sequences(0));
  call.fail(fmt::format("got layer {}, expected one of the model's engram_layers", call.instruction.layer));
}

void run_engram_gate(Call &call) {
  ConstRows wide = call.input(0), feats = call.input(1);
  int64_t streams = call.integer("streams"), hidden = call.program.plan->model.hidden;
  engram_gate(wide, streams, feats, call.weight(0, {(streams + 1) * hidden, feats.row_size}),
              call.weight(1, {streams * hidden}), call.weight(2, {streams * hidden}), call.number("eps"),
              call.output(0, wide.rows));
}

int64_t owner_of(Call &call, int64_t row, int64_t members) {
  int64_t owner = row / call.integer("rows_per_part");
  if (row < 0 || owner >= members)
    call.fail(fmt::format("got table row {}, expected 0 to {} ({} parts)", row,
                          members * call.integer("rows_per_part") - 1, members));
  return owner;
}

void run_fetch(Call &call) {
  if (call.integer("rows_per_part") < 1)
    call.fail(fmt::format("got rows_per_part {}, expected at least 1", call.integer("rows_per_part")));
  comm::Communicator &communicator = communicator_of(call);
  int64_t members = communicator.size();
  Exchange &exchange = take_exchange(call.rank, members);
  std::span<const int64_t> rows = call.input_i64(0);
  int64_t used = 0;
  auto *sent = reinterpret_cast<int64_t *>(append(exchange, used, static_cast<int64_t>(rows.size()) * 8));
  for (int64_t row : rows)
    exchange.send_bytes[static_cast<size_t>(owner_of(call, row, members))] += 8;
  std::vector<int64_t> place(static_cast<size_t>(members));
  for (size_t m = 1; m < place.size(); ++m)
    place[m] = place[m - 1] + exchange.send_bytes[m - 1] / 8;
  for (int64_t row : rows)
    sent[place[static_cast<size_t>(owner_of(call, row, members))]++] = row;
  issue_exchange(call, communicator, exchange);
}

void finish_fetch(Call &call) {
  Pending &pending = pending_of(call);
  comm::Communicator &communicator = *pending.communicator;
  communicator.complete(pending.ticket);
  Exchange &exchange = *pending.exchange;
  std::span<const int64_t> rows = call.input_i64(0);
  const plan::Buffer &output = call.output_buffer(0);
  int64_t per_row = call.input_buffer(0).row_size, dim = output.row_size / per_row;
  const plan::Model &model = call.program.plan->model;
  check_equal("fetch", "row size of the output", output.row_size, per_row * model.engram_dim);
  auto table = static_cast<size_t>(call.integer("table"));
  if (table >= model.engram_layers.size())
    call.fail(fmt::format("got table {}, expected 0 to {}", table,
                          static_cast<int64_t>(model.engram_layers.size()) - 1));
  const WeightStore &store = call.program.store;
  std::string name = fmt::format("layers.{}.engram.table", model.engram_layers[table]);
  Init init = init_named("normal", 1);

  // Answer what arrived.
  int64_t used = 0;
  const std::byte *asked = exchange.arrived.data();
  for (size_t s = 0; s < exchange.arrived_bytes.size(); ++s) {
    int64_t count = exchange.arrived_bytes[s] / 8;
    auto *values = reinterpret_cast<float *>(append(exchange, used, count * dim * 4));
    for (int64_t i = 0; i < count; ++i, asked += 8) {
      int64_t row;
      std::memcpy(&row, asked, 8);
      if (owner_of(call, row, communicator.size()) != communicator.rank())
        call.fail(fmt::format("got a request for row {}, which member {} owns", row,
                              owner_of(call, row, communicator.size())));
      store.fill(name, init, row * dim, dim, values + i * dim);
    }
    exchange.send_bytes[s] = count * dim * 4;
  }
  issue_exchange(call, communicator, exchange);
  communicator.complete(pending.ticket);
  pending.active = false;

  // Put the answers where they were asked for.
  std::vector<const std::byte *> next(exchange.arrived_bytes.size());
  const std::byte *at = exchange.arrived.data();
  for (size_t m = 0; m < next.size(); ++m) {
    next[m] = at;
    at += exchange.arrived_bytes[m];
  }
  Rows x = call.output(0, call.rows(0));
  for (size_t i = 0; i < rows.size(); ++i) {
    auto owner = static_cast<size_t>(owner_of(call, rows[i], communicator.size()));
    std::memcpy(x.data + static_cast<int64_t>(i) * dim, next[owner], static_cast<size_t>(dim * 4));
    next[owner] += dim * 4;
  }
  const std::vector<float> &scales = call.rank.scales[table];
  if (scales.empty() && !rows.empty())
    call.fail(fmt::format("got no scales of table {} on this rank, expected a gather_scales over it at load",
                          table));
  engram_scale(rows, scales.data(), static_cast<int64_t>(scales.size()) / engram_scale_groups(dim),
               {x.data, static_cast<int64_t>(rows.size()), dim});
  give_back(call.rank, exchange);
  pending.exchange = nullptr;
}

constexpr OpEntry ops[] = {
    {"engram_hash", run_engram_hash},
    {"engram_gate", run_engram_gate},
    {"fetch", run_fetch, finish_fetch},
};

} // namespace

std::span<const OpEntry> engram_ops() { return ops; }

} // namespace paratope
