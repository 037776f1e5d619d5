// SPDX-License-Identifier: Apache-2.0
//
// The view every kernel works on: `rows` rows of `row_size` contiguous floats, owned by someone else (a
// plan's arena). A row is a token, or a (token, expert) pair; [T, h·D] is T rows of h·D elements. Rows may be
// 0.
#pragma once

#include <cstdint>
#include <span>

namespace paratope {

struct Rows {
  float *data = nullptr;
  int64_t rows = 0;
  int64_t row_size = 0;

  float *row(int64_t i) const { return data + i * row_size; }
};

struct ConstRows {
  const float *data = nullptr;
  int64_t rows = 0;
  int64_t row_size = 0;

  ConstRows() = default;
  ConstRows(const float *first, int64_t num_rows, int64_t size)
      : data(first), rows(num_rows), row_size(size) {}
  ConstRows(Rows r) : data(r.data), rows(r.rows), row_size(r.row_size) {} // NOLINT: a view of the same rows

  const float *row(int64_t i) const { return data + i * row_size; }
};

// Throws KernelError "<op>: got <what> <got>, expected <expected>" unless the two are equal.
void check_equal(const char *op, const char *what, int64_t got, int64_t expected);

// Throws KernelError unless 0 <= value < end: "<op>: got <what> <value> in row <row>, expected 0 to <end-1>".
void check_index(const char *op, const char *what, int64_t value, int64_t end, int64_t row);

// Throws KernelError unless value >= 1.
void check_positive(const char *op, const char *what, int64_t value);

} // namespace paratope
