// SPDX-License-Identifier: Apache-2.0
//
// Text forms of the ops whose notation is their own (machine, mesh, group), and the checks that need no
// other op. What a section's keys may hold is checked where the module is read (convert.h): there the
// finding lands beside all others.
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

#include "dsl/topo/dialect.h"

using namespace mlir;

namespace paratope::topo {

// The trailing attributes, each in its property; anything else is an error here, since ops with a closed
// notation would otherwise carry it along unseen.
static ParseResult parseTail(OpAsmParser &parser, OperationState &result, ArrayRef<StringRef> known) {
  SMLoc where = parser.getCurrentLocation();
  NamedAttrList tail;
  if (parser.parseOptionalAttrDict(tail))
    return failure();
  for (NamedAttribute item : tail) {
    if (!llvm::is_contained(known, item.getName().getValue()))
      return parser.emitError(where, "unknown attribute '") << item.getName().getValue() << "'";
    result.attributes.append(item);
  }
  return success();
}

//===--- machine -------------------------------------------------------------------------------------===//

namespace {
// One level of the bracket: its word, the key that holds its size and the table that names its link.
struct Level {
  StringRef word, size_key, link_key;
};
constexpr Level levels[] = {{"node", "nodes", "scale_out"}, {"gpu", "gpus_per_node", "scale_up"}};
} // namespace

// topo.machine @name ["node" = 8 over "ib400", "gpu" = 8 over "nvlink"] {other fields} {written = …}
ParseResult MachineOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  NamedAttrList fields, links;
  Builder &builder = parser.getBuilder();
  if (parser.parseSymbolName(name, "label", result.attributes))
    return failure();
  auto level = [&]() -> ParseResult {
    SMLoc where = parser.getCurrentLocation();
    std::string word, link;
    int64_t size = 0;
    if (parser.parseString(&word) || parser.parseEqual() || parser.parseInteger(size) ||
        parser.parseKeyword("over") || parser.parseString(&link))
      return failure();
    for (const Level &known : levels)
      if (known.word == word) {
        if (fields.get(known.size_key))
          return parser.emitError(where, "level \"") << word << "\" stands twice";
        fields.set(known.size_key, builder.getI64IntegerAttr(size));
        links.set(known.link_key, builder.getStringAttr(link));
        return success();
      }
    return parser.emitError(where, "got level \"") << word << "\", expected \"node\" or \"gpu\"";
  };
  DictionaryAttr rest;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, level) || parser.parseAttribute(rest))
    return failure();
  for (NamedAttribute item : rest)
    if (!links.get(item.getName()))
      fields.set(item.getName(), item.getValue());
  for (NamedAttribute link : links) { // the bracket names the link, the table gives its speed
    NamedAttrList table;
    if (auto given = dyn_cast_or_null<DictionaryAttr>(rest.get(link.getName())))
      table.append(given.begin(), given.end());
    table.set("name", link.getValue());
    fields.set(link.getName(), table.getDictionary(parser.getContext()));
  }
  result.addAttribute("fields", fields.getDictionary(parser.getContext()));
  return parseTail(parser, result, {"written"});
}

void MachineOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getLabel());
  printer << " [";
  NamedAttrList rest(getFields());
  bool first = true;
  for (const Level &level : levels) {
    auto size = dyn_cast_or_null<IntegerAttr>(rest.get(level.size_key));
    auto table = dyn_cast_or_null<DictionaryAttr>(rest.get(level.link_key));
    auto link = table ? dyn_cast_or_null<StringAttr>(table.get("name")) : StringAttr();
    if (!size || !link)
      continue;
    printer << (first ? "" : ", ") << '"' << level.word << "\" = " << size.getInt() << " over " << link;
    first = false;
    rest.erase(level.size_key);
    NamedAttrList speed(table);
    speed.erase("name");
    if (speed.empty())
      rest.erase(level.link_key);
    else
      rest.set(level.link_key, speed.getDictionary(getContext()));
  }
  printer << "] " << rest.getDictionary(getContext());
  printer.printOptionalAttrDict((*this)->getAttrs(), {"label", "fields"});
}

//===--- mesh ----------------------------------------------------------------------------------------===//

