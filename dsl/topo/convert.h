// SPDX-License-Identifier: Apache-2.0
//
// A topology's two forms, plain values (dsl/spec) and a module of the `topo` dialect, turned into each other
// without loss.
#pragma once

#include <optional>

#include "mlir/IR/OwningOpRef.h"

#include "dsl/spec/topology.h"
#include "dsl/topo/dialect.h"

namespace paratope::topo {

// The module that says what `spec` says; every op and key keeps its place in the file.
mlir::OwningOpRef<mlir::ModuleOp> to_module(mlir::MLIRContext *context, const TopologySpec &spec);

// The values of a module. Everything wrong with it is reported (a missing or doubled section, unknown keys,
// wrong types, names that do not exist); nothing is returned then. Derived ops (comm, sizes) and step
// programs are not part of the values.
std::optional<TopologySpec> to_spec(mlir::ModuleOp module, Diagnostics &diagnostics);

// Whether the module was written by hand: no op says which of its keys a TOML file wrote.
bool is_handwritten(mlir::ModuleOp module);

} // namespace paratope::topo
