// SPDX-License-Identifier: Apache-2.0
#include "compiler/mesh/domain.h"

#include <algorithm>

namespace paratope {

int64_t domain_gpus(const MachineSpec &machine) {
  return std::max<int64_t>(1, *machine.scale_up_gpus > 0 ? *machine.scale_up_gpus : *machine.gpus_per_node);
}

bool in_one_domain(const GroupLayout &group, int64_t domain) {
  if (group.world + group.rank_offset <= domain || group.size == 1)
    return true;
  if (group.size > domain)
    return false;
  // Members differ in the key's digits alone. Where the largest of these turns over inside the domain, and
  // domains are whole multiples of that, no group leaves its domain.
  int64_t reach = 1;
  for (const Digit &digit : group.key.digits)
    reach = std::max(reach, digit.div * digit.mod);
  if (group.closed_form() && reach <= domain && domain % reach == 0 && group.rank_offset % domain == 0)
    return true;
  if (group.world > max_table_ranks)
    return false; // such a group would have to line up with domains by accident
  for (int64_t color = 0; color < group.count; ++color) {
    int64_t first = rank_of(group, color, 0) / domain;
    for (int64_t member = 1; member < group.size; ++member)
      if (rank_of(group, color, member) / domain != first)
        return false;
  }
  return true;
}

} // namespace paratope
