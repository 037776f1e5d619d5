// SPDX-License-Identifier: Apache-2.0
//
// Places in the user's file, carried by IR: every op of a topology knows where each of its keys was
// written, so that any pass, however late, can point at the value that caused its finding.
#pragma once

#include <map>
#include <string>

#include "dsl/topo/dialect.h"

#include "dsl/diagnostic/diagnostic.h"

namespace paratope::topo {

// A range as an MLIR location and back. An unknown range becomes (and comes from) UnknownLoc; a location that
// wraps another (name, fused, call site) answers with the first file position inside.
mlir::Location to_location(mlir::MLIRContext *context, const SourceRange &range);
SourceRange to_range(mlir::Location location);

// The location of an op whose keys have places of their own: `whole` for the op, and one entry a dotted key.
using KeyPlaces = std::map<std::string, SourceRange>;
mlir::Location with_keys(mlir::MLIRContext *context, const SourceRange &whole, const KeyPlaces &keys);

// Where `key` of `op` was written; the op's own place when that is not known.
mlir::Location location_of(mlir::Operation *op, llvm::StringRef key);

} // namespace paratope::topo
