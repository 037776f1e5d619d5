// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/model_weights.h"
#include "runtime/weights/state.h"

#include <functional>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

namespace paratope {
namespace {

std::string message_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const WeightError &e) {
    return e.what();
  }
  return "no error";
}

TEST(State, ARowIsTheTensorsAtItsIndex) {
  const PhiloxKey key = state_key(9, StateTensor::kv_open_gate, 12);
  EXPECT_EQ(key, tensor_key(9, "kv_open_gate.12"));
  EXPECT_EQ(state_key(9, StateTensor::kv, 0), tensor_key(9, "kv.0"));
  std::vector<float> row(6), part(2), expected(6);
  fill_state_row(key, 5, 77, 6, 0, 6, row.data());
  fill_run(key, (5 * (int64_t{1} << 32) + 77) * 6, 6, {0, 1}, expected.data());
  EXPECT_EQ(row, expected);
  fill_state_row(key, 5, 77, 6, 3, 2, part.data());
  EXPECT_EQ(part, (std::vector<float>{row[3], row[4]}));
}

TEST(State, IdsAreOfTheVocabularyAndDiffer) {
  std::map<int32_t, int> first;
  for (int64_t s = 0; s < 500; ++s)
    ++first[first_token_id(1, s, 11)];
  EXPECT_EQ(first.size(), 11U);
  EXPECT_EQ(first.begin()->first, 0);
  EXPECT_EQ(first.rbegin()->first, 10);
  EXPECT_EQ(first_token_id(1, 3, 1000), static_cast<int32_t>(tensor_word(tensor_key(1, "ids"), 3) % 1000));
  EXPECT_NE(context_token_id(1, 0, 0, 1 << 30), context_token_id(1, 0, 1, 1 << 30));
  EXPECT_NE(context_token_id(1, 0, 0, 1 << 30), context_token_id(1, 1, 0, 1 << 30));
}

TEST(State, RefusesIndicesThatDoNotFit) {
  float value = 0;
  const PhiloxKey key{};
  EXPECT_EQ(message_of([&] { fill_state_row(key, -1, 0, 4, 0, 1, &value); }),
            "got sequence -1 and place 0, expected less than 2^31 and 2^32");
  EXPECT_EQ(message_of([&] { fill_state_row(key, 0, 0, 4, 3, 2, &value); }),
            "got dims 3 to 5 of a cache entry, expected at most 4");
  EXPECT_EQ(message_of([&] { fill_state_row(key, 1 << 30, 0, int64_t{1} << 20, 0, 1, &value); }),
            "the index of sequence 1073741824 in cache entries of 1048576 overflows 64 bits");
  EXPECT_EQ(message_of([] { first_token_id(1, 0, 0); }), "got vocabulary 0, expected 1 to 2147483647");
}

TEST(Multipliers, AreOddAndDoNotWrap) {
  const auto rows = drawn_multipliers(4, 3, 4, 129280);
  ASSERT_EQ(rows.size(), 3U);
  for (const auto &row : rows) {
    ASSERT_EQ(row.size(), 4U);
    for (int64_t m : row) {
      EXPECT_EQ(m % 2, 1);
      int64_t product = 0;
      EXPECT_FALSE(__builtin_mul_overflow(m, int64_t{129279}, &product));
    }
  }
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_EQ(message_of([] { drawn_multipliers(4, 3, 4, 0); }), "got vocabulary 0, expected 1 or more");
}

plan::Model flash() {
  plan::Model m;
  m.hidden = 5120, m.layers = 40, m.vocab = 129280, m.attention = "latent", m.heads = 64, m.head_dim = 512;
  m.rope_dim = 64, m.q_lora = 1280, m.o_groups = 8, m.o_lora = 1024, m.sink = true;
  m.compress_ratios.assign(40, 1);
  std::fill_n(m.compress_ratios.begin(), 20, 2);
  std::fill_n(m.compress_ratios.begin(), 2, 0);
  m.routed = 384, m.top_k = 6, m.shared = 1, m.expert_width = 2304, m.hyper_connections = 4;
  m.engram_layers = {1, 14}, m.engram_ngram = 4, m.engram_heads = 8, m.engram_dim = 256;
  m.engram_vocab_per_head = 16000000;
  return m;
}

