// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics
// Experts that moe_tp cuts by their width leave sums that combine passes on: its result must say so, and there is no one
// rank to add the shared expert.

module {
  topo.mesh @ranks 16 layout "l" ["dp" = 16, "ep" = 4, "moe_tp" = 2]
  topo.sizes world 16 engines 16 replicas 1 tokens 1 experts 16 + 0 = 16, 4 a rank engine "" slots []
  topo.group @dp of @ranks by "(dp) -> 1 dp"
  topo.group @ep of @ranks by "(edp ep moe_tp) -> (edp moe_tp) ep"
  topo.group @moe_tp of @ranks by "(edp ep moe_tp) -> (edp ep) moe_tp"
  step.program @p paths ["real"] {
    %ids, %pos = step.batch {at = "batch"} : () -> (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<16xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    %h = step.embed %ids, %t {at = "embed"} : (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<16x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %g = step.all_gather %h over @moe_tp {at = "g"} : (tensor<16x64xbf16, #topo.shard<[{"dp"}, {}]>>) -> !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>>
    // expected-note @+1 {{made by step.await}}
    %x = step.await %g : !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>> -> tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>
    %wg = step.weight "gate" init "normal" fan_in 1 of "w" : tensor<16x64xf32>
    %bias = step.weight "bias" init "normal" fan_in 1 of "w" : tensor<16xf32>
    %idx, %sc = step.gate %x, %wg, %bias {at = "gate", layer = 0 : i64, score = "sigmoid", top_k = 2 : i64, scaling = 1.0 : f64, normalise = 1 : i64, groups = 1 : i64, top_groups = 1 : i64} : (tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>, tensor<16x64xf32>, tensor<16xf32>) -> (tensor<16x2xi32, #topo.shard<[{"outside-moe_tp"}, {}]>>, tensor<16x2xf32, #topo.shard<[{"outside-moe_tp"}, {}]>>)
    %d = step.dispatch %x, %idx, %sc over @ep {at = "d", top_k = 2 : i64, dtype = "fp8", replicated = ["moe_tp"]} : (tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>, tensor<16x2xi32, #topo.shard<[{"outside-moe_tp"}, {}]>>, tensor<16x2xf32, #topo.shard<[{"outside-moe_tp"}, {}]>>) -> !step.pending<tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>>
    %rows, %table = step.await %d : !step.pending<tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>> -> tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>
    %w13 = step.weight "w13" init "normal" fan_in 1 slots of "w" : tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {"moe_tp"}, {}]>>
    %w2 = step.weight "w2" init "normal" fan_in 1 slots of "w" : tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {"moe_tp"}]>>
    %up = step.expert_gate_up %rows, %table, %w13 {at = "moe"} : (tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {"moe_tp"}, {}]>>) -> tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {"moe_tp"}]>>
    %a = step.swiglu %up {at = "moe", limit = 0.0 : f64} : (tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {"moe_tp"}]>>) -> tensor<64x32xbf16, #topo.shard<[{"outside-ep", "ep"}, {"moe_tp"}]>>
    %out = step.expert_down %a, %table, %w2 {at = "moe"} : (tensor<64x32xbf16, #topo.shard<[{"outside-ep", "ep"}, {"moe_tp"}]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {"moe_tp"}]>>) -> tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}], partial ["moe_tp"]>>
    %c = step.combine %out, %table over @ep {at = "c", dtype = "bf16"} : (tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}], partial ["moe_tp"]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>) -> !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}], partial ["moe_tp"]>>>
    %y = step.await %c : !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}], partial ["moe_tp"]>>> -> tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}], partial ["moe_tp"]>>
    // expected-note @+2 {{made by step.combine at e}}
    // expected-error @+1 {{step.combine at e: its result is [{outside-moe_tp}, {}], expected [{outside-moe_tp}, {}], partial [moe_tp], as the dispatch sent it}}
    %e = step.combine %out, %table over @ep {at = "e", dtype = "bf16"} : (tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}], partial ["moe_tp"]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>) -> !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>>
    %ye = step.await %e : !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>> -> tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>
    // expected-error @+1 {{step.combine at f: the shared expert's output is [{outside-moe_tp}, {}], expected none: the combined rows are a partial sum}}
    %f = step.combine %out, %table, %x over @ep {at = "f", dtype = "bf16"} : (tensor<64x64xbf16, #topo.shard<[{"outside-ep", "ep"}, {}], partial ["moe_tp"]>>, tensor<64x4xi32, #topo.shard<[{"outside-ep", "ep"}, {}]>>, tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}]>>) -> !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}], partial ["moe_tp"]>>>
    %yf = step.await %f : !step.pending<tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}], partial ["moe_tp"]>>> -> tensor<16x64xbf16, #topo.shard<[{"outside-moe_tp"}, {}], partial ["moe_tp"]>>
  }
}
