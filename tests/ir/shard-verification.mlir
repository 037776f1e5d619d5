// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s -allow-unregistered-dialect -verify-diagnostics -split-input-file
// A sharding that contradicts itself or its tensor.

// expected-error @+1 {{sharding names 1 dims of a tensor that has 2}}
"some.op"() {t = tensor<8x4xf32, #topo.shard<[{"dp"}]>>} : () -> ()

// -----

// expected-error @+1 {{axis "dp" appears twice in a sharding}}
"some.op"() {t = #topo.shard<[{"dp"}, {"dp"}]>} : () -> ()

// -----

// A sum over the axis that also splits it would count some addends and drop others.
// expected-error @+1 {{axis "tp" appears twice in a sharding}}
"some.op"() {t = #topo.shard<[{"tp"}, {}], partial ["tp"]>} : () -> ()

// -----

// expected-error @+1 {{axis names of a sharding are non-empty strings, got ""}}
"some.op"() {t = #topo.shard<[{""}]>} : () -> ()

// -----

// expected-error @+1 {{expected 'partial'}}
"some.op"() {t = #topo.shard<[{"dp"}], summed ["tp"]>} : () -> ()
