// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-insert-exchange -verify-diagnostics -split-input-file
// Differences of sharding that no single collective mends are errors at the op that needs the other sharding.

module {
  topo.topology "t" {topology = 1 : i64}
  topo.machine @m ["node" = 1 over "ib", "gpu" = 8 over "nvlink"] {gpu = {memory_gb = 80.0 : f64, memory_gb_per_s = 1000.0 : f64, name = "G"}, name = "m", scale_out = {gb_per_s = 50.0 : f64, latency_us = 2.0 : f64}, scale_up = {gb_per_s = 450.0 : f64, latency_us = 1.0 : f64}, scale_up_gpus = 8 : i64}
  topo.model @mm {attention = {head_dim = 16 : i64, heads = 4 : i64, kind = "latent", o_groups = 2 : i64, o_lora = 16 : i64, q_lora = 16 : i64, rope_dim = 8 : i64}, hidden = 64 : i64, layers = 1 : i64, moe = {routed = 16 : i64, top_k = 2 : i64, width = 32 : i64}, name = "mm", vocab = 512 : i64}
  topo.mesh @ranks 8 layout "l" ["dp" = 4, "tp" = 2, "ep" = 8]
  topo.sizes world 8 engines 4 replicas 1 tokens 2 experts 16 + 0 = 16, 2 a rank engine "tp" slots []
  topo.group @dp of @ranks by "(dp tp) -> tp dp"
  topo.group @tp of @ranks by "(dp tp) -> dp tp"
  topo.group @ep of @ranks by "(edp ep) -> edp ep"
  step.program @p paths ["real"] {
    // A norm needs whole rows, and these are split by columns: rows cannot be gathered into columns.
    %w = step.weight "w" init "normal" fan_in 1 of "x" : tensor<64x64xbf16, #topo.shard<[{"tp"}, {}]>>
    %ids, %pos = step.batch : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    %x = step.embed %ids, %t : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %y = step.linear %x, %w : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<64x64xbf16, #topo.shard<[{"tp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {"tp"}]>>
    %g = step.weight "g" init "gain" fan_in 1 of "x" : tensor<64xf32>
    // expected-error @+1 {{operand 0 of step.rms_norm is [{dp}, {tp}] but is needed as [{dp}, {}], and no one collective makes it so}}
    %n = step.rms_norm %y, %g {eps = 0.5 : f64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {"tp"}]>>, tensor<64xf32>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
  }
}

// -----

// Two ranks of each ep group hold the same tokens, and no axis is there to share them out by: tp is not that axis.
module {
  topo.topology "t" {topology = 1 : i64}
  topo.machine @m ["node" = 1 over "ib", "gpu" = 8 over "nvlink"] {gpu = {memory_gb = 80.0 : f64, memory_gb_per_s = 1000.0 : f64, name = "G"}, name = "m", scale_out = {gb_per_s = 50.0 : f64, latency_us = 2.0 : f64}, scale_up = {gb_per_s = 450.0 : f64, latency_us = 1.0 : f64}, scale_up_gpus = 8 : i64}
  topo.model @mm {attention = {head_dim = 16 : i64, heads = 4 : i64, kind = "latent", o_groups = 2 : i64, o_lora = 16 : i64, q_lora = 16 : i64, rope_dim = 8 : i64}, hidden = 64 : i64, layers = 1 : i64, moe = {routed = 16 : i64, top_k = 2 : i64, width = 32 : i64}, name = "mm", vocab = 512 : i64}
  topo.mesh @ranks 8 layout "l" ["dp" = 4, "copies" = 2, "ep" = 8]
  topo.sizes world 8 engines 4 replicas 1 tokens 2 experts 16 + 0 = 16, 2 a rank engine "copies" slots []
  topo.group @dp of @ranks by "(dp copies) -> copies dp"
  topo.group @copies of @ranks by "(dp copies) -> dp copies"
  topo.group @ep of @ranks by "(edp ep) -> edp ep"
  step.program @p paths ["real"] {
    %ids, %pos = step.batch : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    %x = step.embed %ids, %t : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %wg = step.weight "gate" init "normal" fan_in 1 of "gate" : tensor<16x64xf32>
    %bias = step.weight "bias" init "bias" fan_in 1 of "gate" : tensor<16xf32>
    %idx, %sc = step.gate %x, %wg, %bias {layer = 0 : i64, score = "sigmoid", top_k = 2 : i64, scaling = 1.0 : f64, normalise = 1 : i64, groups = 1 : i64, top_groups = 1 : i64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<16x64xf32>, tensor<16xf32>) -> (tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>)
    %w13 = step.weight "w13" init "normal" fan_in 64 slots of "experts" : tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {}, {}]>>
    %w2 = step.weight "w2" init "normal" fan_in 32 slots of "experts" : tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {}]>>
    // expected-error @+1 {{tokens are [{dp}, {}], which leaves ranks of 'ep' with the same tokens: no exchange over it keeps them apart}}
    %y = step.routed_experts %x, %idx, %sc, %w13, %w2 {limit = 0.0 : f64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>, tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {}, {}]>>, tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{}, {}], partial ["ep"]>>
  }
}
