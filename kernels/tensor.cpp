// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor.h"

#include "kernels/error.h"

#include <fmt/format.h>

namespace paratope {

void check_equal(const char *op, const char *what, int64_t got, int64_t expected) {
  if (got != expected)
    throw KernelError(fmt::format("{}: got {} {}, expected {}", op, what, got, expected));
}

void check_index(const char *op, const char *what, int64_t value, int64_t end, int64_t row) {
  if (value < 0 || value >= end)
    throw KernelError(
        fmt::format("{}: got {} {} in row {}, expected 0 to {}", op, what, value, row, end - 1));
}

void check_positive(const char *op, const char *what, int64_t value) {
  if (value < 1)
    throw KernelError(fmt::format("{}: got {} {}, expected 1 or more", op, what, value));
}

} // namespace paratope
