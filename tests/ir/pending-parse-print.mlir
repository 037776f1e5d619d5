// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s | %paratope opt - | FileCheck %s
// What a collective promises: nothing, one tensor, or several.

step.program @p paths ["real"] {
  // CHECK: %[[V:.*]] = step.vote over @dp : () -> !step.pending<>
  // CHECK: step.await %[[V]] : !step.pending<>
  %0 = step.vote over @dp : () -> !step.pending<>
  step.await %0 : !step.pending<>
  %x = step.weight "x" init "normal" fan_in 1 of "x" : tensor<8x4xf32, #topo.shard<[{"dp"}, {}]>>
  %i = step.weight "i" init "normal" fan_in 1 of "x" : tensor<8xi32, #topo.shard<[{"dp"}]>>
  // CHECK: %[[G:.*]] = step.all_gather %{{.*}} over @dp : {{.*}} -> !step.pending<tensor<8x4xf32>>
  // CHECK: %{{.*}} = step.await %[[G]] : !step.pending<tensor<8x4xf32>> -> tensor<8x4xf32>
  %1 = step.all_gather %x over @dp : (tensor<8x4xf32, #topo.shard<[{"dp"}, {}]>>) -> !step.pending<tensor<8x4xf32>>
  %2 = step.await %1 : !step.pending<tensor<8x4xf32>> -> tensor<8x4xf32>
  // CHECK: !step.pending<tensor<8x4xf32>, tensor<8xi32>> -> tensor<8x4xf32>, tensor<8xi32>
  %3 = step.all_gather %x, %i over @dp : (tensor<8x4xf32, #topo.shard<[{"dp"}, {}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>) -> !step.pending<tensor<8x4xf32>, tensor<8xi32>>
  %4:2 = step.await %3 : !step.pending<tensor<8x4xf32>, tensor<8xi32>> -> tensor<8x4xf32>, tensor<8xi32>
}
