// SPDX-License-Identifier: Apache-2.0
//
// A rank's work in a step as text and JSON, for `ledger`, `fusions` and `explain`.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/ledger/work.h"
#include "tools/paratope/session.h"

namespace paratope {

// {"flops":{part:n},"total_flops"}
nlohmann::ordered_json flops_json(const StepWork &work);
std::string flops_text(const StepWork &work);

// {"launches":{"before","after"},"bytes":{"before","after"},"fusions":[{"name","kernels","launches","bytes"}],
//  "not_taken":[text]}; before: every op a kernel of its own
nlohmann::ordered_json fusions_json(const StepWork &work, const Loaded &loaded);
std::string fusions_text(const StepWork &work, const Loaded &loaded);

} // namespace paratope
