// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm/op.h"

#include "kernels/dot.h"
#include "kernels/error.h"
#include "kernels/exp.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace paratope {
namespace {

constexpr double hc_eps = 1e-6;
constexpr int sinkhorn_iterations = 20;

double sigmoid(double x) {
  x = -x;
  exp_each(&x, 1);
  return 1.0 / (1.0 + x);
}

// Rows, then columns, each divided by its sum, until the matrix is all but doubly stochastic.
void sinkhorn(double *comb, int64_t n) {
  for (int iteration = 0; iteration < sinkhorn_iterations; ++iteration) {
    for (int64_t m = 0; m < n; ++m) {
      double total = 0;
      for (int64_t j = 0; j < n; ++j)
        total += comb[m * n + j];
      for (int64_t j = 0; j < n; ++j)
        comb[m * n + j] /= total + hc_eps;
    }
    for (int64_t j = 0; j < n; ++j) {
      double total = 0;
      for (int64_t m = 0; m < n; ++m)
        total += comb[m * n + j];
      for (int64_t m = 0; m < n; ++m)
        comb[m * n + j] /= total + hc_eps;
    }
  }
}

void softmax_row(double *row, int64_t n) {
  double largest = row[0], total = 0;
  for (int64_t j = 1; j < n; ++j)
    largest = std::max(largest, row[j]);
  for (int64_t j = 0; j < n; ++j)
    row[j] -= largest;
  exp_each(row, n);
  for (int64_t j = 0; j < n; ++j)
    total += row[j];
  for (int64_t j = 0; j < n; ++j)
    row[j] = row[j] / total + hc_eps;
}

} // namespace

void rms_norm(ConstRows x, const float *gain, double eps, Rows y, int64_t dims) {
  check_equal("rms_norm", "rows of y", y.rows, x.rows);
  check_equal("rms_norm", "row size of y", y.row_size, x.row_size);
  if (dims == 0)
    dims = x.row_size;
  if (dims < 1 || dims > x.row_size)
    throw KernelError(fmt::format("rms_norm: got dims {}, expected 1 to {}", dims, x.row_size));
  for (int64_t t = 0; t < x.rows; ++t) {
    const float *in = x.row(t);
    float *out = y.row(t);
    const double factor = 1.0 / std::sqrt(dot(in, in, dims) / static_cast<double>(dims) + eps);
    for (int64_t i = 0; i < dims; ++i)
      out[i] = static_cast<float>(in[i] * factor * gain[i]);
    for (int64_t i = dims; i < x.row_size; ++i)
      out[i] = in[i];
  }
}

void add(std::span<const ConstRows> operands, Rows y) {
  check_positive("add", "operands", static_cast<int64_t>(operands.size()));
  for (const ConstRows &operand : operands) {
    check_equal("add", "rows of an operand", operand.rows, y.rows);
    check_equal("add", "row size of an operand", operand.row_size, y.row_size);
  }
  for (int64_t i = 0; i < y.rows * y.row_size; ++i) {
    double total = operands[0].data[i];
    for (size_t o = 1; o < operands.size(); ++o)
      total += operands[o].data[i];
    y.data[i] = static_cast<float>(total);
  }
}

void hc_expand(ConstRows x, int64_t streams, Rows wide) {
  check_positive("hc_expand", "streams", streams);
  check_equal("hc_expand", "rows of X", wide.rows, x.rows);
  check_equal("hc_expand", "row size of X", wide.row_size, streams * x.row_size);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t m = 0; m < streams; ++m)
      std::copy(x.row(t), x.row(t) + x.row_size, wide.row(t) + m * x.row_size);
}

void hc_pre(ConstRows wide, int64_t streams, const float *fn, const float *scale, const float *base, Rows x,
            Rows mix) {
  const int64_t n = streams, hidden = x.row_size, num_mixes = n * n + 2 * n;
  check_positive("hc_pre", "streams", streams);
  check_equal("hc_pre", "row size of X", wide.row_size, n * hidden);
  check_equal("hc_pre", "row size of mix", mix.row_size, n + n * n);
  check_equal("hc_pre", "rows of x", x.rows, wide.rows);
  check_equal("hc_pre", "rows of mix", mix.rows, wide.rows);
  std::vector<double> m(static_cast<size_t>(num_mixes));
  for (int64_t t = 0; t < wide.rows; ++t) {
    const float *in = wide.row(t);
    const double factor =
        1.0 / std::sqrt(dot(in, in, wide.row_size) / static_cast<double>(wide.row_size) + hc_eps);
    dot_block(in, 0, 1, fn, wide.row_size, num_mixes, wide.row_size, m.data(), num_mixes);
    for (int64_t i = 0; i < num_mixes; ++i) {
      const int part = i < n ? 0 : i < 2 * n ? 1 : 2;
      m[i] = m[i] * factor * scale[part] + base[i];
    }
    double *pre = m.data(), *post = pre + n, *comb = post + n;
    for (int64_t i = 0; i < n; ++i) {
      pre[i] = sigmoid(pre[i]) + hc_eps;
      post[i] = 2 * sigmoid(post[i]);
      softmax_row(comb + i * n, n);
    }
    sinkhorn(comb, n);
    for (int64_t h = 0; h < hidden; ++h) {
      double total = 0;
      for (int64_t i = 0; i < n; ++i)
        total += pre[i] * in[i * hidden + h];
      x.row(t)[h] = static_cast<float>(total);
    }
    for (int64_t i = 0; i < mix.row_size; ++i)
      mix.row(t)[i] = static_cast<float>(post[i]);
  }
}

void hc_post(ConstRows wide, ConstRows f, ConstRows mix, int64_t streams, Rows out) {
  const int64_t n = streams, hidden = f.row_size;
  check_positive("hc_post", "streams", streams);
  check_equal("hc_post", "row size of X", wide.row_size, n * hidden);
  check_equal("hc_post", "row size of mix", mix.row_size, n + n * n);
  check_equal("hc_post", "row size of X'", out.row_size, wide.row_size);
  check_equal("hc_post", "rows of F", f.rows, wide.rows);
  check_equal("hc_post", "rows of mix", mix.rows, wide.rows);
  check_equal("hc_post", "rows of X'", out.rows, wide.rows);
  std::vector<double> element(static_cast<size_t>(n)); // one hidden element of every new stream: X' may be X
  for (int64_t t = 0; t < wide.rows; ++t) {
    const float *in = wide.row(t), *post = mix.row(t), *comb = post + n;
    for (int64_t h = 0; h < hidden; ++h) {
      for (int64_t j = 0; j < n; ++j) {
        element[j] = static_cast<double>(post[j]) * f.row(t)[h];
        for (int64_t m = 0; m < n; ++m)
          element[j] += static_cast<double>(comb[m * n + j]) * in[m * hidden + h];
      }
      for (int64_t j = 0; j < n; ++j)
        out.row(t)[j * hidden + h] = static_cast<float>(element[j]);
    }
  }
}

void hc_sum(ConstRows wide, int64_t streams, Rows x) {
  check_positive("hc_sum", "streams", streams);
  check_equal("hc_sum", "row size of X", wide.row_size, streams * x.row_size);
  check_equal("hc_sum", "rows of x", x.rows, wide.rows);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t h = 0; h < x.row_size; ++h) {
      double total = 0;
      for (int64_t m = 0; m < streams; ++m)
        total += wide.row(t)[m * x.row_size + h];
      x.row(t)[h] = static_cast<float>(total);
    }
}

} // namespace paratope
