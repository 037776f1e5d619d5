// SPDX-License-Identifier: Apache-2.0
//
// Scale-up domains: GPUs that load and store each other's memory. Rank r sits in domain r / (GPUs of a
// domain).
#pragma once

#include <cstdint>

#include "dsl/rearrange/groups.h"
#include "dsl/spec/topology.h"

namespace paratope {

// GPUs of one scale-up domain: what the machine says, else a node's.
int64_t domain_gpus(const MachineSpec &machine);

// Whether each group has all its members in one domain, wherever they lie in it (neighbours or not).
bool in_one_domain(const GroupLayout &group, int64_t domain);

} // namespace paratope
