// SPDX-License-Identifier: Apache-2.0
//
// The one error of a running plan: a collective that cannot complete, an instruction that cannot run, a
// result that does not hold. Its text is what the user reads, and may have several lines.
#pragma once

#include <stdexcept>

namespace paratope {

struct RuntimeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace paratope
