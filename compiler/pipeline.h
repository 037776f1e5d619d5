// SPDX-License-Identifier: Apache-2.0
//
// The compiler as one call: a topology file in, a module at the stage that was asked for out.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include "compiler/step/dialect.h"
#include "dsl/diagnostic/diagnostic.h"

namespace paratope {

struct CompileOptions {
  std::vector<std::string> settings; // --set
  std::vector<std::string> search;   // directories with layouts/, models/, machines/
  bool tiny = false;
  std::string until;           // the last stage to run; empty: all
  std::string print_after;     // a stage, or "all": the module goes to `log` where the stage changed it
  bool legal_suffices = false; // what is legal but not built yet is a warning, and the last thing looked at
  bool verify_each = true;
  std::ostream *log = nullptr;
};

struct StageTime {
  std::string stage;
  double ms = 0;
};

struct Compilation {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string source_hash; // of the module as read: every file it uses is in it
  std::vector<StageTime> times;
  bool stopped_as_legal = false; // legal_suffices, and something is not built yet
  bool ok = false;               // false: `diagnostics` has the reason, `module` is what there was
};

// The stages, in order: name and reason.
std::vector<std::pair<std::string, std::string>> stage_names();

// FILE.toml (with #variants), FILE.mlir or bytecode. Everything found goes to `diagnostics`; remarks too.
Compilation compile(const std::string &file, const CompileOptions &options, Diagnostics &diagnostics);

// A context that knows the project's dialects, and only them.
std::unique_ptr<mlir::MLIRContext> make_context();

} // namespace paratope
