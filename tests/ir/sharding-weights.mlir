// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics -split-input-file
// An op that reads a weight whole must find it whole; one whose weight is split must say so in its result.

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
    // expected-note @+1 {{made by step.weight}}
    %a = step.weight "w" init "normal" fan_in 1 of "w" : tensor<512x64xbf16, #topo.shard<[{"tp"}, {}]>>
    // expected-error @+1 {{step.embed at e: operand 1 is [{tp}, {}], expected whole on every rank}}
    %y = step.embed %ids, %a {at = "e"} : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16, #topo.shard<[{"tp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
  }
}

// -----

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
    %a = step.weight "w" init "normal" fan_in 1 of "w" : tensor<64x64xbf16, #topo.shard<[{"dp"}, {}]>>
    // expected-note @+2 {{made by step.linear at l}}
    // expected-error @+1 {{step.linear at l: result 0 is [{dp}, {}], expected [{dp}, {dp}]}}
    %y = step.linear %h, %a {at = "l"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<64x64xbf16, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
  }
}

// -----

module {
  topo.mesh @ranks 8 layout "l" ["dp" = 4, "tp" = 2, "ep" = 8]
  topo.sizes world 8 engines 4 replicas 1 tokens 2 experts 16 + 0 = 16, 2 a rank engine "tp" slots []
  topo.group @dp of @ranks by "(dp tp) -> tp dp"
  topo.group @tp of @ranks by "(dp tp) -> dp tp"
  topo.group @ep of @ranks by "(edp ep) -> edp ep"
  step.program @p paths ["real"] {
    %ids, %pos = step.batch {at = "batch"} : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    // expected-note @+1 {{made by step.embed at embed}}
    %h = step.embed %ids, %t {at = "embed"} : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %a = step.weight "s" init "normal" fan_in 1 of "w" : tensor<4xf32, #topo.shard<[{"tp"}]>>
    // expected-error @+1 {{step.attention at a: operand 0 is [{dp}, {}], expected [{dp}, {tp}]}}
    %y = step.attention %h, %pos, %a {at="a", layer = 0 : i64, heads = 4 : i64, head_dim = 16 : i64, v_dim = 16 : i64, window = 16 : i64, ratio = 2 : i64, kv_heads = 1 : i64, v_offset = 0 : i64, scale = 0.25 : f64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<4xf32, #topo.shard<[{"tp"}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
  }
}
