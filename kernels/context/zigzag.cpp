// SPDX-License-Identifier: Apache-2.0
#include "kernels/context/zigzag.h"

#include "kernels/error.h"
#include "kernels/tensor.h"

#include <fmt/format.h>

namespace paratope {
namespace {

// ps = ⌈length/(2·cp)⌉, without a sum that might wrap.
int64_t block_size(int64_t length, int64_t cp) { return length / (2 * cp) + (length % (2 * cp) != 0); }

void check_rank(int64_t cp, int64_t rank) {
  check_positive("zigzag", "cp", cp);
  if (rank < 0 || rank >= cp)
    throw KernelError(fmt::format("zigzag: got rank {}, expected 0 to {}", rank, cp - 1));
}

// Calls row(sequence, t) for every row of a rank in order, t being the token's place in its sequence, or −1.
template <typename Row>
void for_each_row(std::span<const int64_t> lengths, int64_t cp, int64_t rank, Row row) {
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t ps = block_size(lengths[s], cp);
    for (const int64_t block : {rank, 2 * cp - 1 - rank})
      for (int64_t t = ps * block; t < ps * (block + 1); ++t)
        row(s, t < lengths[s] ? t : -1);
  }
}

} // namespace

int64_t mirror_length(std::span<const int64_t> lengths, int64_t cp) {
  check_positive("zigzag", "cp", cp);
  int64_t rows = 0, gathered = 0, blocks = 0;
  bool fits = !__builtin_mul_overflow(cp, 2, &blocks);
  for (size_t s = 0; s < lengths.size() && fits; ++s) {
    if (lengths[s] < 0)
      throw KernelError(
          fmt::format("zigzag: got length {} of sequence {}, expected 0 or more", lengths[s], s));
    int64_t two_blocks = 0;
    fits = !__builtin_mul_overflow(block_size(lengths[s], cp), 2, &two_blocks) &&
           !__builtin_add_overflow(rows, two_blocks, &rows);
  }
  // Places and gathered rows are below cp·rows, so that nothing after this can wrap.
  if (!fits || __builtin_mul_overflow(rows, cp, &gathered))
    throw KernelError(fmt::format(
        "zigzag: got {} sequences and cp {}, expected padded lengths that add up to less than 2^63",
        lengths.size(), cp));
  return rows;
}

std::vector<int64_t> mirror_index(std::span<const int64_t> lengths, int64_t cp, int64_t rank) {
  check_rank(cp, rank);
  std::vector<int64_t> index;
  index.reserve(static_cast<size_t>(mirror_length(lengths, cp)));
  size_t current = 0;
  int64_t start = 0; // place of the current sequence's first token
  for_each_row(lengths, cp, rank, [&](size_t sequence, int64_t t) {
    for (; current < sequence; ++current)
      start += lengths[current];
    index.push_back(t < 0 ? -1 : start + t);
  });
  return index;
}

std::vector<int64_t> reverse_index(std::span<const int64_t> lengths, int64_t cp) {
  const int64_t rows_a_rank = mirror_length(lengths, cp);
  std::vector<int64_t> index;
  int64_t first_row = 0; // of the sequence, the same on every rank
  for (const int64_t length : lengths) {
    const int64_t ps = block_size(length, cp);
    for (int64_t t = 0; t < length; ++t) {
      const int64_t block = t / ps;
      const bool mirrored = block >= cp;
      const int64_t rank = mirrored ? 2 * cp - 1 - block : block;
      index.push_back(rank * rows_a_rank + first_row + (mirrored ? ps : 0) + t % ps);
    }
    first_row += 2 * ps;
  }
  return index;
}

KeyRanges key_ranges(std::span<const int64_t> lengths, std::span<const int64_t> key_lengths, int64_t cp,
                     int64_t rank, int64_t ratio) {
  check_rank(cp, rank);
  check_positive("zigzag", "compression ratio", ratio);
  if (key_lengths.size() != lengths.size())
    throw KernelError(
        fmt::format("zigzag: got {} key lengths, expected {}", key_lengths.size(), lengths.size()));
  const auto rows = static_cast<size_t>(mirror_length(lengths, cp));
  std::vector<int64_t> first_key; // of each sequence among the packed keys
  int64_t keys = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (key_lengths[s] < lengths[s])
      throw KernelError(
          fmt::format("zigzag: got key length {} of sequence {}, expected at least its {} queries",
                      key_lengths[s], s, lengths[s]));
    first_key.push_back(keys);
    if (__builtin_add_overflow(keys, key_lengths[s] / ratio, &keys))
      throw KernelError("zigzag: got key lengths that add up to 2^63 or more, expected less");
  }
  KeyRanges ranges;
  ranges.begin.reserve(rows);
  ranges.end.reserve(rows);
  for_each_row(lengths, cp, rank, [&](size_t s, int64_t t) {
    // key_length − length + t + 1 ≤ key_length; subtracting first keeps the sum from wrapping.
    const int64_t seen = t < 0 ? 0 : (key_lengths[s] - (lengths[s] - t - 1)) / ratio;
    ranges.begin.push_back(first_key[s]);
    ranges.end.push_back(first_key[s] + seen);
  });
  return ranges;
}

} // namespace paratope
