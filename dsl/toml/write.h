// SPDX-License-Identifier: Apache-2.0
//
// A TopologySpec as the TOML file that says it: the way back from the MLIR form and from tools that edit.
#pragma once

#include <string>

#include "dsl/spec/topology.h"

namespace paratope {

// What was written (Field::written) and nothing else, so that reading the result gives the same spec:
// TOML → spec → TOML → spec loses only comments and the choice of spelling (a dotted key or a section).
std::string write_topology(const TopologySpec &topology);

// Every value that is not the language's default, for a spec that no file wrote. The layout stays by name;
// axis sizes and groups that `known_layout` (what that name stands for) has alike are left to it. Machine and
// model are written out in place of their `use`, unless they hold nothing else.
std::string write_full(const TopologySpec &topology, const LayoutSpec &known_layout = {});

} // namespace paratope
