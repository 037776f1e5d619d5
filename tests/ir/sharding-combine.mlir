// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics
// What dispatch sends and combine takes back belong together.
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
    // expected-note @+1 {{made by step.gate at gate}}
    %idx, %sc = step.gate %h, %wg, %bias {at = "gate", layer = 0 : i64, score = "sigmoid", top_k = 2 : i64, scaling = 1.0 : f64, normalise = 1 : i64, groups = 1 : i64, top_groups = 1 : i64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<16x64xf32>, tensor<16xf32>) -> (tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>)
    // expected-note @+1 {{made by step.slice_rows at s}}
    %s = step.slice_rows %h {at = "s", axis = "tp"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>
    %si = step.slice_rows %idx {at = "s", axis = "tp"} : (tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x2xi32, #topo.shard<[{"dp", "tp"}, {}]>>
    %sw = step.slice_rows %sc {at = "s", axis = "tp"} : (tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x2xf32, #topo.shard<[{"dp", "tp"}, {}]>>
    // Every token's experts travel with it: split as the tokens are.
    // expected-error @+1 {{step.dispatch at bad: its routing is [{dp}, {}], expected [{dp, tp}, {}]}}
    %bad = step.dispatch %s, %idx, %sw over @ep {at = "bad", top_k = 2 : i64, dtype = "fp8"} : (tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>, tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp", "tp"}, {}]>>) -> !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>>
    %bad_rows, %bad_tb = step.await %bad : !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>> -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>
    %d = step.dispatch %s, %si, %sw over @ep {at = "d", top_k = 2 : i64, dtype = "fp8"} : (tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>, tensor<8x2xi32, #topo.shard<[{"dp", "tp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp", "tp"}, {}]>>) -> !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>>
    %rows, %tb = step.await %d : !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>> -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>
    // Combine takes rows that lie with their experts, and the table that a dispatch gave with them.
    // expected-error @+1 {{step.combine at c: its operand is [{dp, tp}, {}], expected rows by expert over ep}}
    %c = step.combine %s, %tb over @ep {at = "c", dtype = "bf16"} : (tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>) -> !step.pending<tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>>
    %yc = step.await %c : !step.pending<tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>> -> tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>
    %other = step.weight "other" init "normal" fan_in 1 of "w" : tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>
    // expected-error @+1 {{step.combine at e: its table does not come from a dispatch}}
    %e = step.combine %rows, %other over @ep {at = "e", dtype = "bf16"} : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>) -> !step.pending<tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>>
    %ye = step.await %e : !step.pending<tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>> -> tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>
  }
}
