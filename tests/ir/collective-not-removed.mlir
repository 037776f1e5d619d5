// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt --canonicalize --cse %s | FileCheck %s
// Compute that no one uses goes; a collective stays, and two alike stay two: every rank of the group takes part in each.

step.program @p paths ["real"] {
  // CHECK: step.program
  // CHECK-NOT: step.add
  // CHECK: step.weight
  %x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32, #topo.shard<[{}, {}], partial ["tp"]>>
  %unused = step.add %x, %x : (tensor<8x4xf32, #topo.shard<[{}, {}], partial ["tp"]>>, tensor<8x4xf32, #topo.shard<[{}, {}], partial ["tp"]>>) -> tensor<8x4xf32, #topo.shard<[{}, {}], partial ["tp"]>>
  // CHECK-COUNT-2: step.vote
  %v0 = step.vote over @dp : () -> !step.pending<>
  %v1 = step.vote over @dp : () -> !step.pending<>
  // CHECK-COUNT-2: step.all_reduce
  %a = step.all_reduce %x over @tp : (tensor<8x4xf32, #topo.shard<[{}, {}], partial ["tp"]>>) -> !step.pending<tensor<8x4xf32>>
  %b = step.all_reduce %x over @tp : (tensor<8x4xf32, #topo.shard<[{}, {}], partial ["tp"]>>) -> !step.pending<tensor<8x4xf32>>
  // An await is a place in the order, whether or not its value is read.
  // CHECK-COUNT-2: step.await
  %c = step.await %a : !step.pending<tensor<8x4xf32>> -> tensor<8x4xf32>
  %d = step.await %b : !step.pending<tensor<8x4xf32>> -> tensor<8x4xf32>
}
