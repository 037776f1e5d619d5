// SPDX-License-Identifier: Apache-2.0
//
// The ledger as text and JSON, for `ledger` and `explain`.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/ledger/ledger.h"
#include "compiler/ledger/work.h"

namespace paratope {

// With the rank's operations in the same step beside what it sends.
nlohmann::ordered_json to_json(const Ledger &ledger, const StepWork &work);
std::string to_text(const Ledger &ledger, const StepWork &work);

} // namespace paratope
