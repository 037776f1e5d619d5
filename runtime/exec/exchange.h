// SPDX-License-Identifier: Apache-2.0
//
// What the exchanges (dispatch and combine, fetch) have in common: a pool of records, and messages packed
// back to back for each member of a group.
//
//     send     [ to member 0 | to member 1 | … ]      send_bytes     one count a member
//     arrived  [ from member 0 | from member 1 | … ]  arrived_bytes
#pragma once

#include <cstring>

#include "runtime/exec/op.h"

namespace paratope {

// An unused record of the rank, its counts sized for `members`.
Exchange &take_exchange(Rank &rank, int64_t members);
void give_back(Rank &rank, Exchange &exchange);

// Room for `bytes` more at the end of the message that is being packed; the address holds until the next
// call.
std::byte *append(Exchange &exchange, int64_t &used, int64_t bytes);

// Issues the exchange's messages, and completes it. complete sets nothing but `arrived`.
void issue_exchange(Call &call, comm::Communicator &communicator, Exchange &exchange);

} // namespace paratope
