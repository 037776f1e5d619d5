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
    // expected-note @+1 {{made by step.embed at embed}}
    %h = step.embed %ids, %t {at = "embed"} : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    // expected-error @+1 {{step.slice_rows at s: what it slices is [{dp}, {}], expected rows that axis 'ep' does not split already}}
    %s = step.slice_rows %h {at = "s", axis = "ep"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp", "ep"}, {}]>>
    %p = step.all_gather %s over @ep {at = "g"} : (tensor<8x64xbf16, #topo.shard<[{"dp", "ep"}, {}]>>) -> !step.pending<tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>>
    %y = step.await %p : !step.pending<tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>> -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
  }
}
