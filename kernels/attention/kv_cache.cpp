// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/kv_cache.h"

#include "kernels/error.h"
#include "kernels/tensor.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace paratope {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t total = 1;
  for (int64_t factor : factors)
    if (__builtin_mul_overflow(total, factor, &total))
      throw KernelError(fmt::format("kv cache: a size overflows 64 bits: {}", fmt::join(factors, " x ")));
  return total;
}

int64_t pages_for(int64_t tokens, int64_t block_tokens) {
  return tokens / block_tokens + (tokens % block_tokens != 0);
}

} // namespace

KvCache::KvCache(KvCacheOptions shape) : options(std::move(shape)) {
  check_positive("kv cache", "block_tokens", options.block_tokens);
  if (options.sequences < 0 || options.max_tokens < 0 || options.pages < 0)
    throw KernelError(fmt::format("kv cache: got {} sequences, {} tokens, {} pages, expected 0 or more",
                                  options.sequences, options.max_tokens, options.pages));
  num_pages = options.pages > 0
                  ? options.pages
                  : product({options.sequences, pages_for(options.max_tokens, options.block_tokens)});
  for (const KvLayerShape &layer_shape : options.layers) {
    if (layer_shape.ratio < 0)
      throw KernelError(
          fmt::format("kv cache: got compression ratio {}, expected 0 or more", layer_shape.ratio));
    check_positive("kv cache", "entry size", layer_shape.entry_size);
    Layer layer;
    const int64_t ratio = layer_shape.ratio, size = layer_shape.entry_size;
    layer.tokens.assign(product({num_pages, options.block_tokens, size}), poison);
    if (ratio > 0) {
      layer.page_entries =
          pages_for(options.block_tokens, ratio); // ⌈block/ratio⌉: entries that may end in a page
      layer.compressed.assign(product({num_pages, layer.page_entries, size}), poison);
    }
    if (ratio > 1)
      layer.open.assign(product({options.sequences, 2, ratio, size}), poison);
    layers.push_back(std::move(layer));
  }
  block_table.resize(static_cast<size_t>(options.sequences));
  for (auto &table : block_table)
    table.reserve(static_cast<size_t>(pages_for(options.max_tokens, options.block_tokens)));
  free_pages.resize(static_cast<size_t>(num_pages));
  for (int64_t i = 0; i < num_pages; ++i)
    free_pages[i] = num_pages - 1 - i;
}

int64_t KvCache::bytes() const {
  size_t floats = 0;
  for (const Layer &layer : layers)
    floats += layer.tokens.size() + layer.compressed.size() + layer.open.size();
  return static_cast<int64_t>(floats * sizeof(float));
}

void KvCache::reserve(int64_t sequence, int64_t tokens) {
  check_index("kv cache", "sequence", sequence, options.sequences, sequence);
  if (tokens > options.max_tokens)
    throw KernelError(fmt::format("kv cache: got {} tokens in sequence {}, expected at most {}", tokens,
                                  sequence, options.max_tokens));
  std::vector<int64_t> &table = block_table[sequence];
  while (static_cast<int64_t>(table.size()) < pages_for(tokens, options.block_tokens)) {
    if (free_pages.empty())
      throw KernelError(
          fmt::format("kv cache: no page left for token {} of sequence {}, the pool has {} pages of "
                      "{} tokens",
                      tokens - 1, sequence, num_pages, options.block_tokens));
    table.push_back(free_pages.back());
    free_pages.pop_back();
  }
}

