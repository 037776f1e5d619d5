// SPDX-License-Identifier: Apache-2.0
#include "kernels/engram/op.h"

#include "kernels/testing.h"

#include <limits>
#include <numeric>

namespace paratope {
namespace {

using namespace testing_support;

const std::vector<int64_t> flash_layers{1, 14};
const std::vector<std::vector<int64_t>> flash_multipliers{
    {76632096046245, 4839876093313, 35959672319349, 73987337458391},
    {67716810739261, 51510806800915, 30921347202721, 82619226485591}};

TEST(EngramHashes, PrimesOfTheFlashModel) {
  const auto hashes = engram_hashes(flash_layers, 4, 8, 16000000, flash_multipliers);
  ASSERT_EQ(hashes.size(), 2U);
  EXPECT_EQ(hashes[0].primes.front(), 16000057);
  EXPECT_EQ(hashes[0].primes.size(), 24U);
  EXPECT_EQ(hashes[0].rows, 384006168);
  EXPECT_EQ(hashes[1].rows, 384016682);
  EXPECT_GT(hashes[1].primes.front(), hashes[0].primes.back()); // one walk
  EXPECT_EQ(hashes[1].offsets.front(), 0);
  EXPECT_EQ(hashes[1].offsets[1], hashes[1].primes[0]);
  EXPECT_EQ(hashes[1].layer, 14);
}

TEST(EngramHashes, AVocabularyThatIsPrimeIsItsOwnFirstPrime) {
  const auto hashes = engram_hashes(std::vector<int64_t>{0}, 2, 3, 7, {{1, 3}});
  EXPECT_EQ(hashes[0].primes, (std::vector<int64_t>{7, 11, 13}));
  EXPECT_EQ(engram_hashes(std::vector<int64_t>{0}, 2, 2, 2, {{1, 3}})[0].primes,
            (std::vector<int64_t>{2, 3}));
}

TEST(EngramHashes, RefuseSizesThatDoNotFit) {
  auto call = [](int64_t ngram, int64_t heads, int64_t vocab, std::vector<std::vector<int64_t>> multipliers) {
    return message_of([&] { engram_hashes(std::vector<int64_t>{3}, ngram, heads, vocab, multipliers); });
  };
  EXPECT_EQ(call(1, 8, 100, {{1}}), "engram: got ngram 1, expected 2 or more");
  EXPECT_EQ(call(2, 0, 100, {{1, 1}}), "engram: got heads 0, expected 1 or more");
  EXPECT_EQ(call(2, 1, 1, {{1, 1}}), "engram: got vocabulary 1 a head, expected 2 to 2^40");
  EXPECT_EQ(call(2, 1, 100, {}), "engram: got rows of multipliers 0, expected 1");
  EXPECT_EQ(call(3, 1, 100, {{1, 1}}), "engram: got 2 multipliers for layer 3, expected 3");
  EXPECT_EQ(call(2, 1, 100, {{1, 2}}), "engram: got multiplier 2 for layer 3, expected an odd number");
}

TEST(EngramHash, HashesTheLastTokensOfEachSequence) {
  const auto hashes = engram_hashes(flash_layers, 4, 2, 1000, flash_multipliers);
  TokenHistory history(2, 4);
  const std::vector<std::vector<int32_t>> ids{{5, 129279, 77, 0, 31}, {9, 9, 9, 129279, 129279}};
  for (size_t p = 0; p < 5; ++p) {
    std::vector<std::vector<int64_t>> got;
    for (const EngramHash &hash : hashes) { // both layers record: recording twice changes nothing
      got.emplace_back(2 * 6, -1);
      const auto position = static_cast<int32_t>(p);
      engram_hash(hash, std::vector<int32_t>{ids[0][p], ids[1][p]}, std::vector<int32_t>{position, position},
                  history, got.back());
    }
    for (size_t l = 0; l < 2; ++l)
      for (size_t s = 0; s < 2; ++s) {
        __int128 mixed[5] = {}; // 64 bits of each product, by exact arithmetic
        int64_t bits = 0;
        for (size_t k = 0; k < 4; ++k) {
          const __int128 product =
              k <= p ? static_cast<__int128>(ids[s][p - k]) * flash_multipliers[l][k] : 0;
          bits ^= static_cast<int64_t>(static_cast<uint64_t>(product));
          mixed[k + 1] = bits;
        }
        for (size_t i = 0; i < 6; ++i) {
          const int64_t prime = hashes[l].primes[i];
          __int128 rest = mixed[i / 2 + 2] % prime;
          rest += rest < 0 ? prime : 0;
          EXPECT_EQ(got[l][s * 6 + i], static_cast<int64_t>(rest) + hashes[l].offsets[i])
              << p << " " << s << " " << i;
          EXPECT_GE(got[l][s * 6 + i], hashes[l].offsets[i]);
          EXPECT_LT(got[l][s * 6 + i], hashes[l].offsets[i] + prime);
        }
      }
  }
}

TEST(EngramHash, WrapsAndTakesTheRemainderNotNegative) {
  // 129279 · 82619226485591 > 2⁶³: the product wraps to a negative number.
  EngramHash hash{0, 2, 1, {97}, {0}, {82619226485591, 1}, 97};
  TokenHistory history(1, 2);
  std::vector<int64_t> rows(1);
  engram_hash(hash, std::vector<int32_t>{129279}, std::vector<int32_t>{0}, history, rows);
  const __int128 wrapped = static_cast<__int128>(129279) * 82619226485591 - (static_cast<__int128>(1) << 64);
  ASSERT_LT(wrapped, 0);
  EXPECT_EQ(rows[0], static_cast<int64_t>(wrapped % 97 + 97) % 97);
}

TEST(EngramPaddedRows, PartsAreEqual) {
  EXPECT_EQ(engram_padded_rows(384006168, 64), 384006400);
  EXPECT_EQ(engram_padded_rows(384016682, 64), 384016896);
  EXPECT_EQ(engram_padded_rows(384006400, 64) / 64, 6000100);
  for (int64_t parts : {1, 3, 8, 12, 100, 256, 384, 1024})
    for (int64_t rows : {0, 1, 255, 256, 257, 99999}) {
      const int64_t padded = engram_padded_rows(rows, parts);
      EXPECT_EQ(padded % parts, 0);
      EXPECT_EQ(padded % 256, 0);
      EXPECT_GE(padded, rows);
      EXPECT_LT(padded - rows, std::lcm(int64_t{256}, parts)); // no smaller multiple would do
    }
  EXPECT_EQ(message_of([] { engram_padded_rows(1, 0); }),
            "engram: got parts of a table 0, expected 1 or more");
  EXPECT_EQ(message_of([] { engram_padded_rows(-1, 2); }),
            "engram: got -1 rows of a table, expected 0 or more");
  const int64_t largest = std::numeric_limits<int64_t>::max();
  for (auto [rows, parts] : {std::pair(int64_t{1}, largest), std::pair(largest, int64_t{1})})
    EXPECT_EQ(message_of([&] { engram_padded_rows(rows, parts); }),
              "engram: got " + std::to_string(rows) + " rows in " + std::to_string(parts) +
                  " parts, expected padded rows below 2^63");
}

TEST(TokenHistory, RefusesTokensNobodyRecorded) {
  TokenHistory history(1, 3);
  history.record(0, 7, 42);
  EXPECT_EQ(history.at(0, 7), 42);
  EXPECT_EQ(history.at(0, -1), 0);
  EXPECT_EQ(message_of([&] { history.at(0, 6); }), "engram: token 6 of sequence 0 was never recorded");
  EXPECT_EQ(message_of([&] { history.at(0, 4); }),
            "engram: token 4 of sequence 0 was never recorded"); // same place as 7
  EXPECT_EQ(message_of([&] { history.record(1, 0, 1); }), "engram: got sequence 1 in row 1, expected 0 to 0");
  EXPECT_EQ(message_of([&] { history.record(0, -3, 1); }),
            "engram: got position -3 of sequence 0, expected 0 or more");
  EXPECT_EQ(message_of([] { TokenHistory(1, 0); }), "engram: got depth of a history 0, expected 1 or more");
  EXPECT_EQ(message_of([] { TokenHistory(-1, 3); }),
            "engram: got -1 sequences of a history, expected 0 or more that fit");
}

TEST(EngramGather, TakesRowsOfItsPartOnly) {
  const auto part = random_floats(4 * 3, 1);
  auto out = poisoned(2 * 3);
  engram_gather(part.data(), 100, 4, std::vector<int64_t>{103, 100}, {out.data(), 2, 3});
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 3, part.begin() + 9));
  EXPECT_TRUE(std::equal(out.begin() + 3, out.end(), part.begin()));
  for (int64_t row : {99, 104})
    EXPECT_EQ(message_of([&] {
                engram_gather(part.data(), 100, 4, std::vector<int64_t>{100, row}, {out.data(), 2, 3});
              }),
              "engram_gather: got table row " + std::to_string(row) + ", expected 100 to 103");
}

