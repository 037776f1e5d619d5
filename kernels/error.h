// SPDX-License-Identifier: Apache-2.0
//
// The one error kernels report: a shape, an id or an expert index that cannot be right. Kernels read and
// write memory by these numbers, so each is checked before use; the message names the op, says what it got
// and what it expected, and the caller adds which instruction of the plan it was.
#pragma once

#include <stdexcept>

namespace paratope {

struct KernelError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

} // namespace paratope