int64_t total_of(const std::vector<plan::Weight> &weights, const std::string &prefix) {
  int64_t total = 0;
  for (const plan::Weight &weight : weights)
    if (weight.name.starts_with(prefix))
      total += std::accumulate(weight.shape.begin(), weight.shape.end(), int64_t{1}, std::multiplies<>());
  return total;
}

TEST(ModelWeights, SizesOfTheFlashModel) {
  const std::vector<plan::Weight> weights = model_weights(flash());
  std::map<std::string, plan::Weight> by_name;
  for (const plan::Weight &weight : weights)
    EXPECT_TRUE(by_name.emplace(weight.name, weight).second) << weight.name << " twice";
  // The memory bill's figures: one expert, and the attention projections of a layer.
  EXPECT_EQ((total_of(weights, "layers.0.moe.w13") + total_of(weights, "layers.0.moe.w2")) / 384, 35389440);
  EXPECT_EQ(total_of(weights, "layers.0.attn.w"),
            1280 * 5120 + 1280 * 32768 + 512 * 5120 + 8 * 1024 * 4096 + 8192 * 5120);
  EXPECT_EQ(by_name.at("layers.1.engram.table").shape, (std::vector<int64_t>{384006168, 256}));
  EXPECT_EQ(by_name.at("layers.14.engram.table").shape, (std::vector<int64_t>{384016682, 256}));
  EXPECT_EQ(by_name.at("layers.14.engram.wkv").shape, (std::vector<int64_t>{5 * 5120, 6144}));
  EXPECT_FALSE(by_name.count("layers.0.attn.compress.wkv"));
  EXPECT_TRUE(by_name.count("layers.2.attn.compress.wgate"));
  EXPECT_FALSE(by_name.count("layers.20.attn.compress.wgate"));
  EXPECT_EQ(by_name.at("layers.3.hc_attn.fn").shape, (std::vector<int64_t>{24, 20480}));
  EXPECT_EQ(by_name.at("layers.3.hc_attn.scale").init, "hc_scale");
  EXPECT_EQ(by_name.at("layers.3.moe.w2").fan_in, 2304);
  EXPECT_EQ(by_name.at("embed").fan_in, 1);
}

TEST(ModelWeights, RefusesModelsThatDoNotFit) {
  auto call = [](auto change) {
    plan::Model m = flash();
    change(m);
    return message_of([&] { model_weights(m); });
  };
  EXPECT_EQ(call([](auto &m) { m.attention = "linear"; }),
            "model: got attention = 'linear', expected latent, mla or gqa");
  EXPECT_EQ(call([](auto &m) { m.o_groups = 7; }), "model: got o_groups = 7, expected a divisor of 64 heads");
  EXPECT_EQ(call([](auto &m) { m.hidden = 0; }), "model: got hidden = 0, expected 1 or more");
  EXPECT_EQ(call([](auto &m) { m.compress_ratios = {1}; }),
            "model: got compress_ratios = 1, expected 40 entries, one a layer");
  EXPECT_EQ(call([](auto &m) { m.window.assign(40, -1); }), "model: got window = -1, expected 0 or more");
  EXPECT_EQ(call([](auto &m) {
              m.attention = "gqa";
              m.kv_heads = 8;
            }),
            "model: got compress_ratios = 2, expected 0, or a ratio of a latent model");
  EXPECT_EQ(call([](auto &m) {
              m.attention = "gqa";
              m.compress_ratios.clear();
              m.kv_heads = 3;
            }),
            "model: got kv_heads = 3, expected a divisor of 64 heads");
  EXPECT_EQ(call([](auto &m) {
              m.attention = "mla";
              m.compress_ratios.clear();
            }),
            "model: got kv_lora = 0, expected 1 or more");
  EXPECT_EQ(call([](auto &m) { m.dense_layers = 1; }), "model: got dense_width = 0, expected 1 or more");
  EXPECT_EQ(call([](auto &m) { m.engram_ngram = 1; }), "model: got engram_ngram = 1, expected 2 or more");
}

} // namespace
} // namespace paratope
