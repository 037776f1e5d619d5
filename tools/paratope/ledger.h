// SPDX-License-Identifier: Apache-2.0
//
// The ledger as text and JSON, for `ledger` and `explain`.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/ledger/ledger.h"

namespace paratope {

nlohmann::ordered_json to_json(const Ledger &ledger);
std::string to_text(const Ledger &ledger);

} // namespace paratope
