// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics -split-input-file
// An all_to_all moves the split of whole rows that differ on every rank to columns, and back to such rows, naming the way
// out that it undoes.

!flat = tensor<16x64xbf16, #topo.shard<[{"dp"}, {}]>>
!columns = tensor<16x64xbf16, #topo.shard<[{"rest"}, {"og"}]>>

module {
  topo.mesh @ranks 8 layout "l" ["dp" = 8, "og" = 2]
  topo.sizes world 8 engines 8 replicas 1 tokens 2 experts 0 + 0 = 0, 0 a rank engine "" slots []
  topo.group @dp of @ranks by "(dp) -> 1 dp"
  topo.group @og of @ranks by "(rest og) -> rest og"
  step.program @p paths ["real"] {
    %ids, %pos = step.batch {at = "batch"} : () -> (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<16xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    // expected-note @+1 {{made by step.embed at embed}}
    %h = step.embed %ids, %t {at = "embed"} : (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> !flat
    // What is split by rows still is no split by columns.
    // expected-error @+1 {{step.all_to_all at a: its result is [{dp}, {}], expected [{rest}, {og}]}}
    %a = step.all_to_all %h over @og {at = "a", split = "columns"} : (!flat) -> !step.pending<!flat>
    %ya = step.await %a : !step.pending<!flat> -> !flat
    %b = step.all_to_all %h over @og {at = "b", split = "columns"} : (!flat) -> !step.pending<!columns>
    %yb = step.await %b : !step.pending<!columns> -> !columns
    // The way back gives rows that differ on every rank.
    // expected-note @-2 {{made by step.await}}
    // expected-error @+1 {{step.all_to_all at c: its result is [{rest}, {}], expected whole rows that differ on every rank}}
    %c = step.all_to_all %yb, %b over @og {at = "c", split = "rows"} : (!columns, !step.pending<!columns>) -> !step.pending<tensor<16x64xbf16, #topo.shard<[{"rest"}, {}]>>>
    %yc = step.await %c : !step.pending<tensor<16x64xbf16, #topo.shard<[{"rest"}, {}]>>> -> tensor<16x64xbf16, #topo.shard<[{"rest"}, {}]>>
    // And undoes a way out …
    // expected-error @+1 {{step.all_to_all at d: the way back to rows names the all_to_all to columns, over og, whose row counts it undoes}}
    %d = step.all_to_all %yb over @og {at = "d", split = "rows"} : (!columns) -> !step.pending<!flat>
    %yd = step.await %d : !step.pending<!flat> -> !flat
    // … which is none itself.
    %e = step.all_to_all %yb, %b over @og {at = "e", split = "rows"} : (!columns, !step.pending<!columns>) -> !step.pending<!flat>
    %ye = step.await %e : !step.pending<!flat> -> !flat
    // expected-error @+1 {{step.all_to_all at f: the way back to rows names the all_to_all to columns, over og, whose row counts it undoes}}
    %f = step.all_to_all %yb, %e over @og {at = "f", split = "rows"} : (!columns, !step.pending<!flat>) -> !step.pending<!flat>
    %yf = step.await %f : !step.pending<!flat> -> !flat
    // A way out names nothing.
    // expected-error @+1 {{step.all_to_all at g: the way back to rows names the all_to_all to columns, over og, whose row counts it undoes}}
    %g = step.all_to_all %h, %b over @og {at = "g", split = "columns"} : (!flat, !step.pending<!columns>) -> !step.pending<!columns>
    %yg = step.await %g : !step.pending<!columns> -> !columns
  }
}

// -----

// Output groups of tokens that are not there.
module {
  topo.mesh @ranks 8 layout "l" ["dp" = 8, "og" = 2]
  topo.sizes world 8 engines 8 replicas 1 tokens 2 experts 0 + 0 = 0, 0 a rank engine "" slots []
  topo.group @dp of @ranks by "(dp) -> 1 dp"
  topo.group @og of @ranks by "(rest og) -> rest og"
  step.program @p paths ["real"] {
    %ids, %pos = step.batch {at = "batch"} : () -> (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<16xi32, #topo.shard<[{"dp"}]>>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    // expected-note @+1 {{made by step.embed at embed}}
    %h = step.embed %ids, %t {at = "embed"} : (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<512x64xbf16>) -> tensor<16x64xbf16, #topo.shard<[{"dp"}, {}]>>
    %a = step.weight "wo_a" init "normal" fan_in 1 of "w" : tensor<4x16x16xbf16, #topo.shard<[{"og"}, {}, {}]>>
    // expected-error @+1 {{step.o_group_proj at o: operand 0 is [{dp}, {}], expected [{rest}, {og}]}}
    %y = step.o_group_proj %h, %a {at = "o", groups = 4 : i64} : (tensor<16x64xbf16, #topo.shard<[{"dp"}, {}]>>, tensor<4x16x16xbf16, #topo.shard<[{"og"}, {}, {}]>>) -> tensor<16x64xbf16, #topo.shard<[{"rest"}, {"og"}]>>
  }
}
