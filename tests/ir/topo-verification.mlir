// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s -verify-diagnostics -split-input-file
// What a topo op cannot hold, one case a module.

// expected-error @+1 {{names axis "dp" twice}}
topo.mesh @ranks layout "l" ["dp" = 2, "dp" = 4]

// -----

// expected-error @+1 {{axis "dp" has size 0, expected at least 1}}
topo.mesh @ranks layout "l" ["dp" = 0]

// -----

// expected-error @+1 {{axis "enp" has size [], expected a number or a list of axis names}}
topo.mesh @ranks layout "l" ["enp" = []]

// -----

// expected-error @+1 {{axis "enp" has size [2], expected a number or a list of axis names}}
topo.mesh @ranks layout "l" ["enp" = [2]]

// -----

// expected-error @+1 {{world is -8, expected at least 1}}
topo.mesh @ranks -8 layout "l" ["dp" = 1]

// -----

// An attribute that no one reads is not carried along unseen.
// expected-error @+1 {{unknown attribute 'rank_mapp'}}
topo.mesh @ranks layout "l" ["dp" = 1] {rank_mapp = array<i64: 0>}

// -----

// expected-error @+1 {{unknown attribute 'backend'}}
topo.group @ep of @ranks by "(edp ep) -> edp ep" {backend = "nccl"}

// -----

// expected-error @+1 {{has no pattern}}
topo.group @ep of @ranks by []

// -----

// expected-error @+1 {{expected a pattern or a list of patterns}}
topo.group @ep of @ranks by 8

// -----

// expected-error @+1 {{got level "rack", expected "node" or "gpu"}}
topo.machine @m ["rack" = 2 over "ib"] {}

// -----

// expected-error @+1 {{level "gpu" stands twice}}
topo.machine @m ["gpu" = 2 over "a", "gpu" = 4 over "b"] {}

// -----

// expected-error @+1 {{size and count are at least 1, got 0 and 1}}
topo.comm @ep size 0 count 1 color affine_map<(r) -> (0)> key affine_map<(r) -> (0)> roles ["ep"] isolation "data" backend "nccl"

// -----

// expected-error @+1 {{color and key map one rank to one number}}
topo.comm @ep size 2 count 1 color affine_map<(r, s) -> (r)> key affine_map<(r) -> (0)> roles ["ep"] isolation "data" backend "nccl"

// -----

// expected-error @+1 {{color and key map one rank to one number}}
topo.comm @ep size 2 count 1 color affine_map<(r) -> (0)> key affine_map<(r) -> (r, r)> roles ["ep"] isolation "data" backend "nccl"
