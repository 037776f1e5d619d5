// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/random_tensor.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace paratope {
namespace {

TEST(Philox, KnownAnswersOfThePaper) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(TensorKey, SeedAndNameBothMatter) {
  EXPECT_EQ(tensor_key(1, "a"), tensor_key(1, "a"));
  EXPECT_NE(tensor_key(1, "a"), tensor_key(2, "a"));
  EXPECT_NE(tensor_key(1, "a"), tensor_key(1, "b"));
  EXPECT_NE(tensor_key(1, "layers.1.x"), tensor_key(1, "layers.11.x"));
  EXPECT_NE(tensor_key(0, ""), tensor_key(-1, ""));
}

TEST(FillRun, AnElementDependsOnItsIndexAlone) {
  const PhiloxKey key = tensor_key(7, "w");
  std::vector<float> whole(2000);
  fill_run(key, 0, 2000, {0, 1}, whole.data());
  for (int64_t first : {0, 1, 2, 3, 4, 5, 255, 256, 257, 1000})
    for (int64_t count : {0, 1, 3, 4, 5, 255, 256, 257, 700}) {
      std::vector<float> run(static_cast<size_t>(count + 1), -99);
      fill_run(key, first, count, {0, 1}, run.data());
      EXPECT_TRUE(std::equal(run.begin(), run.end() - 1, whole.begin() + first)) << first << " " << count;
      EXPECT_EQ(run.back(), -99);
    }
}

TEST(FillRun, IndicesPast32BitsCount) {
  const PhiloxKey key = tensor_key(7, "w");
  const int64_t far = (int64_t{1} << 40) + 3;
  float element = 0, next[600];
  fill_run(key, far, 600, {0, 1}, next);
  fill_run(key, far + 599, 1, {0, 1}, &element);
  EXPECT_EQ(element, next[599]);
  fill_run(key, 3, 1, {0, 1}, &element);
  EXPECT_NE(element, next[0]);
}

TEST(FillRun, MeanAndVarianceAreThoseOfTheInit) {
  const int64_t count = 1 << 20;
  std::vector<float> values(count);
  fill_tensor(3, "moments", count, {0, 1}, values.data());
  double sum = 0, square = 0, lag = 0, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += values[i];
    square += static_cast<double>(values[i]) * values[i];
    lag += i > 0 ? static_cast<double>(values[i]) * values[i - 1] : 0;
    largest = std::max(largest, std::abs(static_cast<double>(values[i])));
  }
  const double deviation = 1 / std::sqrt(static_cast<double>(count)); // of the mean
  EXPECT_NEAR(sum / count, 0, 4 * deviation);
  EXPECT_NEAR(square / count, 1, 4 * deviation); // the variance of u² is 0.8
  EXPECT_NEAR(lag / count, 0, 4 * deviation);
  EXPECT_LE(largest, std::sqrt(3.0) * (1 + 1e-7));
  EXPECT_GT(largest, std::sqrt(3.0) * 0.9999);
}

TEST(FillRun, FirstElementsNeverChange) { // every recorded result rests on these bits
  float w[5];
  fill_tensor(1, "layers.0.attn.wq_a", 5, init_named("normal", 64), w);
  const float expected[] = {-0x1.ae0a74p-3F, 0x1.c6f818p-4F, 0x1.9b3c44p-6F, 0x1.9d785cp-3F, -0x1.0acc4ep-3F};
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(w[i], expected[i]) << std::hexfloat << w[i];
}

TEST(Init, KindsAndTheirErrors) {
  EXPECT_FLOAT_EQ(init_named("normal", 64).scale, 0.125F);
  EXPECT_EQ(init_named("gain", 1).offset, 1.0F);
  EXPECT_EQ(init_named("bias", 1).scale, 0.01F);
  EXPECT_EQ(init_named("hc_scale", 1).offset, 0.1F);
  auto message = [](const char *kind, int64_t fan_in) {
    try {
      init_named(kind, fan_in);
    } catch (const WeightError &e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("xavier", 1), "got init 'xavier', expected normal, gain, bias or hc_scale");
  EXPECT_EQ(message("normal", 0), "got fan_in 0 for init 'normal', expected 1 or more");
}

} // namespace
} // namespace paratope
