// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics -split-input-file
// Widths that the parts of a feed-forward must agree on: gate and up lie side by side, and halve again.

!rows = tensor<8x64xbf16>
!routing = tensor<64x4xi32>

module {
  topo.mesh @ranks 1 layout "l" ["dp" = 1]
  topo.sizes world 1 engines 1 replicas 1 tokens 8 experts 16 + 0 = 16, 16 a rank engine "" slots []
  step.program @p paths ["real"] {
    %ids, %pos = step.batch {at = "batch"} : () -> (tensor<8xi32>, tensor<8xi32>)
    %t = step.weight "embed" init "normal" fan_in 1 of "embedding" : tensor<512x64xbf16>
    %h = step.embed %ids, %t {at = "embed"} : (tensor<8xi32>, tensor<512x64xbf16>) -> !rows
    %w = step.weight "w13" init "normal" fan_in 1 of "w" : tensor<2x32x64xbf16>
    %n = step.weight "narrow" init "normal" fan_in 1 of "w" : tensor<2x32x48xbf16>
    // expected-error @+1 {{step.gate_up at a: the width of its input is 64, expected 48}}
    %a = step.gate_up %h, %n {at = "a"} : (!rows, tensor<2x32x48xbf16>) -> !rows
    // expected-error @+1 {{step.gate_up at b: the width of its result is 32, expected 64}}
    %b = step.gate_up %h, %w {at = "b"} : (!rows, tensor<2x32x64xbf16>) -> tensor<8x32xbf16>
    // expected-error @+1 {{step.swiglu at c: the width of its input is 64, expected 128}}
    %c = step.swiglu %h {at = "c", limit = 0.0 : f64} : (!rows) -> !rows

    %rows, %table = step.batch {at = "rows"} : () -> (tensor<64x64xbf16>, !routing)
    %e13 = step.weight "e13" init "normal" fan_in 1 slots of "w" : tensor<16x2x32x64xbf16>
    %e2 = step.weight "e2" init "normal" fan_in 1 slots of "w" : tensor<16x64x32xbf16>
    // expected-error @+1 {{step.expert_gate_up at d: the width of its result is 32, expected 64}}
    %d = step.expert_gate_up %rows, %table, %e13 {at = "d"} : (tensor<64x64xbf16>, !routing, tensor<16x2x32x64xbf16>) -> tensor<64x32xbf16>
    // expected-error @+1 {{step.expert_down at e: the width of its input is 64, expected 32}}
    %e = step.expert_down %rows, %table, %e2 {at = "e"} : (tensor<64x64xbf16>, !routing, tensor<16x64x32xbf16>) -> tensor<64x64xbf16>
    // expected-error @+1 {{step.expert_gate_up at f: the width of its input is 32, expected 64}}
    %f = step.expert_gate_up %d, %table, %e13 {at = "f"} : (tensor<64x32xbf16>, !routing, tensor<16x2x32x64xbf16>) -> tensor<64x64xbf16>
    // expected-error @+1 {{step.expert_down at g: the width of its result is 32, expected 64}}
    %g = step.expert_down %d, %table, %e2 {at = "g"} : (tensor<64x32xbf16>, !routing, tensor<16x64x32xbf16>) -> tensor<64x32xbf16>
  }
}