// topo.mesh @ranks 64 layout "deepinfer" ["dp" = 64, "enp" = ["dp", "cp"]] {…}
ParseResult MeshOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name, layout;
  Builder &builder = parser.getBuilder();
  if (parser.parseSymbolName(name, "label", result.attributes))
    return failure();
  int64_t world = 0;
  OptionalParseResult given = parser.parseOptionalInteger(world);
  if (given.has_value()) {
    if (*given)
      return failure();
    result.addAttribute("world", builder.getI64IntegerAttr(world));
  }
  if (parser.parseKeyword("layout") || parser.parseAttribute(layout))
    return failure();
  result.addAttribute("layout", layout);
  SmallVector<Attribute> names, sizes;
  auto axis = [&]() -> ParseResult {
    std::string word;
    if (parser.parseString(&word) || parser.parseEqual())
      return failure();
    names.push_back(builder.getStringAttr(word));
    int64_t size = 0;
    OptionalParseResult number = parser.parseOptionalInteger(size);
    if (number.has_value()) {
      if (*number)
        return failure();
      sizes.push_back(builder.getI64IntegerAttr(size));
      return success();
    }
    ArrayAttr product;
    if (parser.parseAttribute(product))
      return failure();
    sizes.push_back(product);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, axis))
    return failure();
  result.addAttribute("axis_names", builder.getArrayAttr(names));
  result.addAttribute("axis_sizes", builder.getArrayAttr(sizes));
  return parseTail(parser, result, {"world_max_of", "rank_map", "rank_offset", "written"});
}

void MeshOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getLabel());
  if (auto world = getWorld())
    printer << ' ' << *world;
  printer << " layout " << getLayoutAttr() << " [";
  llvm::interleaveComma(llvm::zip(getAxisNames(), getAxisSizes()), printer, [&](auto item) {
    auto [name, size] = item;
    printer << name << " = ";
    if (auto number = dyn_cast<IntegerAttr>(size))
      printer << number.getInt();
    else
      printer << size;
  });
  printer << "]";
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {"label", "world", "layout", "axis_names", "axis_sizes"});
}

LogicalResult MeshOp::verify() {
  if (getAxisNames().size() != getAxisSizes().size())
    return emitOpError() << "has " << getAxisNames().size() << " axis names and " << getAxisSizes().size()
                         << " sizes";
  llvm::StringSet<> seen;
  for (auto [name, size] : llvm::zip(getAxisNames(), getAxisSizes())) {
    StringRef axis = cast<StringAttr>(name).getValue();
    if (!seen.insert(axis).second)
      return emitOpError() << "names axis " << name << " twice";
    if (auto number = dyn_cast<IntegerAttr>(size)) {
      if (number.getInt() < 1)
        return emitOpError() << "axis " << name << " has size " << number.getInt() << ", expected at least 1";
      continue;
    }
    auto product = dyn_cast<ArrayAttr>(size);
    if (!product || product.empty() || !llvm::all_of(product, [](Attribute a) { return isa<StringAttr>(a); }))
      return emitOpError() << "axis " << name << " has size " << size
                           << ", expected a number or a list of axis names";
  }
  if (getWorld() && static_cast<int64_t>(*getWorld()) < 1)
    return emitOpError() << "world is " << static_cast<int64_t>(*getWorld()) << ", expected at least 1";
  return success();
}

//===--- group ---------------------------------------------------------------------------------------===//

// topo.group @ep of @ranks by "(edp ep) -> edp ep"   (or by a list)
ParseResult GroupOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  FlatSymbolRefAttr mesh;
  Builder &builder = parser.getBuilder();
  if (parser.parseSymbolName(name, "sym_name", result.attributes) || parser.parseKeyword("of") ||
      parser.parseAttribute(mesh) || parser.parseKeyword("by"))
    return failure();
  result.addAttribute("mesh", mesh);
  SMLoc where = parser.getCurrentLocation();
  Attribute patterns;
  if (parser.parseAttribute(patterns))
    return failure();
  if (isa<StringAttr>(patterns))
    patterns = builder.getArrayAttr({patterns});
  if (!isa<ArrayAttr>(patterns))
    return parser.emitError(where, "got ") << patterns << ", expected a pattern or a list of patterns";
  result.addAttribute("patterns", patterns);
  return parseTail(parser, result, {"written"});
}

void GroupOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << " of " << getMeshAttr() << " by ";
  if (getPatterns().size() == 1)
    printer << getPatterns()[0];
  else
    printer << getPatternsAttr();
  printer.printOptionalAttrDict((*this)->getAttrs(), {"sym_name", "mesh", "patterns"});
}

LogicalResult GroupOp::verify() {
  if (getPatterns().empty())
    return emitOpError() << "has no pattern";
  return success();
}

//===--- comm ----------------------------------------------------------------------------------------===//

LogicalResult CommOp::verify() {
  if (static_cast<int64_t>(getSize()) < 1 || static_cast<int64_t>(getCount()) < 1)
    return emitOpError() << "size and count are at least 1, got " << static_cast<int64_t>(getSize())
                         << " and " << static_cast<int64_t>(getCount());
  for (AffineMap map : {getColor(), getKey()})
    if (map.getNumDims() != 1 || map.getNumSymbols() != 0 || map.getNumResults() != 1)
      return emitOpError() << "color and key map one rank to one number, got " << AffineMapAttr::get(map);
  return success();
}

} // namespace paratope::topo
