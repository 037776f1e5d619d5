// SPDX-License-Identifier: Apache-2.0
//
// Registration of the `step` dialect, and the one check an op needs beyond its operand types.
#include "compiler/step/dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "StepDialect.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "StepTypes.cpp.inc"

#define GET_OP_CLASSES
#include "StepOps.cpp.inc"

using namespace mlir;

namespace paratope::step {

void StepDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "StepTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "StepOps.cpp.inc"
      >();
}

void give_names(ProgramOp program) {
  for (Operation &op : program.getBody().front())
    if (auto named = dyn_cast<NameLoc>(op.getLoc());
        named && !op.hasAttr("at") && !isa<WeightOp, AwaitOp>(op))
      op.setAttr("at", named.getName());
}

bool is_internal(Value value) {
  Operation *made_by = value.getDefiningOp();
  if (!made_by || !kernel_of(made_by) || isa<AwaitOp>(made_by) || value.use_empty())
    return false;
  return llvm::all_of(value.getUsers(),
                      [&](Operation *user) { return kernel_of(user) == kernel_of(made_by); });
}

Type PendingType::parse(AsmParser &parser) {
  SmallVector<Type> types;
  auto one = [&]() { return parser.parseType(types.emplace_back()); };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, one))
    return {};
  return PendingType::get(parser.getContext(), types);
}

void PendingType::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(getTypes(), printer);
  printer << ">";
}

LogicalResult AwaitOp::verify() {
  auto promised = getPending().getType().getTypes();
  if (promised.size() != getNumResults())
    return emitOpError() << "gives " << getNumResults() << " values, the collective promised "
                         << promised.size();
  for (auto [value, type] : llvm::zip(getResults(), promised))
    if (value.getType() != type)
      return emitOpError() << "gives " << value.getType() << ", the collective promised " << type;
  return success();
}

} // namespace paratope::step
