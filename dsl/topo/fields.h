// SPDX-License-Identifier: Apache-2.0
//
// Two visitors of the language's keys (dsl/spec/describe.h): one turns a section's values into a dictionary
// attribute, the other reads them back and checks them, with the same closed world as the TOML reader.
#pragma once

#include "dsl/spec/describe.h"
#include "dsl/topo/location.h"

namespace paratope::topo {

// A section as IR: its values, the keys that the user wrote (in order, dotted) and their places.
struct SectionAttrs {
  mlir::DictionaryAttr fields;
  mlir::ArrayAttr written; // null when no key was written
  KeyPlaces places;
};

// Values of a section. Fields that still hold an empty text or list, or 0 for an optional number that was
// never set, are left out when they equal a default-constructed section's.
template <class Section> SectionAttrs to_attrs(mlir::MLIRContext *context, const Section &section);

// Fills `section` from `fields`; unknown keys, wrong types, values out of range and missing required keys
// are errors at the op.
template <class Section>
void from_attrs(mlir::Operation *op, llvm::StringRef section_name, mlir::DictionaryAttr fields,
                mlir::ArrayAttr written, Section &section, Diagnostics &diagnostics);

} // namespace paratope::topo
