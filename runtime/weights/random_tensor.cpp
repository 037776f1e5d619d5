// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/random_tensor.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paratope {
namespace {

// u from a word: its top 24 bits as a signed integer, centred, times √3·2⁻²³. Each step is exact but the
// product.
constexpr float unit = 1.7320508075688772F / 8388608.0F;

inline float centred(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word) >> 8) + 0.5F; // (2v+1)/2 with |2v+1| < 2²⁴: exact
}

inline float element(uint32_t word, Init init) { return init.offset + init.scale * (unit * centred(word)); }

constexpr int64_t batch = 64; // counters made together: the loop over them is what a compiler vectorises

// words[lane][i] = lane of counter first + i. The same ten rounds as philox4x32, on arrays.
void philox_batch(PhiloxKey k, uint64_t first, uint32_t (&words)[4][batch]) {
  for (int64_t i = 0; i < batch; ++i) {
    const uint64_t counter = first + static_cast<uint64_t>(i);
    words[0][i] = static_cast<uint32_t>(counter);
    words[1][i] = static_cast<uint32_t>(counter >> 32);
    words[2][i] = 0;
    words[3][i] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int64_t i = 0; i < batch; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * words[0][i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * words[2][i];
      words[0][i] = static_cast<uint32_t>(p1 >> 32) ^ words[1][i] ^ k[0];
      words[1][i] = static_cast<uint32_t>(p1);
      words[2][i] = static_cast<uint32_t>(p0 >> 32) ^ words[3][i] ^ k[1];
      words[3][i] = static_cast<uint32_t>(p0);
    }
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
}

} // namespace

PhiloxKey tensor_key(int64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325; // FNV-1a, 64 bits
  for (char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  hash += static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15; // splitmix64: its step, then its finaliser
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
  hash ^= hash >> 31;
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

uint32_t tensor_word(PhiloxKey key, int64_t i) {
  const uint64_t counter = static_cast<uint64_t>(i) / 4;
  const PhiloxCounter c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  return philox4x32(c, key)[static_cast<size_t>(i % 4)];
}

Init init_named(const std::string &kind, int64_t fan_in) {
  if (fan_in < 1)
    throw WeightError(fmt::format("got fan_in {} for init '{}', expected 1 or more", fan_in, kind));
  if (kind == "normal")
    return {0, static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)))};
  if (kind == "gain")
    return {1.0F, 0.1F};
  if (kind == "bias")
    return {0, 0.01F};
  if (kind == "hc_scale")
    return {0.1F, 0.01F};
  throw WeightError(fmt::format("got init '{}', expected normal, gain, bias or hc_scale", kind));
}

void fill_run(PhiloxKey key, int64_t first, int64_t count, Init init, float *dst) {
  const int64_t end = first + count;
  int64_t i = first;
  auto one_counter = [&] { // elements up to the counter's last
    const uint64_t counter = static_cast<uint64_t>(i) / 4;
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
    for (const int64_t stop = std::min(end, (i / 4 + 1) * 4); i < stop; ++i)
      *dst++ = element(words[static_cast<size_t>(i % 4)], init);
  };
  if (i % 4 != 0 && i < end)
    one_counter();
  uint32_t words[4][batch];
  for (; i + 4 * batch <= end; i += 4 * batch, dst += 4 * batch) {
    philox_batch(key, static_cast<uint64_t>(i) / 4, words);
    for (int64_t j = 0; j < batch; ++j)
      for (int64_t lane = 0; lane < 4; ++lane)
        dst[4 * j + lane] = element(words[lane][j], init);
  }
  while (i < end)
    one_counter();
}

void fill_tensor(int64_t seed, std::string_view name, int64_t count, Init init, float *dst) {
  fill_run(tensor_key(seed, name), 0, count, init, dst);
}

} // namespace paratope
