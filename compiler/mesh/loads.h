// SPDX-License-Identifier: Apache-2.0
//
// The load of each expert that placement and imbalance are reckoned with: measured, from the file the
// topology names, or expected, from the routing it declares.
#pragma once

#include <optional>
#include <vector>

#include "compiler/experts/error.h"
#include "dsl/spec/topology.h"

namespace paratope {

// `experts` non-negative numbers, not all zero. moe.loads is a JSON list of that many numbers, read relative
// to the topology file. Without it, the routing's distribution; kinds that promise none (gate, trace) count
// as uniform.
std::optional<std::vector<double>> expert_loads(const TopologySpec &spec, int64_t experts,
                                                ExpertsErrors &errors);

} // namespace paratope
