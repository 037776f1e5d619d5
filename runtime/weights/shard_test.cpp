// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/shard.h"

#include <functional>

#include <gtest/gtest.h>

namespace paratope {
namespace {

plan::Weight weight_of(std::vector<int64_t> shape, std::vector<plan::WeightSplit> splits) {
  return {0, "w", std::move(shape), "normal", 4, std::move(splits)};
}

std::vector<float> whole_tensor(const plan::Weight &weight) {
  std::vector<float> all(static_cast<size_t>(num_elements(weight.shape)));
  fill_tensor(5, weight.name, static_cast<int64_t>(all.size()), init_named(weight.init, weight.fan_in),
              all.data());
  return all;
}

// The part element by element: held[d] lists the indices of dim d that the rank holds.
std::vector<float> picked(const plan::Weight &weight, const std::vector<std::vector<int64_t>> &held) {
  const std::vector<float> all = whole_tensor(weight);
  std::vector<float> part;
  std::function<void(size_t, int64_t)> walk = [&](size_t dim, int64_t first) {
    if (dim == weight.shape.size()) {
      part.push_back(all[first]);
      return;
    }
    for (int64_t idx : held[dim])
      walk(dim + 1, first * weight.shape[dim] + idx);
  };
  walk(0, 0);
  return part;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> indices;
  for (int64_t i = begin; i < end; ++i)
    indices.push_back(i);
  return indices;
}

void expect_shard(const plan::Weight &weight, const AxisBlocks &blocks, const plan::Experts &experts,
                  const std::vector<std::vector<int64_t>> &held) {
  const std::vector<float> expected = picked(weight, held);
  const std::vector<int64_t> shape = shard_shape(weight, blocks, experts);
  for (size_t d = 0; d < held.size(); ++d)
    EXPECT_EQ(shape[d], static_cast<int64_t>(held[d].size()));
  std::vector<float> got(expected.size() + 1, -99);
  fill_shard(weight, WeightStore(5), blocks, experts, got.data());
  EXPECT_EQ(got.back(), -99);
  got.pop_back();
  EXPECT_EQ(got, expected);
}

TEST(Shard, BlocksOfEveryDimAndOfTwo) {
  for (int64_t b = 0; b < 3; ++b) {
    const AxisBlocks blocks{{"tp", {b, 3}}, {"og", {1, 2}}};
    expect_shard(weight_of({6, 7, 5}, {{0, "tp", false}}), blocks, {},
                 {range(2 * b, 2 * b + 2), range(0, 7), range(0, 5)});
    expect_shard(weight_of({5, 9, 7}, {{1, "tp", false}}), blocks, {},
                 {range(0, 5), range(3 * b, 3 * b + 3), range(0, 7)});
    expect_shard(weight_of({5, 7, 9}, {{2, "tp", false}}), blocks, {},
                 {range(0, 5), range(0, 7), range(3 * b, 3 * b + 3)});
    expect_shard(weight_of({6, 3, 8}, {{0, "tp", false}, {2, "og", false}}), blocks, {},
                 {range(2 * b, 2 * b + 2), range(0, 3), range(4, 8)});
  }
  expect_shard(weight_of({300, 3}, {}), {}, {}, {range(0, 300), range(0, 3)});
  expect_shard(weight_of({7}, {{0, "tp", false}}), {{"tp", {0, 1}}}, {}, {range(0, 7)});
  expect_shard(weight_of({}, {}), {}, {}, {});
}

TEST(Shard, ExpertsFollowTheSlotTable) {
  const plan::Experts experts{4, 6, 3, {3, 1, 0, 2, 1, 3}};
  for (int64_t b = 0; b < 2; ++b) {
    const AxisBlocks blocks{{"ep", {b, 2}}, {"tp", {1, 2}}};
    const std::vector<int64_t> held = b == 0 ? std::vector<int64_t>{3, 1, 0} : std::vector<int64_t>{2, 1, 3};
    expect_shard(weight_of({4, 2, 3, 5}, {{0, "ep", true}}), blocks, experts,
                 {held, range(0, 2), range(0, 3), range(0, 5)});
    expect_shard(weight_of({4, 2, 6, 5}, {{0, "ep", true}, {2, "tp", false}}), blocks, experts,
                 {held, range(0, 2), range(3, 6), range(0, 5)});
  }
  // One rank whose slots are a permutation still picks.
  expect_shard(weight_of({3, 4}, {{0, "ep", true}}), {{"ep", {0, 1}}}, {3, 3, 3, {2, 0, 1}},
               {{2, 0, 1}, range(0, 4)});
}

TEST(Shard, RefusesSplitsThatDoNotFit) {
  auto message = [](const plan::Weight &weight, const AxisBlocks &blocks, const plan::Experts &experts = {}) {
    try {
      shard_shape(weight, blocks, experts);
    } catch (const WeightError &e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const AxisBlocks two{{"tp", {0, 2}}};
  EXPECT_EQ(message(weight_of({5, 4}, {{0, "tp", false}}), two),
            "weight 'w' [5, 4]: got size 5 of dim 0 over axis 'tp', expected a multiple of 2");
  EXPECT_EQ(message(weight_of({4}, {{1, "tp", false}}), two),
            "weight 'w' [4]: got a split of dim 1, expected 0 to 0");
  EXPECT_EQ(message(weight_of({4}, {{0, "ep", false}}), two),
            "weight 'w' [4]: got a split over axis 'ep', which the plan does not have");
  EXPECT_EQ(message(weight_of({4}, {{0, "tp", false}}), {{"tp", {2, 2}}}),
            "weight 'w' [4]: got block 2 of axis 'tp', expected 0 to 1");
  EXPECT_EQ(message(weight_of({4}, {{0, "tp", false}, {0, "tp", false}}), two),
            "weight 'w' [4]: got two splits of dim 0, expected one");
  EXPECT_EQ(message(weight_of({4, 4}, {{1, "tp", true}}), two),
            "weight 'w' [4, 4]: got a split by slots of dim 1, expected dim 0");
  EXPECT_EQ(message(weight_of({4}, {{0, "tp", true}}), two, {5, 6, 3, {}}),
            "weight 'w' [4]: got 4 experts, expected the plan's 5");
  EXPECT_EQ(message(weight_of({4}, {{0, "tp", true}}), two, {4, 6, 3, {0, 1, 2, 3}}),
            "weight 'w' [4]: got 4 slots of 3 a rank on 2 ranks, expected their product");
  EXPECT_EQ(message(weight_of({4}, {{0, "tp", true}}), two, {4, 4, 2, {0, 4, 2, 3}}),
            "weight 'w' [4]: got expert 4 in the slot table, expected 0 to 3");
  EXPECT_EQ(message(weight_of({-4}, {}), two), "weight 'w' [-4]: got size -4, expected 0 or more");
  EXPECT_EQ(message(weight_of({int64_t{1} << 40, int64_t{1} << 40}, {}), two),
            "got shape [1099511627776, 1099511627776], whose size overflows 64 bits");
}

} // namespace
} // namespace paratope