// A prompt in one step: every layer records all of it, and looks back from every token.
TEST(EngramHash, OfAWholePromptEqualsTokenByToken) {
  const std::vector<EngramHash> hashes =
      engram_hashes(std::vector<int64_t>{0, 1}, 3, 2, 50, {{3, 5, 7}, {9, 11, 13}});
  const std::vector<int32_t> ids{4, 8, 15, 16, 23, 42, 7}, positions{0, 1, 2, 3, 4, 0, 1},
      sequences{1, 1, 1, 1, 1, 0, 0};
  TokenHistory whole(2, 5 + 2), stepwise(2, 3);
  std::vector<int64_t> rows(ids.size() * 4), one(4);
  for (const EngramHash &hash : hashes) { // the second layer records what the first did
    engram_hash(hash, ids, positions, whole, rows, sequences);
    TokenHistory fresh = stepwise;
    for (size_t t = 0; t < ids.size(); ++t) {
      engram_hash(hash, std::span(ids).subspan(t, 1), std::span(positions).subspan(t, 1), fresh, one,
                  std::span(sequences).subspan(t, 1));
      EXPECT_TRUE(std::equal(one.begin(), one.end(), rows.begin() + static_cast<int64_t>(t) * 4)) << t;
    }
  }
}

TEST(EngramScale, MultipliesEachGroupOf32Dims) {
  std::vector<float> x(2 * 40, 2.0F);
  const std::vector<float> scales{1, 2, 3, 4, 5, 6}; // 3 rows of 2 groups
  engram_scale(std::vector<int64_t>{2, 0}, scales.data(), 3, {x.data(), 2, 40});
  EXPECT_EQ(x[0], 10);
  EXPECT_EQ(x[31], 10);
  EXPECT_EQ(x[32], 12);
  EXPECT_EQ(x[40], 2);
  EXPECT_EQ(x[79], 4);
  EXPECT_EQ(
      message_of([&] { engram_scale(std::vector<int64_t>{0, 3}, scales.data(), 3, {x.data(), 2, 40}); }),
      "engram_scale: got table row 3 in row 1, expected 0 to 2");
}

