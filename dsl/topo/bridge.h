// SPDX-License-Identifier: Apache-2.0
//
// Between MLIR's diagnostics and ours. Passes report through MLIR, so that mlir-opt and the language server
// show them too; the code and the fix ride in the diagnostic's metadata, and the bridge turns all of it into
// paratope::Diagnostic.
#pragma once

#include "mlir/IR/Diagnostics.h"

#include "dsl/topo/location.h"

namespace paratope::topo {

// A located finding with its stable code; stream the message into it.
mlir::InFlightDiagnostic error(mlir::Location location, llvm::StringRef code);
mlir::InFlightDiagnostic warning(mlir::Location location, llvm::StringRef code);
mlir::InFlightDiagnostic remark(mlir::Location location, llvm::StringRef code);
// What to write instead.
void set_fix(mlir::InFlightDiagnostic &diagnostic, const llvm::Twine &fix);

// While it lives, everything MLIR reports in `context` is added to `sink` instead of being printed.
class DiagnosticBridge {
public:
  DiagnosticBridge(mlir::MLIRContext *context, Diagnostics &sink);

private:
  mlir::ScopedDiagnosticHandler handler;
};

// Reports findings of the plain C++ parts through MLIR; failure when one of them is an error.
mlir::LogicalResult report(mlir::MLIRContext *context, const Diagnostics &findings);

} // namespace paratope::topo
