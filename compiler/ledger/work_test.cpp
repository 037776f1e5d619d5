// SPDX-License-Identifier: Apache-2.0
#include "compiler/ledger/work.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace paratope {
namespace {

TEST(KeysSeen, IsTheSumOverTokens) {
  for (int64_t history : {0, 1, 5, 127, 128, 129, 1000})
    for (int64_t n : {0, 1, 2, 7, 128, 300})
      for (int64_t window : {0, 1, 16, 128})
        for (int64_t ratio : {0, 1, 2, 4, 128}) {
          double sum = 0;
          for (int64_t t = 1; t <= n; ++t) {
            int64_t length = history + t;
            sum += static_cast<double>(window > 0 ? std::min(window, length) : length);
            sum += static_cast<double>(ratio > 0 ? length / ratio : 0);
          }
          EXPECT_EQ(keys_seen(history, n, window, ratio), sum)
              << "history " << history << " n " << n << " window " << window << " ratio " << ratio;
        }
}

} // namespace
} // namespace paratope
