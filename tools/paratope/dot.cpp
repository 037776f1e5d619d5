// SPDX-License-Identifier: Apache-2.0
#include "tools/paratope/dot.h"

#include <map>
#include <optional>

#include "fmt/format.h"

using namespace mlir;

namespace paratope {

std::string to_dot(ModuleOp module) {
  std::string text = "digraph step {\n  rankdir=TB; node [fontname=\"sans-serif\", fontsize=10];\n";
  llvm::DenseMap<Operation *, int64_t> ids;
  auto number = [&](Operation *op) {
    return ids.try_emplace(op, static_cast<int64_t>(ids.size())).first->second;
  };
  std::map<int64_t, std::string> kernels; // the frame around the ops of each
  for (step::ProgramOp program : module.getOps<step::ProgramOp>())
    for (Operation &op : program.getBody().front()) {
      if (isa<step::WeightOp, step::AwaitOp>(op))
        continue;
      bool collective = step::is_collective(&op);
      text += fmt::format("  n{} [shape={}, label=\"{}{}\\n{}\"];\n", number(&op),
                          collective ? "ellipse, style=filled, fillcolor=lightblue" : "box",
                          op.getName().stripDialect().str(), collective ? " over " + step::group_of(&op) : "",
                          step::name_of(&op));
      if (std::optional<int64_t> kernel = step::kernel_of(&op)) {
        std::string &frame = kernels[*kernel];
        if (frame.empty())
          frame = fmt::format("  subgraph cluster_{} {{ label=\"{}\"; style=rounded; fontsize=9;", *kernel,
                              op.getAttrOfType<StringAttr>("fusion").str());
        frame += fmt::format(" n{};", number(&op));
      }
      for (Value operand : op.getOperands()) {
        Operation *def = operand.getDefiningOp();
        if (auto await = dyn_cast_or_null<step::AwaitOp>(def))
          def = await.getPending().getDefiningOp();
        if (def && !isa<step::WeightOp>(def))
          text += fmt::format("  n{} -> n{};\n", number(def), number(&op));
      }
    }
  for (const auto &[kernel, frame] : kernels)
    text += frame + " }\n";
  return text + "}\n";
}

} // namespace paratope
