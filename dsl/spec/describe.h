// SPDX-License-Identifier: Apache-2.0
//
// The keys of every section, once. Whoever reads, writes or documents the language walks these.
#pragma once

#include <optional>

#include "dsl/spec/topology.h"

namespace paratope {

// The body of each section (the keys below its header), without nested reading of `use`d files.
void describe(FieldVisitor &visitor, MachineSpec &machine);
void describe(FieldVisitor &visitor, ModelSpec &model);
void describe(FieldVisitor &visitor, LayoutSpec &layout);
void describe(FieldVisitor &visitor, MeshSpec &mesh);
void describe(FieldVisitor &visitor, MoeSpec &moe);
void describe(FieldVisitor &visitor, AttentionSpec &attention);
void describe(FieldVisitor &visitor, EngramSpec &engram);
void describe(FieldVisitor &visitor, WorkloadSpec &workload);
void describe(FieldVisitor &visitor, EngineSpec &engine);
void describe(FieldVisitor &visitor, ScheduleSpec &schedule);

// What is wrong with entry `idx` of a list of choices, each of which may stand in it once; nothing when it is
// good.
std::optional<std::string> wrong_choice(const std::vector<std::string> &list, size_t idx,
                                        const std::vector<std::string> &choices);

// What `fuse` may name; compiler/fuse says what each does.
const std::vector<std::string> &fusion_names();

// A whole topology file: the top-level keys, then each section as a table. `variant` tables are not part of
// it: overlays are applied before (dsl/toml).
void describe(FieldVisitor &visitor, TopologySpec &topology);

} // namespace paratope
