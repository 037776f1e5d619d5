// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/math.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <thread>

namespace paratope::reference {

void matvec(const float *w, int64_t rows, int64_t cols, const double *x, double *y) {
  for (int64_t r = 0; r < rows; ++r, w += cols) {
    double even = 0, odd = 0; // two chains, so that an addition need not wait for the last
    int64_t c = 0;
    for (; c + 1 < cols; c += 2) {
      even += w[c] * x[c];
      odd += w[c + 1] * x[c + 1];
    }
    if (c < cols)
      even += w[c] * x[c];
    y[r] = even + odd;
  }
}

double dot(const double *a, const double *b, int64_t n) {
  double even = 0, odd = 0;
  int64_t i = 0;
  for (; i + 1 < n; i += 2) {
    even += a[i] * b[i];
    odd += a[i + 1] * b[i + 1];
  }
  return i < n ? even + odd + a[i] * b[i] : even + odd;
}

void rms_norm(double *x, int64_t n, const float *gain, double eps) {
  const double factor = 1 / std::sqrt(dot(x, x, n) / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i)
    x[i] *= gain ? factor * gain[i] : factor;
}

Angles::Angles(int64_t position, double theta, int64_t dims) {
  for (int64_t i = 0; i + 1 < dims; i += 2) {
    const double angle =
        static_cast<double>(position) * std::pow(theta, -static_cast<double>(i) / static_cast<double>(dims));
    cosine.push_back(std::cos(angle));
    sine.push_back(std::sin(angle));
  }
}

void rotate(double *x, const Angles &angles, bool inverse) {
  for (size_t i = 0; i < angles.cosine.size(); ++i, x += 2) {
    const double c = angles.cosine[i], s = inverse ? -angles.sine[i] : angles.sine[i];
    const double a = x[0], b = x[1];
    x[0] = a * c - b * s;
    x[1] = a * s + b * c;
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void feed_forward(const float *w13, const float *w2, int64_t hidden, int64_t width, double limit,
                  const double *x, double *y, Vector &scratch) {
  scratch.resize(static_cast<size_t>(2 * width));
  matvec(w13, 2 * width, hidden, x, scratch.data());
  for (int64_t i = 0; i < width; ++i) {
    double g = scratch[i], u = scratch[width + i];
    if (limit > 0) {
      g = std::min(g, limit);
      u = std::max(-limit, std::min(u, limit));
    }
    scratch[i] = g * sigmoid(g) * u;
  }
  matvec(w2, hidden, width, scratch.data(), y);
}

void for_ranges(int64_t count, int threads, const std::function<void(int64_t, int64_t)> &work) {
  const int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(count, 1));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(parts));
  auto run = [&](int64_t part) {
    try {
      work(count * part / parts, count * (part + 1) / parts);
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int64_t part = 1; part < parts; ++part)
    others.emplace_back(run, part);
  run(0);
  for (std::thread &thread : others)
    thread.join();
  for (const std::exception_ptr &error : errors)
    if (error)
      std::rethrow_exception(error);
}

} // namespace paratope::reference
