// SPDX-License-Identifier: Apache-2.0
//
// Near-legal topologies: a legal one with one rule broken. Each mutation names its rule, knows where it can
// be broken, and says what the compiler must answer: one of these codes, at one of these keys.
#pragma once

#include <functional>
#include <optional>

#include "topology.h"

namespace paratope::random {

struct Mutation {
  std::string name;
  std::vector<std::string> codes; // any of these answers it
  // Breaks the rule in `topology.document` and says which keys it is about; nothing where this topology
  // cannot break it.
  std::function<std::optional<std::vector<KeyName>>(Rng &, Topology &)> apply;
};

// The language's own rules: spelling, types, ranges, names, patterns.
std::vector<Mutation> language_mutations();
// Rules between a model's keys, and of machine and workload.
std::vector<Mutation> model_mutations();
// Rules of axes and groups, alone and with the model, the machine and the phase.
std::vector<Mutation> mesh_mutations();

std::vector<Mutation> all_mutations();

} // namespace paratope::random
