// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s | %paratope opt - | FileCheck %s
// Every op of the step dialect is read as it is printed.

!rows = tensor<8x64xbf16, #topo.shard<[{"dp"}, {}]>>
!half = tensor<8x32xbf16, #topo.shard<[{"dp"}, {}]>>
!ids = tensor<8xi32, #topo.shard<[{"dp"}]>>

// CHECK: step.program @decode paths ["real", "placeholder"] {
step.program @decode paths ["real", "placeholder"] {
  // CHECK: %[[W:.*]] = step.weight "w" init "normal" fan_in 64 of "attention" : tensor<64x64xbf16>
  %w = step.weight "w" init "normal" fan_in 64 of "attention" : tensor<64x64xbf16>
  // CHECK: step.weight "e" init "normal" fan_in 64 slots of "experts" : tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {}, {}]>>
  %w13 = step.weight "e" init "normal" fan_in 64 slots of "experts" : tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {}, {}]>>
  %w2 = step.weight "e2" init "normal" fan_in 32 slots of "experts" : tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {}]>>
  %v = step.weight "v" init "gain" fan_in 1 of "norms" : tensor<64xf32>
  %cube = step.weight "h" init "normal" fan_in 64 of "attention" : tensor<4x16x16xbf16>
  %s13 = step.weight "s" init "normal" fan_in 64 of "shared" : tensor<2x32x64xbf16>
  %s2 = step.weight "s2" init "normal" fan_in 32 of "shared" : tensor<64x32xbf16>
  %table = step.weight "t" init "normal" fan_in 1 of "engram" : tensor<256x8xf8E4M3FN, #topo.shard<[{"enp"}, {}]>>

  // CHECK: step.batch : () -> (tensor<8xi32, #topo.shard<[{"dp"}]>>, tensor<8xi32, #topo.shard<[{"dp"}]>>)
  %ids, %positions = step.batch : () -> (!ids, !ids)
  // CHECK: step.mirror_pick %{{[^,]*}}, %{{[^,]*}} {axis = "cp"}
  %mine:2 = step.mirror_pick %ids, %positions {axis = "cp"} : (!ids, !ids) -> (tensor<8xi32, #topo.shard<[{"dp", "cp"}]>>, tensor<8xi32, #topo.shard<[{"dp", "cp"}]>>)
  // CHECK: step.mirror_restore %{{.*}} {axis = "cp"}
  %flat = step.mirror_restore %ids {axis = "cp"} : (!ids) -> !ids
  // CHECK: step.embed
  %x = step.embed %ids, %w : (!ids, tensor<64x64xbf16>) -> !rows
  // CHECK: step.hc_expand %{{.*}} {streams = 1 : i64}
  %xs = step.hc_expand %x {streams = 1 : i64} : (!rows) -> !rows
  // CHECK: step.hc_pre
  %h, %mix = step.hc_pre %xs, %w, %v, %v {streams = 1 : i64} : (!rows, tensor<64x64xbf16>, tensor<64xf32>, tensor<64xf32>) -> (!rows, !rows)
  // CHECK: step.rms_norm %{{.*}} {eps = 5.000000e-01 : f64}
  %n = step.rms_norm %h, %v {eps = 0.5 : f64} : (!rows, tensor<64xf32>) -> !rows
  // CHECK: step.rms_norm %{{.*}} {dims = 32 : i64, eps = 5.000000e-01 : f64}
  %n32 = step.rms_norm %h, %v {eps = 0.5 : f64, dims = 32 : i64} : (!rows, tensor<64xf32>) -> !rows
  // CHECK: step.linear
  %q = step.linear %n, %w : (!rows, tensor<64x64xbf16>) -> !rows
  // CHECK: step.rope
  %r = step.rope %q, %positions {heads = 4 : i64, head_dim = 16 : i64, rope_dim = 8 : i64, theta = 1.0e4 : f64, inverse = 0 : i64, normalise = 1 : i64, eps = 0.5 : f64} : (!rows, !ids) -> !rows
  // CHECK: step.head_linear
  %hl = step.head_linear %r, %cube {heads = 4 : i64, x_offset = 0 : i64, x_head = 16 : i64} : (!rows, tensor<4x16x16xbf16>) -> !rows
  // CHECK: step.head_concat
  %hcat = step.head_concat %hl, %r {heads = 4 : i64, x_offset = 8 : i64, x_head = 16 : i64} : (!rows, !rows) -> !rows
  // CHECK: step.kv_append %{{.*}} {layer = 0 : i64} : {{.*}} -> ()
  step.kv_append %n, %positions {layer = 0 : i64} : (!rows, !ids) -> ()
  // CHECK: step.compress_append %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {
  step.compress_append %n, %v, %positions {layer = 0 : i64, ratio = 1 : i64, rope_dim = 8 : i64, theta = 1.0e4 : f64, eps = 0.5 : f64} : (!rows, tensor<64xf32>, !ids) -> ()
  // CHECK: step.compress_append %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {
  step.compress_append %n, %n, %v, %positions {layer = 0 : i64, ratio = 2 : i64, rope_dim = 8 : i64, theta = 1.0e4 : f64, eps = 0.5 : f64} : (!rows, !rows, tensor<64xf32>, !ids) -> ()
  // CHECK: step.attention %{{[^,]*}}, %{{[^,]*}} {
  %o = step.attention %hcat, %positions {layer = 0 : i64, heads = 4 : i64, head_dim = 16 : i64, v_dim = 16 : i64, window = 0 : i64, ratio = 0 : i64, kv_heads = 1 : i64, v_offset = 0 : i64, scale = 0.25 : f64} : (!rows, !ids) -> !rows
  // CHECK: step.attention %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {
  %os = step.attention %hcat, %positions, %v {layer = 0 : i64, heads = 4 : i64, head_dim = 16 : i64, v_dim = 16 : i64, window = 16 : i64, ratio = 2 : i64, kv_heads = 1 : i64, v_offset = 0 : i64, scale = 0.25 : f64} : (!rows, !ids, tensor<64xf32>) -> !rows
  // CHECK: step.o_group_proj
  %og = step.o_group_proj %o, %cube {groups = 4 : i64} : (!rows, tensor<4x16x16xbf16>) -> !rows
  // CHECK: step.gate_up
  %up = step.gate_up %og, %s13 : (!rows, tensor<2x32x64xbf16>) -> !rows
  // CHECK: step.swiglu %{{.*}} {limit = 1.000000e+01 : f64}
  %act = step.swiglu %up {limit = 10.0 : f64} : (!rows) -> !half
  %f = step.linear %act, %s2 : (!half, tensor<64x32xbf16>) -> !rows
  // CHECK: step.gate
  %idx, %weights = step.gate %f, %w, %v {layer = 0 : i64, score = "sigmoid", top_k = 2 : i64, scaling = 1.0 : f64, normalise = 1 : i64, groups = 1 : i64, top_groups = 1 : i64} : (!rows, tensor<64x64xbf16>, tensor<64xf32>) -> (tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>)
  // CHECK: step.routed_experts
  %routed = step.routed_experts %f, %idx, %weights, %w13, %w2 {limit = 10.0 : f64} : (!rows, tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>, tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {}, {}]>>, tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {}]>>) -> tensor<8x64xbf16, #topo.shard<[{"dp"}, {}], partial ["ep"]>>
  // CHECK: step.dispatch %{{.*}} over @ep {dtype = "fp8", top_k = 2 : i64}
  %sent = step.dispatch %f, %idx, %weights over @ep {top_k = 2 : i64, dtype = "fp8"} : (!rows, tensor<8x2xi32, #topo.shard<[{"dp"}, {}]>>, tensor<8x2xf32, #topo.shard<[{"dp"}, {}]>>) -> !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>>
  %rows, %where = step.await %sent : !step.pending<tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>> -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>
  // CHECK: step.expert_gate_up
  %eup = step.expert_gate_up %rows, %where, %w13 : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>, tensor<16x2x32x64xbf16, #topo.shard<[{"ep"}, {}, {}, {}]>>) -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>
  %eact = step.swiglu %eup {limit = 10.0 : f64} : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>) -> tensor<64x32xbf16, #topo.shard<[{"ep"}, {}]>>
  // CHECK: step.expert_down
  %done = step.expert_down %eact, %where, %w2 : (tensor<64x32xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>, tensor<16x64x32xbf16, #topo.shard<[{"ep"}, {}, {}]>>) -> tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>
  // CHECK: step.combine %{{[^,]*}}, %{{[^,]*}} over @ep {dtype = "bf16"}
  %c0 = step.combine %done, %where over @ep {dtype = "bf16"} : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>) -> !step.pending<!rows>
  // CHECK: step.combine %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} over @ep {dtype = "bf16"}
  %c1 = step.combine %done, %where, %f over @ep {dtype = "bf16"} : (tensor<64x64xbf16, #topo.shard<[{"ep"}, {}]>>, tensor<64x4xi32, #topo.shard<[{"ep"}, {}]>>, !rows) -> !step.pending<!rows>
  // CHECK: step.all_reduce %{{.*}} over @ep
  %ar = step.all_reduce %routed over @ep : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}], partial ["ep"]>>) -> !step.pending<!rows>
  // CHECK: %[[GATHER:.*]] = step.all_gather %{{.*}} over @dp
  %ag = step.all_gather %f over @dp : (!rows) -> !step.pending<tensor<8x64xbf16>>
  // CHECK: step.reduce_scatter %{{.*}}, %[[GATHER]] over @dp
  %rs = step.reduce_scatter %routed, %ag over @dp : (tensor<8x64xbf16, #topo.shard<[{"dp"}, {}], partial ["ep"]>>, !step.pending<tensor<8x64xbf16>>) -> !step.pending<!rows>
  // CHECK: %[[COLUMNS:.*]] = step.all_to_all %{{.*}} over @dp {split = "columns"}
  %a2a = step.all_to_all %f over @dp {split = "columns"} : (!rows) -> !step.pending<tensor<8x64xbf16, #topo.shard<[{}, {"dp"}]>>>
  %cols = step.await %a2a : !step.pending<tensor<8x64xbf16, #topo.shard<[{}, {"dp"}]>>> -> tensor<8x64xbf16, #topo.shard<[{}, {"dp"}]>>
  // CHECK: step.all_to_all %{{[^,]*}}, %[[COLUMNS]] over @dp {split = "rows"}
  %back = step.all_to_all %cols, %a2a over @dp {split = "rows"} : (tensor<8x64xbf16, #topo.shard<[{}, {"dp"}]>>, !step.pending<tensor<8x64xbf16, #topo.shard<[{}, {"dp"}]>>>) -> !step.pending<!rows>
  // CHECK: step.slice_rows %{{.*}} {axis = "tp"}
  %sl = step.slice_rows %f {axis = "tp"} : (!rows) -> tensor<8x64xbf16, #topo.shard<[{"dp", "tp"}, {}]>>
  // CHECK: step.engram_hash
  %eh = step.engram_hash %ids, %positions {layer = 1 : i64} : (!ids, !ids) -> tensor<8x6xi64, #topo.shard<[{"dp"}, {}]>>
  // CHECK: step.engram_gather
  %eg = step.engram_gather %eh, %table {layer = 1 : i64} : (tensor<8x6xi64, #topo.shard<[{"dp"}, {}]>>, tensor<256x8xf8E4M3FN, #topo.shard<[{"enp"}, {}]>>) -> !rows
  // CHECK: step.fetch %{{.*}} over @enp {layer = 1 : i64}
  %ef = step.fetch %eh, %table over @enp {layer = 1 : i64} : (tensor<8x6xi64, #topo.shard<[{"dp"}, {}]>>, tensor<256x8xf8E4M3FN, #topo.shard<[{"enp"}, {}]>>) -> !step.pending<!rows>
  // CHECK: step.engram_gate
  %gated = step.engram_gate %f, %eg, %w, %v {layer = 1 : i64, streams = 1 : i64, eps = 0.5 : f64} : (!rows, !rows, tensor<64x64xbf16>, tensor<64xf32>) -> !rows
  // CHECK: step.add
  %sum = step.add %gated, %f : (!rows, !rows) -> !rows
  // CHECK: step.hc_post
  %post = step.hc_post %xs, %sum, %mix {streams = 1 : i64} : (!rows, !rows, !rows) -> !rows
  // CHECK: step.hc_sum
  %last = step.hc_sum %post {streams = 1 : i64} : (!rows) -> !rows
  // CHECK: step.last_token
  %ends = step.last_token %last : (!rows) -> tensor<2x64xbf16, #topo.shard<[{"dp"}, {}]>>
  // CHECK: step.lm_head
  %logits = step.lm_head %last, %w : (!rows, tensor<64x64xbf16>) -> tensor<8x64xf32, #topo.shard<[{"dp"}, {}]>>
  // CHECK: step.argmax
  %next = step.argmax %logits : (tensor<8x64xf32, #topo.shard<[{"dp"}, {}]>>) -> !ids
  // CHECK: step.vote over @dp : () -> !step.pending<>
  %vote = step.vote over @dp : () -> !step.pending<>
  // CHECK: step.result %{{.*}} : tensor<8xi32, #topo.shard<[{"dp"}]>>
  step.result %next : !ids
}
