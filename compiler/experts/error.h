// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with the numbers an expert placement is asked for. Plain values that name the key at fault,
// so that whoever read the topology can point at it.
#pragma once

#include <string>
#include <vector>

namespace paratope {

struct ExpertsError {
  std::string code;    // kebab-case: "experts-overflow"
  std::string message; // lowercase, no full stop, offending values last
  std::string key;     // of the topology file: "moe.min_redundant_experts", "axes.ep", "model.moe.routed"
  std::string fix;     // what to write instead, or empty
};

// Functions that can fail append here and return nothing.
using ExpertsErrors = std::vector<ExpertsError>;

} // namespace paratope
