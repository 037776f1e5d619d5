// SPDX-License-Identifier: Apache-2.0
#include "compiler/fuse/catalog.h"

namespace paratope {

const std::vector<Fusion> &fusions() {
  static const std::vector<Fusion> all = {
      {"mega-moe", "gate, dispatch, expert gate/up, SwiGLU, expert down, combine",
       "the ep group in one scale-up domain; experts × activations fp4×fp8, fp8×fp8 or bf16×bf16; whole "
       "experts "
       "(moe_tp = 1); hidden and expert width multiples of 128; the two-stage exchange",
       "5 launches a MoE layer; the rows between both GEMMs; what `combine` would read again"},
      {"gate-dispatch", "gate (scores, top-k, counts), dispatch (send)",
       "a dispatch that takes the gate's choice as it is: no gather over moe_tp between them",
       "1 launch a MoE layer; ids and weights of the chosen experts"},
      {"gemm-swiglu", "gate/up projection, SwiGLU and the activation's quantisation in its epilogue",
       "the rank's width a multiple of 128, so that a tile and an fp8 scale block end together",
       "1 launch for each MLP; gate and up of each row"},
      {"gemm-combine", "expert down, combine: each row written straight to its owner's slot",
       "the ep group in one scale-up domain, whose memory a kernel can write",
       "1 launch a MoE layer; the expert outputs"},
      {"combine-bias-residual-norm",
       "the combined rows, shared expert, residual (hyper-connections), next rms_norm",
       "combine, residual and norm one after the other: no gather over tp, no Engram layer next",
       "2 to 3 launches a MoE layer; the combined rows, and the residual read again"},
      {"rope-append", "rope of the keys, kv_append",
       "keys that go into the cache where they are made: cp = 1", "1 launch a layer; the rotated keys"},
      {"qkv", "the projections of one attention input in one GEMM: q_a and kv, compressors; q, k and v",
       "weights of one type; cp = 1, since the keys' gather is issued before the queries' projection; "
       "outputs "
       "multiples of 128",
       "1 to 3 launches a layer; the input read again for each"},
      {"norm-linear", "rms_norm in the prologue of the GEMM that reads it",
       "one GEMM (or fused kernel) that alone reads the norm", "1 launch each; the normalised rows"},
  };
  return all;
}

} // namespace paratope
