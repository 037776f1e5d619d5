// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-program -verify-diagnostics -split-input-file
// A module has one program, whose batch is that of all engines, and which gives a result.

module {
  topo.mesh @ranks 8 layout "l" ["dp" = 8]
  topo.sizes world 8 engines 8 replicas 1 tokens 2 experts 0 + 0 = 0, 0 a rank engine "" slots []
  topo.group @dp of @ranks by "ranks -> 1 ranks"
  step.program @p paths ["real"] {
    // expected-error @+1 {{the batch has 8 rows, expected 16: the engines times the tokens of one}}
    %ids, %pos = step.batch : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
    step.result %ids : tensor<8xi32, #topo.shard<[{"dp"}]>>
  }
  // expected-error @+1 {{a module has one step.program, and it ends in step.result}}
  step.program @q paths ["real"] {
    %ids, %pos = step.batch : () -> (tensor<16xi32, #topo.shard<[{"dp"}]>>, tensor<16xi32, #topo.shard<[{"dp"}]>>)
    step.result %ids : tensor<16xi32, #topo.shard<[{"dp"}]>>
  }
}
