// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s -verify-diagnostics -split-input-file
// What a step op cannot hold, one case a module.

step.program @p paths ["real"] {
  %0 = step.vote over @dp : () -> !step.pending<>
  // expected-error @+1 {{gives 1 values, the collective promised 0}}
  %1 = step.await %0 : !step.pending<> -> tensor<4xf32>
}

// -----

step.program @p paths ["real"] {
  %x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32>
  %0 = step.all_reduce %x over @dp : (tensor<8x4xf32>) -> !step.pending<tensor<8x4xf32>>
  // expected-error @+1 {{gives 'tensor<4xf32>', the collective promised 'tensor<8x4xf32>'}}
  %1 = step.await %0 : !step.pending<tensor<8x4xf32>> -> tensor<4xf32>
}

// -----

// The type cannot be changed on the way: only a collective changes a sharding.
step.program @p paths ["real"] {
  %x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32>
  %0 = step.all_reduce %x over @dp : (tensor<8x4xf32>) -> !step.pending<tensor<8x4xf32>>
  // expected-error @+1 {{the collective promised 'tensor<8x4xf32>'}}
  %1 = step.await %0 : !step.pending<tensor<8x4xf32>> -> tensor<8x4xf32, #topo.shard<[{"dp"}, {}]>>
}

// -----

step.program @p paths ["real"] {
  %x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32>
  // A pending value is no tensor: it is awaited first.
  %0 = step.all_reduce %x over @dp : (tensor<8x4xf32>) -> !step.pending<tensor<8x4xf32>>
  // expected-error @+1 {{operand #0 must be variadic of ranked tensor of any type values, but got '!step.pending<tensor<8x4xf32>>'}}
  %1 = step.add %0, %x : (!step.pending<tensor<8x4xf32>>, tensor<8x4xf32>) -> tensor<8x4xf32>
}

// -----

step.program @p paths ["real"] {
  %x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32>
  // expected-error @+1 {{requires attribute 'top_k'}}
  %0 = step.dispatch %x, %x, %x over @ep {dtype = "fp8"} : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> !step.pending<tensor<8x4xf32>>
}

// -----

step.program @p paths ["real"] {
  // expected-error @+1 {{expected builtin.tensor, but found 'f32'}}
  %x = step.weight "x" init "normal" fan_in 1 of "x" : f32
}

// -----

// A program holds everything that it uses.
%x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32>
// expected-note @+1 {{required by region isolation constraints}}
step.program @p paths ["real"] {
  // expected-error @+1 {{using value defined outside the region}}
  step.result %x : tensor<8x4xf32>
}
