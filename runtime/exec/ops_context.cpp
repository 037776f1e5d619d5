// SPDX-License-Identifier: Apache-2.0
//
// Context parallelism and output groups: rows of a batch change hands between the ranks of an engine
// (mirror), and columns of rows between those of a group (all_to_all).
//
//     flat    0 1 2 3 4 5 6 7 8 9      mirror_pick, cp 2: rank 0 gets 0 1 2 9 · ·, rank 1 gets 3 4 5 6 7 8
//     all_gather over cp, then mirror_restore: flat again
//
//     columns   rank 0 [a0 b0]           rank 0 [a0]   rank 1 [b0]     rows: the way back
//               rank 1 [a1 b1]    ──▶           [a1]          [b1]
//               (p·K wide)               (K wide, rows of every member)
//
// An all_to_all of columns sends, for each member:  [ token … | row … ]   8 bytes and K f32 a row.
#include "kernels/context/zigzag.h"
#include "runtime/exec/exchange.h"

#include <numeric>

#include <fmt/format.h>

#include "runtime/plan/check.h"

namespace paratope {
namespace {

std::vector<int64_t> lengths_of(const Rank &rank) {
  std::vector<int64_t> lengths;
  for (const plan::Sequence &sequence : rank.sequences)
    lengths.push_back(sequence.length);
  return lengths;
}

void check_equal_rows(const Call &call, const plan::Buffer &from, const plan::Buffer &to) {
  if (from.row_size != to.row_size || from.dtype != to.dtype)
    call.fail(fmt::format("got rows of {} {} for rows of {} {}, expected equal rows", to.row_size, to.dtype,
                          from.row_size, from.dtype));
}

int64_t row_bytes(const plan::Buffer &buffer) { return buffer.row_size * plan::dtype_bytes(buffer.dtype); }

void run_mirror_pick(Call &call) {
  const std::string &axis = call.word("axis");
  std::vector<int64_t> index =
      mirror_index(lengths_of(call.rank), call.axis_size(axis), call.rank.blocks.at(axis));
  std::vector<int64_t> tokens(index.size());
  for (size_t i = 0; i < index.size(); ++i)
    tokens[i] = index[i] < 0 ? padding : call.rank.first_token + index[i];
  for (size_t operand = 0; operand < call.instruction.inputs.size(); ++operand) {
    const plan::Buffer &from = call.input_buffer(operand);
    check_equal_rows(call, from, call.output_buffer(operand));
    call.check_whole_batch(operand);
    int64_t bytes = row_bytes(from);
    const std::byte *source = call.rank.buffers[static_cast<size_t>(from.id)].data;
    std::byte *target = call.output_bytes(operand, static_cast<int64_t>(index.size()), tokens);
    for (int64_t place : index) {
      if (place < 0)
        std::memset(target, 0, static_cast<size_t>(bytes));
      else
        std::memcpy(target, source + place * bytes, static_cast<size_t>(bytes));
      target += bytes;
    }
  }
}

void run_mirror_restore(Call &call) {
  int64_t cp = call.axis_size(call.word("axis"));
  const plan::Buffer &from = call.input_buffer(0);
  check_equal_rows(call, from, call.output_buffer(0));
  std::vector<int64_t> lengths = lengths_of(call.rank), index = reverse_index(lengths, cp);
  check_equal("mirror_restore", "rows", call.rows(0), cp * mirror_length(lengths, cp));
  std::vector<int64_t> &tokens = call.rank.scratch_tokens;
  tokens.resize(index.size());
  std::iota(tokens.begin(), tokens.end(), call.rank.first_token);
  for (size_t i = 0; i < index.size(); ++i)
    if (int64_t got = call.tokens(0)[static_cast<size_t>(index[i])]; got != tokens[i])
      call.fail(
          fmt::format("got token {} in row {}, expected {} (rows gathered over the axis, by its blocks)", got,
                      index[i], tokens[i]));
  int64_t bytes = row_bytes(from);
  const std::byte *source = call.rank.buffers[static_cast<size_t>(from.id)].data;
  std::byte *target = call.output_bytes(0, static_cast<int64_t>(index.size()), tokens);
  for (int64_t place : index) {
    std::memcpy(target, source + place * bytes, static_cast<size_t>(bytes));
    target += bytes;
  }
}

// Every member's block of columns, behind the tokens of the rows.
void send_columns(Call &call, comm::Communicator &communicator, Exchange &exchange, ConstRows x) {
  int64_t members = communicator.size(), width = call.output_buffer(0).row_size, used = 0;
  check_equal("all_to_all", "row size of x", x.row_size, members * width);
  Pending &pending = pending_of(call);
  pending.tokens = call.tokens(0);
  if (static_cast<int64_t>(pending.tokens.size()) != x.rows)
    call.fail("got rows without tokens, expected the rows of tokens");
  for (int64_t m = 0; m < members; ++m) {
    int64_t start = used;
    std::byte *tokens = append(exchange, used, x.rows * 8);
    if (x.rows > 0)
      std::memcpy(tokens, pending.tokens.data(), static_cast<size_t>(x.rows * 8));
    std::byte *rows = append(exchange, used, x.rows * width * 4);
    for (int64_t t = 0; t < x.rows; ++t)
      std::memcpy(rows + t * width * 4, x.row(t) + m * width, static_cast<size_t>(width * 4));
    exchange.send_bytes[static_cast<size_t>(m)] = used - start;
  }
}

const Pending &undone_by(const Call &call) {
  return call.rank.pending[static_cast<size_t>(call.integer("of"))];
}

// Every member's rows; all of this rank's columns of them.
void send_rows(Call &call, comm::Communicator &communicator, Exchange &exchange, ConstRows x) {
  const Pending &columns = undone_by(call);
  check_equal("all_to_all", "row size of y", call.output_buffer(0).row_size,
              communicator.size() * x.row_size);
  check_equal("all_to_all", "rows", x.rows,
              std::accumulate(columns.rows_of.begin(), columns.rows_of.end(), int64_t{0}));
  int64_t used = 0;
  std::byte *rows = append(exchange, used, x.rows * x.row_size * 4);
  if (x.rows > 0)
    std::memcpy(rows, x.data, static_cast<size_t>(x.rows * x.row_size * 4));
  for (size_t m = 0; m < exchange.send_bytes.size(); ++m)
    exchange.send_bytes[m] = columns.rows_of[m] * x.row_size * 4;
}

void run_all_to_all(Call &call) {
  comm::Communicator &communicator = communicator_of(call);
  Exchange &exchange = take_exchange(call.rank, communicator.size());
  if (call.word("split") == "columns")
    send_columns(call, communicator, exchange, call.input(0));
  else
    send_rows(call, communicator, exchange, call.input(0));
  issue_exchange(call, communicator, exchange);
}

void take_columns(Call &call, Pending &pending) {
  const Exchange &exchange = *pending.exchange;
  int64_t width = call.output_buffer(0).row_size, row = 8 + width * 4;
  pending.rows_of.clear();
  for (size_t m = 0; m < exchange.arrived_bytes.size(); ++m) {
    if (exchange.arrived_bytes[m] % row != 0)
      call.fail(fmt::format("got {} bytes from member {}, expected a multiple of {}: a token and {} f32",
                            exchange.arrived_bytes[m], m, row, width));
    pending.rows_of.push_back(exchange.arrived_bytes[m] / row);
  }
  int64_t total = std::accumulate(pending.rows_of.begin(), pending.rows_of.end(), int64_t{0}), first = 0;
  pending.gathered.resize(static_cast<size_t>(total));
  const std::byte *at = exchange.arrived.data();
  for (int64_t rows : pending.rows_of) {
    if (rows > 0)
      std::memcpy(pending.gathered.data() + first, at, static_cast<size_t>(rows * 8));
    at += rows * row;
    first += rows;
  }
  Rows y = call.output(0, total, pending.gathered);
  at = exchange.arrived.data();
  first = 0;
  for (int64_t rows : pending.rows_of) {
    if (rows > 0)
      std::memcpy(y.row(first), at + rows * 8, static_cast<size_t>(rows * width * 4));
    at += rows * row;
    first += rows;
  }
}

void take_rows(Call &call, Pending &pending) {
  const Pending &columns = undone_by(call);
  const Exchange &exchange = *pending.exchange;
  Rows y = call.output(0, static_cast<int64_t>(columns.tokens.size()), columns.tokens);
  auto members = static_cast<int64_t>(exchange.arrived_bytes.size());
  int64_t width = y.row_size / members;
  const std::byte *at = exchange.arrived.data();
  for (int64_t m = 0; m < members; ++m) {
    check_equal("all_to_all", "bytes of a member", exchange.arrived_bytes[static_cast<size_t>(m)],
                y.rows * width * 4);
    for (int64_t t = 0; t < y.rows; ++t, at += width * 4)
      std::memcpy(y.row(t) + m * width, at, static_cast<size_t>(width * 4));
  }
}

void finish_all_to_all(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator->complete(pending.ticket);
  pending.active = false;
  if (call.word("split") == "columns")
    take_columns(call, pending);
  else
    take_rows(call, pending);
  give_back(call.rank, *pending.exchange);
  pending.exchange = nullptr;
}

constexpr OpEntry ops[] = {{"mirror_pick", run_mirror_pick},
                           {"mirror_restore", run_mirror_restore},
                           {"all_to_all", run_all_to_all, finish_all_to_all}};

} // namespace

std::span<const OpEntry> context_ops() { return ops; }

} // namespace paratope
