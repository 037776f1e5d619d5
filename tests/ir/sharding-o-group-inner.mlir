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
    // expected-note @+1 {{made by step.weight}}
    %a = step.weight "wo_a" init "normal" fan_in 1 of "w" : tensor<4x16x16xbf16, #topo.shard<[{}, {"tp"}, {}]>>
    // expected-error @+1 {{step.o_group_proj at o: operand 1 is [{}, {tp}, {}], expected whole on every rank}}
    %y = step.o_group_proj %h, %a {at = "o", groups = 4 : i64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<4x16x16xbf16, #topo.shard<[{}, {"tp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
  }
}
