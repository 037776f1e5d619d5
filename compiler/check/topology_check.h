// SPDX-License-Identifier: Apache-2.0
//
// What the checks of a topology share: the module's values, axis sizes, and an error at the key to blame.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsl/spec/topology.h"
#include "dsl/topo/dialect.h"

namespace paratope {

class TopologyCheck {
public:
  // Reports and leaves `ready` false when the module cannot be read or has no sizes yet.
  explicit TopologyCheck(mlir::ModuleOp module);

  mlir::ModuleOp module;
  bool ready = false, good = true;
  topo::MeshOp mesh;
  topo::SizesOp sizes;
  std::optional<TopologySpec> spec;

  int64_t size(llvm::StringRef axis); // 1 when there is no such axis
  int64_t world() { return static_cast<int64_t>(sizes.getWorld()); }

  template <class SectionOp> mlir::Operation *section() {
    auto ops = module.getOps<SectionOp>();
    return ops.empty() ? module.getOperation() : (*ops.begin()).getOperation();
  }

  // An error at `key` of `op`.
  void wrong(mlir::Operation *op, llvm::StringRef key, llvm::StringRef code, const std::string &message,
             const std::string &fix = "",
             const std::vector<std::pair<mlir::Location, std::string>> &notes = {});
};

} // namespace paratope
