// SPDX-License-Identifier: Apache-2.0
//
// A key's place rides in the op's location: FusedLoc whose metadata maps dotted keys to locations. It
// survives bytecode and text with debug info; without either, the op's own line stands in.
#include "dsl/topo/location.h"

#include "mlir/IR/Location.h"

using namespace mlir;

namespace paratope::topo {

Location to_location(MLIRContext *context, const SourceRange &range) {
  if (range.file.empty())
    return UnknownLoc::get(context);
  auto file = StringAttr::get(context, range.file);
  auto line = static_cast<unsigned>(range.line), column = static_cast<unsigned>(range.column);
  return FileLineColRange::get(file, line, column, line,
                               static_cast<unsigned>(std::max(range.end_column, range.column)));
}

SourceRange to_range(Location location) {
  SourceRange range;
  location->walk([&](Location inner) {
    auto place = dyn_cast<FileLineColRange>(inner);
    if (!place)
      return WalkResult::advance();
    range.file = place.getFilename().str();
    range.line = place.getStartLine();
    range.column = place.getStartColumn();
    range.end_column =
        place.getStartLine() == place.getEndLine() ? place.getEndColumn() : place.getStartColumn();
    return WalkResult::interrupt();
  });
  return range;
}

Location with_keys(MLIRContext *context, const SourceRange &whole, const KeyPlaces &keys) {
  NamedAttrList places;
  for (const auto &[key, range] : keys)
    if (range.known())
      places.set(key, LocationAttr(to_location(context, range)));
  Location location = to_location(context, whole);
  if (places.empty())
    return location;
  return FusedLoc::get(context, {location}, places.getDictionary(context));
}

Location location_of(Operation *op, StringRef key) {
  if (auto fused = dyn_cast<FusedLoc>(op->getLoc()))
    if (auto places = dyn_cast_or_null<DictionaryAttr>(fused.getMetadata()))
      if (auto place = dyn_cast_or_null<LocationAttr>(places.get(key)))
        return Location(place);
  return op->getLoc();
}

} // namespace paratope::topo
