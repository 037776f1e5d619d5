// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine: the pure packing of kernels/moe around an all-to-all of bytes. Each token goes once
// to every rank that holds a slot it chose; sums come back the same way.
//
//     dispatch, one message a destination      [ tokens | entries | entry … | row … ]
//                                                8 bytes  8 bytes   12 each   H f32 each
//     combine, one message a source            [ sum … ]   H f32 for each token it sent, in its order
//
// Member d of the communicator must be block d of axis ep (checked when a world is set up).
#include "runtime/exec/exchange.h"

#include <fmt/format.h>

namespace paratope {
namespace {

struct Header {
  int64_t tokens = 0, entries = 0;
};

void run_dispatch(Call &call) {
  comm::Communicator &communicator = communicator_of(call);
  Exchange &exchange = take_exchange(call.rank, communicator.size());
  ConstRows x = call.input(0);
  exchange.tokens = call.tokens(0);
  pack_dispatch(call.input_i32(1), call.input(2), exchange.tokens, call.program.slots, exchange.lists);
  int64_t used = 0;
  for (size_t d = 0; d < exchange.lists.size(); ++d) {
    const DispatchList &list = exchange.lists[d];
    int64_t start = used;
    Header header{static_cast<int64_t>(list.tokens.size()), static_cast<int64_t>(list.entries.size())};
    std::memcpy(append(exchange, used, sizeof header), &header, sizeof header);
    auto entry_bytes = header.entries * static_cast<int64_t>(sizeof(SlotEntry));
    std::byte *entries = append(exchange, used, entry_bytes);
    if (entry_bytes > 0)
      std::memcpy(entries, list.entries.data(), static_cast<size_t>(entry_bytes));
    auto *rows = reinterpret_cast<float *>(append(exchange, used, header.tokens * x.row_size * 4));
    pack_rows(x, list, {rows, header.tokens, x.row_size});
    exchange.send_bytes[d] = used - start;
    call.rank.rows_sent += header.entries;
  }
  issue_exchange(call, communicator, exchange);
}

void finish_dispatch(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator->complete(pending.ticket);
  pending.active = false;
  Exchange &exchange = *pending.exchange;
  int64_t row_size = call.output_buffer(0).row_size;
  size_t members = exchange.arrived_bytes.size();
  std::vector<const DispatchList *> lists(members);
  std::vector<ConstRows> rows(members);
  exchange.received.resize(members);
  const std::byte *at = exchange.arrived.data();
  for (size_t s = 0; s < members; ++s) {
    Header header;
    std::memcpy(&header, at, sizeof header);
    const std::byte *entries = at + sizeof header;
    int64_t entry_bytes = header.entries * static_cast<int64_t>(sizeof(SlotEntry));
    if (static_cast<int64_t>(sizeof header) + entry_bytes + header.tokens * row_size * 4 !=
        exchange.arrived_bytes[s])
      call.fail(fmt::format("got {} bytes from member {}, expected {} tokens of {} f32 and {} entries",
                            exchange.arrived_bytes[s], s, header.tokens, row_size, header.entries));
    DispatchList &list = exchange.received[s];
    list.tokens.resize(static_cast<size_t>(header.tokens)); // only their number means something here
    list.entries.resize(static_cast<size_t>(header.entries));
    if (entry_bytes > 0)
      std::memcpy(list.entries.data(), entries, static_cast<size_t>(entry_bytes));
    lists[s] = &list;
    rows[s] = {reinterpret_cast<const float *>(entries + entry_bytes), header.tokens, row_size};
    at += exchange.arrived_bytes[s];
  }
  order_rows(lists, call.program.plan->experts.local, exchange.order, call.output_buffer(0).rows);
  expand_rows(rows, exchange.order, call.output(0, exchange.order.rows(), {}));
  call.rank.rows_received += exchange.order.rows();
  call.rank.tables[call.instruction.outputs[1]] = &exchange;
}

void run_combine(Call &call) {
  auto table = call.rank.tables.find(call.instruction.inputs[1]);
  if (table == call.rank.tables.end())
    call.fail("got a table that no dispatch has filled, or that another combine has used");
  Exchange &exchange = *table->second;
  call.rank.tables.erase(table);
  comm::Communicator &communicator = communicator_of(call);
  check_equal("combine", "members", communicator.size(), static_cast<int64_t>(exchange.lists.size()));
  ConstRows rows = call.input(0);
  int64_t used = 0;
  for (size_t s = 0; s < exchange.received.size(); ++s) {
    auto tokens = static_cast<int64_t>(exchange.received[s].tokens.size());
    int64_t bytes = tokens * rows.row_size * 4;
    auto *sums = reinterpret_cast<float *>(append(exchange, used, bytes));
    combine_rows(rows, exchange.order, static_cast<int64_t>(s), {sums, tokens, rows.row_size});
    exchange.send_bytes[s] = bytes;
  }
  // The output's place is taken when the answer is there: until then it may share memory with anything.
  issue_exchange(call, communicator, exchange);
}

void finish_combine(Call &call) {
  Pending &pending = pending_of(call);
  pending.communicator->complete(pending.ticket);
  pending.active = false;
  Exchange &exchange = *pending.exchange;
  auto num_tokens = static_cast<int64_t>(exchange.tokens.size());
  std::vector<ConstRows> returned(exchange.lists.size());
  Rows y = call.output(0, num_tokens, exchange.tokens);
  const std::byte *at = exchange.arrived.data();
  for (size_t d = 0; d < returned.size(); ++d) {
    auto tokens = static_cast<int64_t>(exchange.lists[d].tokens.size());
    if (exchange.arrived_bytes[d] != tokens * y.row_size * 4)
      call.fail(fmt::format("got {} bytes from member {}, expected sums of {} tokens of {} f32",
                            exchange.arrived_bytes[d], d, tokens, y.row_size));
    returned[d] = {reinterpret_cast<const float *>(at), tokens, y.row_size};
    at += exchange.arrived_bytes[d];
  }
  ConstRows shared;
  if (call.instruction.inputs.size() == 3)
    shared = call.input(2);
  combine_accumulate(exchange.lists, returned, shared, y);
  give_back(call.rank, exchange);
  pending.exchange = nullptr;
}

constexpr OpEntry ops[] = {{"dispatch", run_dispatch, finish_dispatch},
                           {"combine", run_combine, finish_combine}};

} // namespace

std::span<const OpEntry> exchange_ops() { return ops; }

} // namespace paratope
