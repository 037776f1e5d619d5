// SPDX-License-Identifier: Apache-2.0
//
// The fusions, by name: what each makes one kernel of, what it needs and what it saves. `paratope fusions`
// prints it, stage "fuse" applies it (match.h finds where).
#pragma once

#include <string>
#include <vector>

namespace paratope {

struct Fusion {
  const char *name; // as [schedule] fuse has it
  const char *parts;
  const char *needs;
  const char *saves;
};

// In the order they are tried: an op that an earlier fusion took is not there for a later one.
const std::vector<Fusion> &fusions();

} // namespace paratope
