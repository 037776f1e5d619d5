// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/exchange.h"

#include <numeric>

namespace paratope {

Exchange &take_exchange(Rank &rank, int64_t members) {
  if (rank.free_exchanges.empty()) {
    rank.exchanges.push_back(std::make_unique<Exchange>());
    rank.free_exchanges.push_back(rank.exchanges.back().get());
  }
  Exchange &exchange = *rank.free_exchanges.back();
  rank.free_exchanges.pop_back();
  exchange.send_bytes.assign(static_cast<size_t>(members), 0);
  exchange.arrived_bytes.assign(static_cast<size_t>(members), 0);
  return exchange;
}

void give_back(Rank &rank, Exchange &exchange) { rank.free_exchanges.push_back(&exchange); }

std::byte *append(Exchange &exchange, int64_t &used, int64_t bytes) {
  auto needed = static_cast<size_t>(used + bytes);
  if (exchange.send.size() < needed)
    exchange.send.resize(std::max(needed, exchange.send.size() * 2));
  std::byte *at = exchange.send.data() + used;
  used += bytes;
  return at;
}

void issue_exchange(Call &call, comm::Communicator &communicator, Exchange &exchange) {
  Pending &pending = pending_of(call);
  pending.communicator = &communicator;
  pending.exchange = &exchange;
  pending.bytes = std::accumulate(exchange.send_bytes.begin(), exchange.send_bytes.end(), int64_t{0});
  pending.ticket = communicator.all_to_all(
      {site_of(call), exchange.send.data(), exchange.send_bytes, &exchange.arrived, exchange.arrived_bytes});
}

} // namespace paratope
