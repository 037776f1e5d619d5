// SPDX-License-Identifier: Apache-2.0
//
// Groups as text and JSON, for `groups` and `explain`.
#pragma once

#include "tools/paratope/session.h"

namespace paratope {

struct GroupsView {
  std::string only;            // one group, or empty for all
  std::optional<int64_t> rank; // only the group that this rank is in
  bool members = false;        // list them, however many
};

nlohmann::ordered_json groups_json(Loaded &loaded, const GroupsView &view);
std::string groups_text(Loaded &loaded, const GroupsView &view);

} // namespace paratope
