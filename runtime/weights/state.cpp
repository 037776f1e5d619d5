// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/state.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace paratope {
namespace {

// The number of row `place` of sequence S: S·2³² + place.
int64_t row_number(int64_t sequence, int64_t place) {
  constexpr int64_t places = int64_t{1} << 32;
  if (sequence < 0 || sequence >= places / 2 || place < 0 || place >= places)
    throw WeightError(
        fmt::format("got sequence {} and place {}, expected less than 2^31 and 2^32", sequence, place));
  return sequence * places + place;
}

int32_t id_of(uint32_t word, int64_t vocab) {
  if (vocab < 1 || vocab > std::numeric_limits<int32_t>::max())
    throw WeightError(
        fmt::format("got vocabulary {}, expected 1 to {}", vocab, std::numeric_limits<int32_t>::max()));
  return static_cast<int32_t>(int64_t{word} % vocab);
}

} // namespace

PhiloxKey state_key(int64_t seed, StateTensor tensor, int64_t layer) {
  constexpr const char *names[] = {"kv", "kv_compressed", "kv_open", "kv_open_gate"};
  return tensor_key(seed, fmt::format("{}.{}", names[static_cast<int>(tensor)], layer));
}

void fill_state_row(PhiloxKey key, int64_t sequence, int64_t place, int64_t entry_size, int64_t first_dim,
                    int64_t dims, float *dst) {
  if (first_dim < 0 || dims < 0 || first_dim + dims > entry_size)
    throw WeightError(fmt::format("got dims {} to {} of a cache entry, expected at most {}", first_dim,
                                  first_dim + dims, entry_size));
  int64_t first = 0;
  if (__builtin_mul_overflow(row_number(sequence, place), entry_size, &first) ||
      __builtin_add_overflow(first, first_dim, &first))
    throw WeightError(fmt::format("the index of sequence {} in cache entries of {} overflows 64 bits",
                                  sequence, entry_size));
  fill_run(key, first, dims, {0, 1}, dst);
}

int32_t first_token_id(int64_t seed, int64_t sequence, int64_t vocab) {
  return id_of(tensor_word(tensor_key(seed, "ids"), sequence), vocab);
}

int32_t context_token_id(int64_t seed, int64_t sequence, int64_t position, int64_t vocab) {
  return id_of(tensor_word(tensor_key(seed, "context_ids"), row_number(sequence, position)), vocab);
}

std::vector<std::vector<int64_t>> drawn_multipliers(int64_t seed, int64_t num_layers, int64_t ngram,
                                                    int64_t vocab) {
  if (vocab < 1)
    throw WeightError(fmt::format("got vocabulary {}, expected 1 or more", vocab));
  const int64_t odd_numbers = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / vocab / 2);
  const PhiloxKey key = tensor_key(seed, "engram.multipliers");
  std::vector<std::vector<int64_t>> multipliers;
  for (int64_t l = 0, i = 0; l < num_layers; ++l) {
    multipliers.emplace_back();
    for (int64_t k = 0; k < ngram; ++k, i += 2) {
      const uint64_t word = uint64_t{tensor_word(key, i)} << 32 | tensor_word(key, i + 1);
      multipliers.back().push_back(2 * static_cast<int64_t>(word % static_cast<uint64_t>(odd_numbers)) + 1);
    }
  }
  return multipliers;
}

} // namespace paratope