TEST(EngramGate, EqualsTheFormula) {
  for (int64_t t : {0, 1, 3})
    for (int64_t n : {1, 4}) {
      const int64_t hidden = 7, features = 10;
      const auto wide = random_floats(t * n * hidden, 1), feats = random_floats(t * features, 2);
      const auto wkv = random_floats((n + 1) * hidden * features, 3);
      const auto h_gain = random_floats(n * hidden, 4), key_gain = random_floats(n * hidden, 5);
      auto out = poisoned(t * n * hidden);
      engram_gate({wide.data(), t, n * hidden}, n, {feats.data(), t, features}, wkv.data(), h_gain.data(),
                  key_gain.data(), 1e-6, {out.data(), t, n * hidden});
      std::vector<double> expected;
      for (int64_t i = 0; i < t; ++i) {
        std::vector<double> kv;
        for (int64_t r = 0; r < (n + 1) * hidden; ++r) {
          kv.push_back(0);
          for (int64_t c = 0; c < features; ++c)
            kv.back() += static_cast<double>(feats[i * features + c]) * wkv[r * features + c];
        }
        for (int64_t m = 0; m < n; ++m) {
          std::vector<double> h(wide.begin() + (i * n + m) * hidden, wide.begin() + (i * n + m + 1) * hidden);
          std::vector<double> key(kv.begin() + m * hidden, kv.begin() + (m + 1) * hidden);
          const double h_scale =
              std::sqrt(std::inner_product(h.begin(), h.end(), h.begin(), 0.0) / hidden + 1e-6);
          const double key_scale =
              std::sqrt(std::inner_product(key.begin(), key.end(), key.begin(), 0.0) / hidden + 1e-6);
          double d = 0;
          for (int64_t c = 0; c < hidden; ++c)
            d += h[c] / h_scale * h_gain[m * hidden + c] * (key[c] / key_scale * key_gain[m * hidden + c]);
          d /= std::sqrt(static_cast<double>(hidden));
          const double gate = 1 / (1 + std::exp(-(d < 0 ? -1 : 1) * std::sqrt(std::max(std::abs(d), 1e-6))));
          for (int64_t c = 0; c < hidden; ++c)
            expected.push_back(h[c] + gate * kv[n * hidden + c]);
        }
      }
      EXPECT_LT(error_of(out, expected), rounding);
      auto in_place = wide;
      engram_gate({in_place.data(), t, n * hidden}, n, {feats.data(), t, features}, wkv.data(), h_gain.data(),
                  key_gain.data(), 1e-6, {in_place.data(), t, n * hidden});
      EXPECT_EQ(in_place, out);
    }
  std::vector<float> d(20);
  EXPECT_EQ(message_of([&] {
              engram_gate({d.data(), 1, 5}, 2, {d.data(), 1, 1}, d.data(), d.data(), d.data(), 0,
                          {d.data(), 1, 5});
            }),
            "engram_gate: got row size of X modulo streams 1, expected 0");
}

} // namespace
} // namespace paratope
