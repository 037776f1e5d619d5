// SPDX-License-Identifier: Apache-2.0
//
// The paged cache of one engine: what attention remembers of each sequence, in every layer. One entry is a
// token's latent (key and value in one), or its keys and values for grouped-query models. Pages hold
// block_tokens tokens, and one block table a sequence serves every layer and both kinds of entry:
//
//     sequence 3, block table  [ 7 | 2 | 9 ]          page 2 covers positions 64 … 127 (block_tokens 64)
//                                    │
//     layer l, tokens      pool[2][64][entry]         position p            → page p div 64, place p mod 64
//     layer l, compressed  pool[2][⌈64/ratio⌉][entry] entry j of ratio r    → the page of its last position
//                                                     j·r+r−1, place j − ⌊page·64/r⌋
//
// (page being the one of the sequence, 0, 1, …: any ratio works, and none needs a table of its own.)
//
// All memory is taken at construction and poisoned with NaN, so that an entry nobody stored cannot pass for
// one. Appending takes pages from the pool as a sequence grows; no step allocates.
#pragma once

#include <cstdint>
#include <vector>

namespace paratope {

struct KvLayerShape {
  int64_t entry_size = 0; // floats a token's entry has
  int64_t ratio = 0;      // 0: no compressed entries; r: one entry for r tokens
};

struct KvCacheOptions {
  int64_t sequences = 0;
  int64_t max_tokens = 0;    // the longest a sequence may become
  int64_t block_tokens = 64; // tokens of one page
  std::vector<KvLayerShape> layers;
  int64_t pages = 0; // of the pool; 0: enough for every sequence at max_tokens
};

class KvCache {
public:
  KvCache() = default;
  // Throws KernelError on negative or overflowing sizes.
  explicit KvCache(KvCacheOptions options);

  const KvCacheOptions &shape() const { return options; }
  int64_t bytes() const;                      // of the pools and open blocks
  int64_t pages() const { return num_pages; } // of the pool
  int64_t pages_in_use() const { return num_pages - static_cast<int64_t>(free_pages.size()); }

  // Gives the sequence pages for `tokens` tokens (never takes any back). Throws KernelError when tokens
  // exceeds max_tokens, or the pool has no page left (says how many there are).
  void reserve(int64_t sequence, int64_t tokens);
  // Gives the sequence's pages back and poisons them: the next request starts from nothing.
  void release(int64_t sequence);

  // Entry of a token, and compressed entry j (layers with ratio > 0). Throw KernelError outside what is
  // reserved.
  float *token(int64_t layer, int64_t sequence, int64_t position);
  const float *token(int64_t layer, int64_t sequence, int64_t position) const;
  float *compressed(int64_t layer, int64_t sequence, int64_t entry);
  const float *compressed(int64_t layer, int64_t sequence, int64_t entry) const;

  // The open block of a compressor (ratio > 1): candidate c and gate logits g of its token `place` (position
  // mod ratio), entry_size floats each.
  float *open_candidate(int64_t layer, int64_t sequence, int64_t place);
  float *open_gate(int64_t layer, int64_t sequence, int64_t place);

private:
  struct Layer {
    int64_t page_entries = 0;      // compressed entries of a page
    std::vector<float> tokens;     // [pages][block_tokens][entry]
    std::vector<float> compressed; // [pages][page_entries][entry]
    std::vector<float> open;       // [sequences][2][ratio][entry]: candidates, then gates
  };
  int64_t page_of(const char *what, int64_t layer, int64_t sequence, int64_t position) const;

  KvCacheOptions options;
  int64_t num_pages = 0;
  std::vector<Layer> layers;
  std::vector<std::vector<int64_t>> block_table; // [sequences]
  std::vector<int64_t> free_pages;               // the lowest number is taken first
};

} // namespace paratope
