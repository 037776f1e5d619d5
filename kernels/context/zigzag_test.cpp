// SPDX-License-Identifier: Apache-2.0
//
// The tables against their definition, on ragged batches for every cp up to 16.
#include "kernels/context/zigzag.h"

#include "kernels/testing.h"

#include <limits>
#include <numeric>
#include <random>

namespace paratope {
namespace {

using namespace testing_support;
using List = std::vector<int64_t>;

constexpr int64_t largest = std::numeric_limits<int64_t>::max();

// Each edge of a length alone, and ragged batches of them.
std::vector<List> batches(int64_t cp) {
  List edges{0, 1, 2, 3, 1000, 4097};
  for (int64_t multiple : {1, 2, 7})
    for (int64_t beside : {-1, 0, 1})
      edges.push_back(multiple * 2 * cp + beside);
  std::vector<List> all{{}};
  for (int64_t length : edges)
    all.push_back({length});
  std::mt19937 random(static_cast<unsigned>(cp));
  for (int batch = 0; batch < 12; ++batch) {
    List ragged(2 + random() % 6);
    for (int64_t &length : ragged)
      length = edges[random() % edges.size()];
    all.push_back(ragged);
  }
  return all;
}

int64_t total(const List &lengths) { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

TEST(Zigzag, WorkedExample) {
  const List lengths{10};
  EXPECT_EQ(mirror_length(lengths, 2), 6);
  EXPECT_EQ(mirror_index(lengths, 2, 0), (List{0, 1, 2, 9, -1, -1}));
  EXPECT_EQ(mirror_index(lengths, 2, 1), (List{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(reverse_index(lengths, 2), (List{0, 1, 2, 6, 7, 8, 9, 10, 11, 3}));
  const KeyRanges first = key_ranges(lengths, lengths, 2, 0, 1),
                  second = key_ranges(lengths, lengths, 2, 1, 1);
  EXPECT_EQ(first.begin, (List{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(first.end, (List{1, 2, 3, 10, 0, 0}));
  EXPECT_EQ(second.end, (List{4, 5, 6, 7, 8, 9}));
}

TEST(Zigzag, TwoSequencesAreCutOneByOne) {
  const List lengths{5, 3}; // cp 2: ps 2 and 1
  EXPECT_EQ(mirror_index(lengths, 2, 0), (List{0, 1, -1, -1, 5, -1}));
  EXPECT_EQ(mirror_index(lengths, 2, 1), (List{2, 3, 4, -1, 6, 7}));
  // Of ratio 2 and with 4 and 3 cached tokens, 9 and 6 keys pack to 4 and 3.
  const KeyRanges first = key_ranges(lengths, List{9, 6}, 2, 0, 2);
  EXPECT_EQ(first.begin, (List{0, 0, 0, 0, 4, 4}));
  EXPECT_EQ(first.end, (List{2, 3, 0, 0, 6, 4}));
  const KeyRanges second = key_ranges(lengths, List{9, 6}, 2, 1, 2);
  EXPECT_EQ(second.begin, (List{0, 0, 0, 0, 4, 4}));
  EXPECT_EQ(second.end, (List{3, 4, 4, 0, 6, 7}));
}

TEST(Zigzag, EveryTokenIsOwnedOnceAndFoundAgain) {
  for (int64_t cp = 1; cp <= 16; ++cp)
    for (const List &lengths : batches(cp)) {
      int64_t rows = 0;
      for (int64_t length : lengths)
        rows += 2 * ceil_div(length, 2 * cp);
      ASSERT_EQ(mirror_length(lengths, cp), rows);
      List gathered; // the ranks' rows one after another
      for (int64_t rank = 0; rank < cp; ++rank) {
        const List index = mirror_index(lengths, cp, rank);
        ASSERT_EQ(static_cast<int64_t>(index.size()), rows) << cp << " " << rank;
        gathered.insert(gathered.end(), index.begin(), index.end());
      }
      List owners(static_cast<size_t>(total(lengths)), 0);
      int64_t padding = 0;
      for (int64_t place : gathered) {
        ASSERT_GE(place, -1);
        ASSERT_LT(place, total(lengths));
        place < 0 ? ++padding : ++owners[static_cast<size_t>(place)];
      }
      EXPECT_EQ(owners, List(owners.size(), 1));
      EXPECT_EQ(padding, cp * rows - total(lengths));
      const List reverse = reverse_index(lengths, cp);
      ASSERT_EQ(reverse.size(), owners.size());
      for (size_t place = 0; place < reverse.size(); ++place)
        ASSERT_EQ(gathered.at(static_cast<size_t>(reverse[place])), static_cast<int64_t>(place));
    }
}

TEST(Zigzag, KeyRangesEqualCounting) {
  for (int64_t cp : {1, 2, 3, 5, 8, 16})
    for (const List &lengths : batches(cp)) {
      std::mt19937 random(static_cast<unsigned>(cp + 100));
      List key_lengths;
      for (int64_t length : lengths)
        key_lengths.push_back(length + static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 50));
      for (int64_t ratio : {1, 2, 4}) {
        // first[s]: packed keys before sequence s; seen[place]: packed keys that are complete when the
        // token at this place has been, counted one token at a time.
        List first, seen, sequence_of;
        int64_t packed = 0;
        for (size_t s = 0; s < lengths.size(); ++s) {
          first.push_back(packed);
          int64_t complete = 0;
          for (int64_t token = 0; token < key_lengths[s]; ++token) {
            complete += token % ratio == ratio - 1;
            if (token >= key_lengths[s] - lengths[s]) {
              seen.push_back(complete);
              sequence_of.push_back(static_cast<int64_t>(s));
            }
          }
          packed += complete;
        }
        for (int64_t rank = 0; rank < cp; ++rank) {
          const List index = mirror_index(lengths, cp, rank);
          const KeyRanges got = key_ranges(lengths, key_lengths, cp, rank, ratio);
          ASSERT_EQ(got.begin.size(), index.size());
          ASSERT_EQ(got.end.size(), index.size());
          for (size_t row = 0; row < index.size(); ++row) {
            if (index[row] < 0) {
              ASSERT_EQ(got.begin[row], got.end[row]);
              continue;
            }
            const auto place = static_cast<size_t>(index[row]);
            const int64_t begin = first[static_cast<size_t>(sequence_of[place])];
            ASSERT_EQ(got.begin[row], begin) << cp << " " << rank << " " << row;
            ASSERT_EQ(got.end[row], begin + seen[place]) << cp << " " << rank << " " << row;
          }
        }
      }
    }
}

// Causal pairs of a rank differ from the mean by less than what one block's width makes of them.
TEST(Zigzag, RanksAttendAboutTheSame) {
  const List lengths{16 * 1024};
  for (int64_t cp : {2, 4, 8, 16}) {
    List pairs;
    for (int64_t rank = 0; rank < cp; ++rank) {
      const KeyRanges ranges = key_ranges(lengths, lengths, cp, rank, 1);
      int64_t sum = 0;
      for (size_t row = 0; row < ranges.begin.size(); ++row)
        sum += ranges.end[row] - ranges.begin[row];
      pairs.push_back(sum);
    }
    EXPECT_EQ(pairs, List(static_cast<size_t>(cp), pairs[0])); // 2·cp divides: exactly the same
  }
}

TEST(Zigzag, RefusesWhatCannotBe) {
  const List lengths{10, 7};
  EXPECT_EQ(message_of([&] { mirror_length(lengths, 0); }), "zigzag: got cp 0, expected 1 or more");
  EXPECT_EQ(message_of([&] { mirror_index(lengths, -2, 0); }), "zigzag: got cp -2, expected 1 or more");
  EXPECT_EQ(message_of([&] { reverse_index(lengths, 0); }), "zigzag: got cp 0, expected 1 or more");
  EXPECT_EQ(message_of([&] { key_ranges(lengths, lengths, 0, 0, 1); }),
            "zigzag: got cp 0, expected 1 or more");
  for (int64_t rank : {-1, 2}) {
    const std::string expected = "zigzag: got rank " + std::to_string(rank) + ", expected 0 to 1";
    EXPECT_EQ(message_of([&] { mirror_index(lengths, 2, rank); }), expected);
    EXPECT_EQ(message_of([&] { key_ranges(lengths, lengths, 2, rank, 1); }), expected);
  }
  const List negative{4, -1};
  const std::string below = "zigzag: got length -1 of sequence 1, expected 0 or more";
  EXPECT_EQ(message_of([&] { mirror_length(negative, 2); }), below);
  EXPECT_EQ(message_of([&] { mirror_index(negative, 2, 0); }), below);
  EXPECT_EQ(message_of([&] { reverse_index(negative, 2); }), below);
  EXPECT_EQ(message_of([&] { key_ranges(negative, lengths, 2, 0, 1); }), below);
  EXPECT_EQ(message_of([&] { key_ranges(lengths, lengths, 2, 0, 0); }),
            "zigzag: got compression ratio 0, expected 1 or more");
  EXPECT_EQ(message_of([&] { key_ranges(lengths, List{10}, 2, 0, 1); }),
            "zigzag: got 1 key lengths, expected 2");
  EXPECT_EQ(message_of([&] { key_ranges(lengths, List{10, 6}, 2, 0, 1); }),
            "zigzag: got key length 6 of sequence 1, expected at least its 7 queries");
}

TEST(Zigzag, RefusesSizesThatOverflow) {
  auto too_much = [](int sequences, int64_t cp) {
    return "zigzag: got " + std::to_string(sequences) + " sequences and cp " + std::to_string(cp) +
           ", expected padded lengths that add up to less than 2^63";
  };
  // twice cp; one padded sequence; their sum; the sum over ranks
  EXPECT_EQ(message_of([&] { mirror_length(List{}, largest); }), too_much(0, largest));
  EXPECT_EQ(message_of([&] { mirror_length(List{largest}, 1); }), too_much(1, 1));
  EXPECT_EQ(message_of([&] { mirror_index(List{largest - 1, 2}, 1, 0); }), too_much(2, 1));
  EXPECT_EQ(message_of([&] { reverse_index(List{largest / 2 - 1, largest / 2 - 1, 4}, 2); }), too_much(3, 2));
  EXPECT_EQ(message_of([&] { mirror_length(List(3, 1), largest / 4); }), too_much(3, largest / 4));
  EXPECT_EQ(message_of([&] { key_ranges(List{0, 0}, List{largest, 1}, 2, 0, 1); }),
            "zigzag: got key lengths that add up to 2^63 or more, expected less");
  // The largest that fit: a sequence that 2·cp divides, and a history without end.
  EXPECT_EQ(mirror_length(List{largest - 1}, 1), largest - 1);
  const KeyRanges ranges = key_ranges(List{2}, List{largest}, 1, 0, 1);
  EXPECT_EQ(ranges.end, (List{largest - 1, largest}));
}

} // namespace
} // namespace paratope
