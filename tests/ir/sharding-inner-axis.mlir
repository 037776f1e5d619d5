// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics -split-input-file
// Experts split on an inner axis without gathering over it: each expert holds half of its width, so its output is a
// sum that is still to come, and the residual must not take it.

module {
  topo.mesh @ranks 8 layout "l" ["dp" = 4, "tp" = 2, "ep" = 8]
  topo.sizes world 8 engines 4 replicas 1 tokens 2 experts 16 + 0 = 16, 2 a rank engine "tp" slots []
  topo.group @dp of @ranks by "(dp tp) -> tp dp"
  topo.group @tp of @ranks by "(dp tp) -> dp tp"
  topo.group @ep of @ranks by "(edp ep) -> edp ep"
  step.program @p paths ["real"] {
    %x, %pos = step.batch {at = "batch"} : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    // expected-note @+1 {{made by step.embed at embed}}
    %h = step.embed %x, %t {at = "embed"} : (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %w13 = step.weight "w13" init "normal" fan_in 64 of "shared" : tensor<2x32x64xbf16, #topo.shard<[{}, {"tp"}, {}]>>
    %w2 = step.weight "w2" init "normal" fan_in 32 of "shared" : tensor<64x32xbf16, #topo.shard<[{}, {"tp"}]>>
    %up = step.gate_up %h, %w13 {at = "moe"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<2x32x64xbf16, #topo.shard<[{}, {"tp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {"tp"}]>>
    %a = step.swiglu %up {at = "moe", limit = 0.0 : f64} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {"tp"}]>>) -> tensor<8x32xbf16, #topo.shard<[{"dp"}, {"tp"}]>>
    // expected-note @+1 {{made by step.linear at moe}}
    %y = step.linear %a, %w2 {at = "moe"} : (tensor<8x32xbf16, #topo.shard<[{"dp"}, {"tp"}]>>, tensor<64x32xbf16, #topo.shard<[{}, {"tp"}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}], partial ["tp"]>>
    // expected-error @+1 {{step.add at residual: operand 1 is [{dp}, {}], partial [tp], expected [{dp}, {}]}}
    %sum = step.add %h, %y {at = "residual"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<8x64xbf16, #topo.shard<[{"dp"}, {}], partial ["tp"]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    // Nor does saying that it is whole make it so.
    // expected-note @+2 {{made by step.linear at moe}}
    // expected-error @+1 {{step.linear at moe: result 0 is [{dp}, {}], expected [{dp}, {}], partial [tp]}}
    %z = step.linear %a, %w2 {at = "moe"} : (tensor<8x32xbf16, #topo.shard<[{"dp"}, {"tp"}]>>, tensor<64x32xbf16, #topo.shard<[{}, {"tp"}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    // Half of gate and up is no whole.
    // expected-note @+2 {{made by step.gate_up at moe}}
    // expected-error @+1 {{step.gate_up at moe: result 0 is [{dp}, {}], expected [{dp}, {tp}]}}
    %v = step.gate_up %h, %w13 {at = "moe"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<2x32x64xbf16, #topo.shard<[{}, {"tp"}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
    // The row cut of a linear needs its input split the same way.
    %row = step.weight "row" init "normal" fan_in 64 of "attention" : tensor<64x64xbf16, #topo.shard<[{}, {"tp"}]>>
    // expected-error @+1 {{step.linear at o: operand 0 is [{dp}, {}], expected [{dp}, {tp}]}}
    %l = step.linear %h, %row {at = "o"} : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<64x64xbf16, #topo.shard<[{}, {"tp"}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}], partial ["tp"]>>
  }
}
