// SPDX-License-Identifier: Apache-2.0
//
// The memory bill as text and JSON, for `memory` and `explain`.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/memory/bill.h"

namespace paratope {

nlohmann::ordered_json to_json(const MemoryBill &bill);
std::string to_text(const MemoryBill &bill);

} // namespace paratope
