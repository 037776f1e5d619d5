// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/op.h"

#include "kernels/dot.h"
#include "kernels/error.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paratope {

void linear(ConstRows x, const float *w, Rows y) {
  check_equal("linear", "rows of y", y.rows, x.rows);
  dot_block(x.data, x.row_size, x.rows, w, x.row_size, y.row_size, x.row_size, y.data, y.row_size);
}

void embed(std::span<const int32_t> ids, const float *table, int64_t vocab, Rows y) {
  check_equal("embed", "rows of y", y.rows, static_cast<int64_t>(ids.size()));
  for (int64_t t = 0; t < y.rows; ++t) {
    check_index("embed", "token id", ids[t], vocab, t);
    const float *row = table + ids[t] * y.row_size;
    std::copy(row, row + y.row_size, y.row(t));
  }
}

void argmax(ConstRows logits, std::span<int32_t> ids) {
  check_positive("argmax", "logits a row", logits.row_size);
  check_equal("argmax", "ids", static_cast<int64_t>(ids.size()), logits.rows);
  for (int64_t t = 0; t < logits.rows; ++t) {
    const float *row = logits.row(t);
    int64_t best = 0;
    for (int64_t v = 0; v < logits.row_size; ++v) {
      if (std::isnan(row[v]))
        throw KernelError(fmt::format("argmax: got NaN as logit {} of row {}, expected a number", v, t));
      if (row[v] > row[best])
        best = v;
    }
    ids[t] = static_cast<int32_t>(best);
  }
}

RowRange slice_range(int64_t rows, int64_t block, int64_t num_blocks) {
  check_positive("slice_rows", "blocks", num_blocks);
  check_index("slice_rows", "block", block, num_blocks, 0);
  // floor(rows·j/n) without the product, which could overflow
  const int64_t each = rows / num_blocks, rest = rows % num_blocks;
  auto bound = [&](int64_t j) { return each * j + rest * j / num_blocks; };
  return {bound(block), bound(block + 1)};
}

void slice_rows(ConstRows x, int64_t block, int64_t num_blocks, Rows y) {
  const RowRange range = slice_range(x.rows, block, num_blocks);
  check_equal("slice_rows", "rows of y", y.rows, range.size());
  check_equal("slice_rows", "row size of y", y.row_size, x.row_size);
  if (range.size() > 0)
    std::copy(x.row(range.begin), x.row(range.end), y.data);
}

} // namespace paratope
