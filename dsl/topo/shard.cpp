// SPDX-License-Identifier: Apache-2.0
//
// Text form and checks of #topo.shard<[{"dp"}, {}], partial ["tp"]>.
#include "llvm/ADT/StringSet.h"

#include "dsl/topo/dialect.h"

using namespace mlir;

namespace paratope::topo {

ArrayRef<Attribute> ShardAttr::axesOf(int64_t dim) const {
  return cast<ArrayAttr>(getDims()[dim]).getValue();
}

static ParseResult parseNames(AsmParser &parser, AsmParser::Delimiter delimiter, ArrayAttr &names) {
  SmallVector<Attribute> items;
  auto one = [&]() -> ParseResult {
    std::string name;
    if (parser.parseString(&name))
      return failure();
    items.push_back(StringAttr::get(parser.getContext(), name));
    return success();
  };
  if (parser.parseCommaSeparatedList(delimiter, one))
    return failure();
  names = ArrayAttr::get(parser.getContext(), items);
  return success();
}

Attribute ShardAttr::parse(AsmParser &parser, Type) {
  SmallVector<Attribute> dims;
  ArrayAttr partial = ArrayAttr::get(parser.getContext(), {});
  SMLoc where = parser.getCurrentLocation();
  auto dim = [&]() -> ParseResult {
    ArrayAttr names;
    if (parseNames(parser, AsmParser::Delimiter::Braces, names))
      return failure();
    dims.push_back(names);
    return success();
  };
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, dim))
    return {};
  if (succeeded(parser.parseOptionalComma()))
    if (parser.parseKeyword("partial") || parseNames(parser, AsmParser::Delimiter::Square, partial))
      return {};
  if (parser.parseGreater())
    return {};
  return parser.getChecked<ShardAttr>(where, parser.getContext(), ArrayAttr::get(parser.getContext(), dims),
                                      partial);
}

void ShardAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getDims(), printer, [&](Attribute dim) {
    printer << "{";
    llvm::interleaveComma(cast<ArrayAttr>(dim), printer, [&](Attribute axis) { printer << axis; });
    printer << "}";
  });
  printer << "]";
  if (isPartial()) {
    printer << ", partial [";
    llvm::interleaveComma(getPartial(), printer, [&](Attribute axis) { printer << axis; });
    printer << "]";
  }
  printer << ">";
}

LogicalResult ShardAttr::verify(llvm::function_ref<InFlightDiagnostic()> error, ArrayAttr dims,
                                ArrayAttr partial) {
  llvm::StringSet<> seen;
  auto checked = [&](Attribute axis) -> LogicalResult {
    auto name = dyn_cast<StringAttr>(axis);
    if (!name || name.empty())
      return error() << "axis names of a sharding are non-empty strings, got " << axis;
    if (!seen.insert(name.getValue()).second)
      return error() << "axis " << name << " appears twice in a sharding";
    return success();
  };
  for (Attribute dim : dims) {
    auto names = dyn_cast<ArrayAttr>(dim);
    if (!names)
      return error() << "a dim's sharding is a list of axes, got " << dim;
    for (Attribute axis : names)
      if (failed(checked(axis)))
        return failure();
  }
  for (Attribute axis : partial)
    if (failed(checked(axis)))
      return failure();
  return success();
}

LogicalResult ShardAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                        llvm::function_ref<InFlightDiagnostic()> error) const {
  if (shape.size() != getDims().size())
    return error() << "sharding names " << getDims().size() << " dims of a tensor that has " << shape.size();
  return success();
}

} // namespace paratope::topo
