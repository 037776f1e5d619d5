// SPDX-License-Identifier: Apache-2.0
// RUN: %paratope opt %s --step-check-shardings -verify-diagnostics -split-input-file
// Passes that need what an earlier one makes say which.

// expected-error @+1 {{the module has no topo.mesh with sizes: run --topo-derive-sizes first}}
module {
  topo.mesh @ranks layout "l" ["dp" = 4]
}

// -----

module {
  // expected-error @+1 {{axis "enp" has no size yet: run --topo-derive-sizes first}}
  topo.mesh @ranks layout "l" ["dp" = 4, "enp" = ["dp"]]
  topo.sizes world 4 engines 4 replicas 1 tokens 1 experts 0 + 0 = 0, 0 a rank engine "" slots []
}
