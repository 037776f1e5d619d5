// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --topo-derive-sizes -verify-diagnostics
// A topology written as MLIR lacks nothing that a TOML file must have, and hears of all of it at once.

topo.topology "t" {topology = 1 : i64}
// expected-error @+4 {{topo.machine lacks 'name'}}
// expected-error @+3 {{topo.machine lacks 'gpu'}}
// expected-error @+2 {{topo.machine lacks 'scale_up.gb_per_s'}}
// expected-error @+1 {{topo.machine lacks 'scale_out.latency_us'}}
topo.machine @m ["node" = 1 over "ib", "gpu" = 8 over "nvlink"] {scale_up_gpus = 8 : i64, scale_up = {latency_us = 1.0 : f64}, scale_out = {gb_per_s = 1.0 : f64}}
// expected-error @+2 {{topo.model lacks 'name'}}
// expected-error @+1 {{topo.model lacks 'attention'}}
topo.model @mm {hidden = 64 : i64, layers = 1 : i64, vocab = 512 : i64}
topo.mesh @ranks layout "l" ["dp" = 4]
