// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s | %paratope opt - | FileCheck %s
// The sharding of a tensor, in its type.

step.program @p paths ["real"] {
  // CHECK: tensor<8x4xf32>
  %0 = step.weight "whole" init "normal" fan_in 1 of "x" : tensor<8x4xf32>
  // CHECK: tensor<8x4xf32, #topo.shard<[{"dp"}, {}]>>
  %1 = step.weight "rows" init "normal" fan_in 1 of "x" : tensor<8x4xf32, #topo.shard<[{"dp"}, {} ]>>
  // Outer axis first: dp is the coarser cut.
  // CHECK: tensor<8x4xf32, #topo.shard<[{"dp", "tp"}, {}]>>
  %2 = step.weight "rows of rows" init "normal" fan_in 1 of "x" : tensor<8x4xf32, #topo.shard<[{"dp", "tp"}, {}]>>
  // CHECK: tensor<8x4xf32, #topo.shard<[{"dp"}, {"tp"}]>>
  %3 = step.weight "both" init "normal" fan_in 1 of "x" : tensor<8x4xf32, #topo.shard<[{"dp"}, {"tp"}]>>
  // CHECK: tensor<8x4xf32, #topo.shard<[{"dp"}, {}], partial ["tp"]>>
  %4 = step.weight "a sum to come" init "normal" fan_in 1 of "x" : tensor<8x4xf32, #topo.shard<[{"dp"}, {}], partial ["tp"]>>
  // CHECK: tensor<8xf32, #topo.shard<[{}], partial ["ep", "tp"]>>
  %5 = step.weight "over two axes" init "normal" fan_in 1 of "x" : tensor<8xf32, #topo.shard<[{}], partial ["ep", "tp"]>>
}
