// SPDX-License-Identifier: Apache-2.0
//
// Redundancy, placement and balance of experts as text and JSON, for `experts` and `explain`.
#pragma once

#include "tools/paratope/session.h"

namespace paratope {

// {"logical","min_redundant","extra","physical","local","slots","imbalance","imbalance_contiguous","placement"}
nlohmann::ordered_json experts_json(Loaded &loaded);

// Sizes, and load max/mean over ranks with the placement and without; `slots`: which experts each rank holds,
// too.
std::string experts_text(Loaded &loaded, bool slots);

} // namespace paratope
