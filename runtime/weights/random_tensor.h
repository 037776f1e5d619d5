// SPDX-License-Identifier: Apache-2.0
//
// Synthetic tensors: element i of a tensor is a function of (seed, the tensor's name, i) and of nothing else,
// so every rank can make its shard without files, and every topology holds the same model.
//
//     key     = hash(seed, name): FNV-1a over the name, finished with the seed by splitmix64
//     word    = philox4x32(counter {i div 4 as 64 bits, 0, 0}, key)[i mod 4]
//     u       = uniform on (−√3, √3), mean 0 and variance 1: the word's top 24 bits, centred
//     element = offset + scale·u, in float32
#pragma once

#include "runtime/weights/philox.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace paratope {

// What is wrong with a weight, a routing or a trace file: "got X, expected Y".
struct WeightError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

PhiloxKey tensor_key(int64_t seed, std::string_view name);

// The word of element i, for draws that are not floats.
uint32_t tensor_word(PhiloxKey key, int64_t i);

// How a tensor's elements are made from u.
struct Init {
  float offset = 0, scale = 1;
};

// kind       element       for
// normal     u/√fan_in     projections; embeddings and tables (fan_in 1)
// gain       1 + 0.1·u     norms
// bias       0.01·u        biases, sinks, hyper-connection bases
// hc_scale   0.1 + 0.01·u  hyper-connection scales: so small that pre stays near ½, post near 1 and comb near
//                          1/n, and the streams keep their size over many layers
// Throws WeightError on another kind, or fan_in < 1.
Init init_named(const std::string &kind, int64_t fan_in);

// dst[j] = element first + j, for j < count. first, count >= 0.
void fill_run(PhiloxKey key, int64_t first, int64_t count, Init init, float *dst);

// The whole tensor of `count` elements.
void fill_tensor(int64_t seed, std::string_view name, int64_t count, Init init, float *dst);

} // namespace paratope
