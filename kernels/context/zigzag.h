// SPDX-License-Identifier: Apache-2.0
//
// Context parallelism's cut of prompts. A sequence of L tokens becomes 2·cp blocks of ps = ⌈L/(2·cp)⌉; rank r
// takes block r and its mirror image 2·cp−1−r, so that causal attention costs every rank about the same:
//
//     cp 2, L 10, ps 3     0 1 2 | 3 4 5 | 6 7 8 | 9 · ·
//                          rank 0  rank 1  rank 1  rank 0        · padding
//
// A flat batch is the sequences one after another; "place" below is an index into it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paratope {

// Rows a rank holds: Σ over sequences of 2·ps, the same on every rank. All functions here throw KernelError
// on cp < 1, a rank outside, a length below 0, or sizes that overflow.
int64_t mirror_length(std::span<const int64_t> lengths, int64_t cp);

// mirror_index of a rank, [mirror_length]: each row's place in the flat batch, −1 for padding; sequence by
// sequence, block r before block 2·cp−1−r.
std::vector<int64_t> mirror_index(std::span<const int64_t> lengths, int64_t cp, int64_t rank);

// [Σ lengths]: rank·mirror_length + row, where each flat token lies once the ranks' rows are gathered.
std::vector<int64_t> reverse_index(std::span<const int64_t> lengths, int64_t cp);

// The keys a rank's rows see among the packed keys of all sequences: row i sees [begin[i], end[i]).
// key_lengths[s] ≥ lengths[s] counts the tokens already cached too; of ratio c, a sequence packs
// ⌊key_length/c⌋ keys, and the query at place t of its sequence sees the first
// ⌊(key_length − length + t + 1)/c⌋ of them; padding sees none (begin = end).
struct KeyRanges {
  std::vector<int64_t> begin, end; // ks, ke
};
KeyRanges key_ranges(std::span<const int64_t> lengths, std::span<const int64_t> key_lengths, int64_t cp,
                     int64_t rank, int64_t ratio);

} // namespace paratope
