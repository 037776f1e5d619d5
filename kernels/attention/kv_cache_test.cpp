// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/kv_cache.h"

#include "kernels/testing.h"

#include <set>

namespace paratope {
namespace {

using namespace testing_support;

TEST(KvCache, EveryEntryHasAPlaceOfItsOwn) {
  for (int64_t block_tokens : {1, 3, 4, 64})
    for (int64_t ratio : {1, 2, 3, 5, 7, 128}) {
      KvCache cache({3, 200, block_tokens, {{2, ratio}, {3, 0}}, 0});
      std::set<const float *> places;
      int64_t entries = 0;
      for (int64_t tokens : {50, 200}) // grow in turn, so that the sequences' pages interleave
        for (int64_t s = 0; s < 3; ++s)
          cache.reserve(s, tokens);
      for (int64_t s = 0; s < 3; ++s) {
        for (int64_t p = 0; p < 200; ++p, ++entries)
          places.insert(cache.token(0, s, p));
        for (int64_t j = 0; j < 200 / ratio; ++j, ++entries)
          places.insert(cache.compressed(0, s, j));
        for (int64_t p = 0; p < 200; ++p, ++entries)
          places.insert(cache.token(1, s, p));
      }
      EXPECT_EQ(static_cast<int64_t>(places.size()), entries) << block_tokens << " " << ratio;
      for (const float *place : places)
        EXPECT_TRUE(std::isnan(place[0]) && std::isnan(place[1]));
    }
}

TEST(KvCache, ReleasedPagesAreTakenAgainAndPoisoned) {
  KvCache cache({2, 8, 4, {{1, 2}}, 2});
  cache.reserve(0, 8);
  EXPECT_EQ(cache.pages_in_use(), 2);
  *cache.token(0, 0, 5) = 1;
  *cache.compressed(0, 0, 3) = 2;
  *cache.open_candidate(0, 0, 1) = 3;
  EXPECT_EQ(message_of([&] { cache.reserve(1, 1); }),
            "kv cache: no page left for token 0 of sequence 1, the pool has 2 pages of 4 tokens");
  cache.release(0);
  EXPECT_EQ(cache.pages_in_use(), 0);
  cache.reserve(1, 8);
  EXPECT_TRUE(std::isnan(*cache.token(0, 1, 5)));
  EXPECT_TRUE(std::isnan(*cache.compressed(0, 1, 3)));
  EXPECT_TRUE(std::isnan(*cache.open_candidate(0, 0, 1)));
  EXPECT_EQ(message_of([&] { cache.token(0, 0, 0); }),
            "kv cache: a token of layer 0, sequence 0 needs position 0, expected 0 to -1 (reserved)");
}

TEST(KvCache, RefusesWhatItDoesNotHold) {
  KvCache cache({2, 8, 4, {{1, 0}, {1, 2}, {1, 1}}, 0});
  EXPECT_EQ(message_of([&] { cache.reserve(0, 9); }),
            "kv cache: got 9 tokens in sequence 0, expected at most 8");
  EXPECT_EQ(message_of([&] { cache.reserve(2, 1); }), "kv cache: got sequence 2 in row 2, expected 0 to 1");
  EXPECT_EQ(message_of([&] { cache.token(3, 0, 0); }), "kv cache: got layer 3 in row 0, expected 0 to 2");
  EXPECT_EQ(
      message_of([&] { cache.compressed(0, 0, 0); }),
      "kv cache: got compressed entry 0 of layer 0 with ratio 0, expected an entry of a layer with a ratio");
  EXPECT_EQ(
      message_of([&] { cache.open_gate(1, 0, 2); }),
      "kv cache: got place 2 of the open block of layer 1, expected less than its ratio 2, which is above 1");
  EXPECT_NE(message_of([&] { cache.open_candidate(2, 0, 0); }), "no error");
}

TEST(KvCache, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(message_of([] { KvCache({int64_t{1} << 40, int64_t{1} << 40, 1, {{1, 0}}, 0}); }),
            "kv cache: a size overflows 64 bits: 1099511627776 x 1099511627776");
  EXPECT_EQ(message_of([] { KvCache({1, 1, 0, {}, 0}); }),
            "kv cache: got block_tokens 0, expected 1 or more");
  EXPECT_EQ(message_of([] { KvCache({-1, 1, 1, {}, 0}); }),
            "kv cache: got -1 sequences, 1 tokens, 0 pages, expected 0 or more");
  EXPECT_EQ(message_of([] { KvCache({1, 1, 1, {{1, -2}}, 0}); }),
            "kv cache: got compression ratio -2, expected 0 or more");
  EXPECT_EQ(message_of([] { KvCache({1, 1, 1, {{0, 0}}, 0}); }),
            "kv cache: got entry size 0, expected 1 or more");
}

TEST(KvCache, CountsItsBytes) {
  // 2 pages of 4 tokens, entries of 2, ratio 2: tokens 2·4·2, compressed 2·2·2, open 1·2·2·2 floats
  EXPECT_EQ(KvCache({1, 8, 4, {{2, 2}}, 0}).bytes(), 4 * (16 + 8 + 8));
}

} // namespace
} // namespace paratope