void KvCache::release(int64_t sequence) {
  check_index("kv cache", "sequence", sequence, options.sequences, sequence);
  for (size_t l = 0; l < layers.size(); ++l) {
    Layer &layer = layers[l];
    const int64_t size = options.layers[l].entry_size;
    for (int64_t page : block_table[sequence]) {
      auto fill_page = [&](std::vector<float> &pool, int64_t entries) {
        std::fill_n(pool.begin() + page * entries * size, entries * size, poison);
      };
      fill_page(layer.tokens, options.block_tokens);
      fill_page(layer.compressed, layer.page_entries);
    }
    if (!layer.open.empty()) {
      const int64_t open_size = 2 * options.layers[l].ratio * size;
      std::fill_n(layer.open.begin() + sequence * open_size, open_size, poison);
    }
  }
  free_pages.insert(free_pages.end(), block_table[sequence].begin(), block_table[sequence].end());
  std::sort(free_pages.begin(), free_pages.end(), std::greater<>());
  block_table[sequence].clear();
}

int64_t KvCache::page_of(const char *what, int64_t layer, int64_t sequence, int64_t position) const {
  check_index("kv cache", "layer", layer, static_cast<int64_t>(layers.size()), sequence);
  check_index("kv cache", "sequence", sequence, options.sequences, sequence);
  const std::vector<int64_t> &table = block_table[sequence];
  const int64_t reserved = static_cast<int64_t>(table.size()) * options.block_tokens;
  if (position < 0 || position >= reserved)
    throw KernelError(fmt::format("kv cache: {} of layer {}, sequence {} needs position {}, expected 0 to {} "
                                  "(reserved)",
                                  what, layer, sequence, position, reserved - 1));
  return table[position / options.block_tokens];
}

const float *KvCache::token(int64_t layer, int64_t sequence, int64_t position) const {
  const int64_t page = page_of("a token", layer, sequence, position);
  const int64_t place = page * options.block_tokens + position % options.block_tokens;
  return layers[layer].tokens.data() + place * options.layers[layer].entry_size;
}

const float *KvCache::compressed(int64_t layer, int64_t sequence, int64_t entry) const {
  check_index("kv cache", "layer", layer, static_cast<int64_t>(layers.size()), sequence);
  const int64_t ratio = options.layers[layer].ratio;
  int64_t last = 0; // the entry's last position, whose page holds it
  if (entry < 0 || ratio == 0 || __builtin_mul_overflow(entry, ratio, &last))
    throw KernelError(
        fmt::format("kv cache: got compressed entry {} of layer {} with ratio {}, expected an entry "
                    "of a layer with a ratio",
                    entry, layer, ratio));
  last += ratio - 1;
  const int64_t page = page_of("a compressed entry", layer, sequence, last);
  const int64_t first_here = last / options.block_tokens * options.block_tokens / ratio;
  const int64_t place = page * layers[layer].page_entries + entry - first_here;
  return layers[layer].compressed.data() + place * options.layers[layer].entry_size;
}

float *KvCache::token(int64_t layer, int64_t sequence, int64_t position) {
  return const_cast<float *>(std::as_const(*this).token(layer, sequence, position));
}
float *KvCache::compressed(int64_t layer, int64_t sequence, int64_t entry) {
  return const_cast<float *>(std::as_const(*this).compressed(layer, sequence, entry));
}

float *KvCache::open_candidate(int64_t layer, int64_t sequence, int64_t place) {
  check_index("kv cache", "layer", layer, static_cast<int64_t>(layers.size()), sequence);
  check_index("kv cache", "sequence", sequence, options.sequences, sequence);
  const KvLayerShape &layer_shape = options.layers[layer];
  if (layer_shape.ratio < 2 || place < 0 || place >= layer_shape.ratio)
    throw KernelError(
        fmt::format("kv cache: got place {} of the open block of layer {}, expected less than its "
                    "ratio {}, which is above 1",
                    place, layer, layer_shape.ratio));
  return layers[layer].open.data() + (sequence * 2 * layer_shape.ratio + place) * layer_shape.entry_size;
}

float *KvCache::open_gate(int64_t layer, int64_t sequence, int64_t place) {
  float *candidate = open_candidate(layer, sequence, place);
  return candidate + options.layers[layer].ratio * options.layers[layer].entry_size;
}

} // namespace paratope
