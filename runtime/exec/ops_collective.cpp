// SPDX-License-Identifier: Apache-2.0
//
// Collectives that move whole buffers. Each is two functions: run issues it from the arena (no copy), finish
// completes it and says what the outputs hold. The tokens of gathered rows ride along as one more array, 8
// bytes a row, since a plan's ops ask which token a row is.
#include "runtime/exec/op.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "runtime/plan/check.h"

namespace paratope {
namespace {

void complete(Pending &pending) {
  pending.communicator->complete(pending.ticket);
  pending.active = false;
}

void run_vote(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator_of(call);
  pending.word = call.integer("value", 1) != 0 && !call.rank.placeholder;
  pending.bytes = 8;
  pending.ticket = pending.communicator->all_reduce(
      {site_of(call), &pending.word, &pending.word_result, 1, comm::Reduce::max_i64});
}

void run_all_reduce(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator_of(call);
  ConstRows x = call.input(0);
  Rows y = call.output(0, x.rows);
  check_equal("all_reduce", "row size of the output", y.row_size, x.row_size);
  pending.bytes = x.rows * x.row_size * 4;
  pending.ticket = pending.communicator->all_reduce(
      {site_of(call), x.data, y.data, x.rows * x.row_size, comm::Reduce::sum_f32});
}

void run_all_gather(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator_of(call);
  auto size = static_cast<size_t>(pending.communicator->size());
  int64_t rows = call.rows(0), max_rows = std::numeric_limits<int64_t>::max();
  pending.tokens = call.tokens(0);
  if (static_cast<int64_t>(pending.tokens.size()) != rows)
    call.fail("got rows without tokens, expected the rows of tokens");
  pending.parts.clear();
  pending.bytes = 0;
  for (size_t i = 0; i < call.instruction.inputs.size(); ++i) {
    const plan::Buffer &from = call.input_buffer(i), &to = call.output_buffer(i);
    check_equal("all_gather", "row size of an output", to.row_size, from.row_size);
    check_equal("all_gather", "rows of an operand", call.rows(i), rows);
    max_rows = std::min(max_rows, to.rows);
    int64_t row_bytes = from.row_size * plan::dtype_bytes(from.dtype);
    pending.parts.push_back({call.rank.buffers[static_cast<size_t>(from.id)].data,
                             call.rank.buffers[static_cast<size_t>(to.id)].data, row_bytes});
    pending.bytes += rows * row_bytes;
  }
  pending.gathered.resize(static_cast<size_t>(max_rows));
  pending.parts.push_back({pending.tokens.data(), pending.gathered.data(), 8});
  pending.rows_of.resize(size);
  pending.ticket =
      pending.communicator->all_gather({site_of(call), pending.parts, rows, max_rows, pending.rows_of});
}

void finish_all_gather(Call &call) {
  Pending &pending = pending_of(call);
  complete(pending);
  int64_t rows = std::accumulate(pending.rows_of.begin(), pending.rows_of.end(), int64_t{0});
  std::span<const int64_t> tokens(pending.gathered.data(), static_cast<size_t>(rows));
  for (size_t i = 0; i < call.instruction.outputs.size(); ++i)
    call.output_bytes(i, rows, tokens);
}

void run_reduce_scatter(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator_of(call);
  const Pending &gather = call.rank.pending[static_cast<size_t>(call.integer("of"))];
  if (gather.communicator != pending.communicator)
    call.fail(fmt::format("got rows that instruction {} made over another communicator, expected the same",
                          call.integer("of")));
  ConstRows x = call.input(0);
  check_equal("reduce_scatter", "rows", x.rows,
              std::accumulate(gather.rows_of.begin(), gather.rows_of.end(), int64_t{0}));
  pending.rows_of = gather.rows_of;
  int64_t mine = pending.rows_of[static_cast<size_t>(pending.communicator->rank())];
  Rows y = call.output(0, mine, gather.tokens);
  check_equal("reduce_scatter", "row size of the output", y.row_size, x.row_size);
  pending.bytes = (x.rows - mine) * x.row_size * 4;
  pending.ticket =
      pending.communicator->reduce_scatter({site_of(call), x.data, y.data, x.row_size, pending.rows_of});
}

void finish_in_place(Call &call) { complete(pending_of(call)); }

constexpr OpEntry ops[] = {
    {"vote", run_vote, finish_in_place},
    {"all_reduce", run_all_reduce, finish_in_place},
    {"all_gather", run_all_gather, finish_all_gather},
    {"reduce_scatter", run_reduce_scatter, finish_in_place},
};

} // namespace

std::span<const OpEntry> collective_ops() { return ops; }

} // namespace paratope
