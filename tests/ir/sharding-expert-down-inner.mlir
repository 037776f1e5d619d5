// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics
module {
  topo.mesh @ranks 8 layout "l" ["dp" = 4, "tp" = 2, "ep" = 8]
  topo.sizes world 8 engines 4 replicas 1 tokens 2 experts 16 + 0 = 16, 2 a rank engine "tp" slots []
  topo.group @dp of @ranks by "(dp tp) -> tp dp"
  topo.group @tp of @ranks by "(dp tp) -> dp tp"
  topo.group @ep of @ranks by "(edp ep) -> edp ep"
  step.program @p paths ["real"] {
    %ids, %pos = step.batch {at = "batch"} : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    %h = step.embed %ids, %t {at = "embed"} : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %wg = step.weight "gate" init "normal" fan_in 1 of "w" : tensor<16x64xf32>
    %bias = step.weight "bias" init "normal" fan_in 1 of "w" : tensor<16xf32>
    %idx, %sc = step.gate %h, %wg, %bias {at = "gate", layer = 0 : i64, score = "sigmoid", top_k = 2 : i64, scaling = 1.0 : f64, normalise = 1 : i64, groups = 1 : i64, top_groups = 1 : i64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<16x64xf32>, tensor<16xf32>) -> (tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>)
    %s = step.slice_rows %h {at = "s", axis = "tp"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>
    %si = step.slice_rows %idx {at = "s", axis = "tp"} : (tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x2xi32, #topo.shard<[{"dp", "tp"}, {}]>>
    %sw = step.slice_rows %sc {at = "s", axis = "tp"} : (tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x2xf32, #topo.shard<[{"dp", "tp"}, {}]>>
    %d = step.dispatch %s, %si, %sw over @ep {at = "d", top_k = 2 : i64, dtype = "fp8"} : (tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>, tensor<8x2xi32, #topo.shard<[{"dp", "tp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp", "tp"}, {}]>>) -> !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>>
    %rows, %tb = step.await %d : !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>> -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>
    %a = step.weight "w13" init "normal" fan_in 1 slots of "w" : tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {"tp"}, {}]>>
    %b = step.weight "w2" init "normal" fan_in 1 slots of "w" : tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {"tp"}]>>
    %up = step.expert_gate_up %rows, %tb, %a {at = "moe"} : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>, tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {"tp"}, {}]>>) -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {"tp"}]>>
    %act = step.swiglu %up {at = "moe", limit = 0.0 : f64} : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {"tp"}]>>) -> tensor<64x32xbf16, #topo.shard<[{"ep"}, {"tp"}]>>
    // expected-error @+2 {{step.expert_down at moe: result 0 is [{ep}, {}], expected [{ep}, {}], partial [tp]}}
    // expected-note @+1 {{made by step.expert_down at moe}}
    %y = step.expert_down %act, %tb, %b {at = "moe"} : (tensor<64x32xbf16, #topo.shard<[{"ep"}, {"tp"}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>, tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {"tp"}]>>) -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>
  }
}
