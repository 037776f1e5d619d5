// SPDX-License-Identifier: Apache-2.0
//
// Every weight a model has: names and shapes as runtime/plan/instructions.md lists them, and how each is
// made. The reference builds its model from this list; a plan's weights can be compared with it.
//
//   projections       normal, fan_in the length of the dot product they are used in (the last dim)
//   embed, table      normal, fan_in 1
//   *norm, scale      gain (`engram.scale`: what a stored table row is multiplied by)
//   sink, moe.bias, hc_*.base    bias
//   hc_*.scale        hc_scale
//
// Beside that list: with q_lora 0 a latent or mla model has `attn.wq` instead of wq_a, q_norm and wq_b; a
// latent model with o_groups 0 has `attn.wo` [H, heads·D]; Engram layers have `engram.table` [rows, dim],
// `engram.scale` [rows, ⌈dim/32⌉],
// `engram.wkv` [(streams+1)·H, (ngram−1)·heads·dim] and the gains `engram.h_norm`, `engram.key_norm`
// [streams·H].
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/weights/random_tensor.h"

#include <vector>

namespace paratope {

// In layer order, without splits and ids. Tables are listed with their unpadded rows; vectors of the model
// that say something of each layer must have `layers` entries or none. Throws WeightError on an unknown
// attention kind, a size below 1 where one is needed, or sizes that do not divide (the key is named).
std::vector<plan::Weight> model_weights(const plan::Model &model);

// The rows of each Engram layer's table: sums of (ngram−1)·heads primes of the walk (kernels/engram/op.h).
// primes[layer][(n−2)·heads + head].
std::vector<std::vector<int64_t>> engram_primes(const plan::Model &model);

} // namespace paratope
