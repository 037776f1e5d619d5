// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s | %paratope opt - | FileCheck %s
// Every op of the topo dialect is read as it is printed.

// CHECK-DAG: #[[COLOR:map[0-9]*]] = affine_map<(d0) -> (d0 floordiv 4)>
// CHECK-DAG: #[[KEY:map[0-9]*]] = affine_map<(d0) -> (d0 mod 4)>
// CHECK: topo.topology "tiny" {summary = "eight ranks", topology = 1 : i64} {written = ["topology"]}
topo.topology "tiny" {summary = "eight ranks", topology = 1 : i64} {written = ["topology"]}
// CHECK: topo.machine @"two-boxes" ["node" = 2 over "ib400", "gpu" = 4 over "nvlink"] {gpu = {memory_gb = 8.000000e+01 : f64}, scale_out = {gb_per_s = 5.000000e+01 : f64}} {written = ["use"]}
topo.machine @"two-boxes" ["node" = 2 over "ib400", "gpu" = 4 over "nvlink"] {gpu = {memory_gb = 8.0e+01 : f64}, scale_out = {gb_per_s = 5.0e+01 : f64}} {written = ["use"]}
// A machine that names one level only keeps to that.
// CHECK: topo.machine @box ["gpu" = 8 over "nvlink"] {}
topo.machine @box ["gpu" = 8 over "nvlink"] {}
// CHECK: topo.model @m {attention = {heads = 8 : i64}, hidden = 64 : i64}
topo.model @m {hidden = 64 : i64, attention = {heads = 8 : i64}}
// The world stands before the layout once it is known; a size is a number or a product.
// CHECK: topo.mesh @ranks layout "deepinfer" ["dp" = 8, "cp" = 1, "enp" = ["dp", "cp"]] {world_max_of = {{\[\[}}"dp", "cp"], ["enp"]]}
topo.mesh @ranks layout "deepinfer" ["dp" = 8, "cp" = 1, "enp" = ["dp", "cp"]] {world_max_of = [["dp", "cp"], ["enp"]]}
// CHECK: topo.mesh @placed 4 layout "deepinfer" ["dp" = 4] {rank_map = array<i64: 3, 2, 1, 0>, rank_offset = 4 : i64}
topo.mesh @placed 4 layout "deepinfer" ["dp" = 4] {rank_map = array<i64: 3, 2, 1, 0>, rank_offset = 4 : i64}
// CHECK: topo.sizes world 8 engines 8 replicas 1 tokens 2 experts 8 + 8 = 16, 2 a rank engine "" slots [0, 1, 2]
topo.sizes world 8 engines 8 replicas 1 tokens 2 experts 8 + 8 = 16, 2 a rank engine "" slots [0, 1, 2]
// CHECK: topo.group @ep of @ranks by "(edp ep) -> edp ep"
topo.group @ep of @ranks by "(edp ep) -> edp ep"
// A list of one pattern is that pattern.
// CHECK: topo.group @one of @ranks by "(edp ep) -> edp ep"
topo.group @one of @ranks by ["(edp ep) -> edp ep"]
// CHECK: topo.group @dcp of @ranks by ["(x dp pp pcp tp) -> (x dp pp tp pcp)", "(g dcp) -> g dcp"] {written}
topo.group @dcp of @ranks by ["(x dp pp pcp tp) -> (x dp pp tp pcp)", "(g dcp) -> g dcp"] {written}
// CHECK: topo.comm @ep size 4 count 2 color #[[COLOR]] key #[[KEY]] roles ["ep", "ep_in_dp"] isolation "data" backend "nccl"
topo.comm @ep size 4 count 2 color affine_map<(r) -> (r floordiv 4)> key affine_map<(r) -> (r mod 4)> roles ["ep", "ep_in_dp"] isolation "data" backend "nccl"
// A mesh with a rank_map has no closed form: color and key are listed by rank.
// CHECK: topo.comm @one {{.*}} {color_of = array<i64: 0, 1, 0, 1>, key_of = array<i64: 0, 0, 1, 1>}
topo.comm @one size 2 count 2 color affine_map<(r) -> (0)> key affine_map<(r) -> (0)> roles ["one"] isolation "control" backend "gloo" {color_of = array<i64: 0, 1, 0, 1>, key_of = array<i64: 0, 0, 1, 1>}
// CHECK: topo.moe {exchange = "two-stage"} {written = ["exchange"]}
topo.moe {exchange = "two-stage"} {written = ["exchange"]}
// CHECK: topo.attention {kv_dtype = "fp8"}
topo.attention {kv_dtype = "fp8"}
// CHECK: topo.engram {storage = "host"}
topo.engram {storage = "host"}
// CHECK: topo.workload {tokens_per_rank = array<i64: 1, 2>}
topo.workload {tokens_per_rank = array<i64: 1, 2>}
// CHECK: topo.engine {control_plane = "gpu"}
topo.engine {control_plane = "gpu"}
// CHECK: topo.schedule {fuse = []}
topo.schedule {fuse = []}
