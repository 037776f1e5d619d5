// SPDX-License-Identifier: Apache-2.0
//
// Code and fix travel as a dictionary in the first metadata argument of an MLIR diagnostic.
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope::topo {

static constexpr StringLiteral code_key = "paratope.code", fix_key = "paratope.fix";

static void attach(mlir::Diagnostic &diagnostic, StringRef key, const Twine &value) {
  MLIRContext *context = diagnostic.getLocation()->getContext();
  NamedAttrList entries;
  entries.set(key, StringAttr::get(context, value));
  diagnostic.getMetadata().emplace_back(Attribute(entries.getDictionary(context)));
}

static std::string attached(mlir::Diagnostic &diagnostic, StringRef key) {
  for (DiagnosticArgument &argument : diagnostic.getMetadata())
    if (argument.getKind() == DiagnosticArgument::DiagnosticArgumentKind::Attribute)
      if (auto entries = dyn_cast<DictionaryAttr>(argument.getAsAttribute()))
        if (auto value = dyn_cast_or_null<StringAttr>(entries.get(key)))
          return value.str();
  return {};
}

static InFlightDiagnostic coded(InFlightDiagnostic diagnostic, StringRef code) {
  if (diagnostic.getUnderlyingDiagnostic())
    attach(*diagnostic.getUnderlyingDiagnostic(), code_key, code);
  return diagnostic;
}

InFlightDiagnostic error(Location location, StringRef code) { return coded(emitError(location), code); }
InFlightDiagnostic warning(Location location, StringRef code) { return coded(emitWarning(location), code); }
InFlightDiagnostic remark(Location location, StringRef code) { return coded(emitRemark(location), code); }

void set_fix(InFlightDiagnostic &diagnostic, const Twine &fix) {
  if (diagnostic.getUnderlyingDiagnostic())
    attach(*diagnostic.getUnderlyingDiagnostic(), fix_key, fix);
}

static Severity severity_of(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Error:
    return Severity::error;
  case DiagnosticSeverity::Warning:
    return Severity::warning;
  case DiagnosticSeverity::Note:
  case DiagnosticSeverity::Remark:
    return Severity::remark;
  }
  return Severity::error;
}

DiagnosticBridge::DiagnosticBridge(MLIRContext *context, Diagnostics &sink)
    : handler(context, [&sink](mlir::Diagnostic &found) {
        std::string code = attached(found, code_key);
        paratope::Diagnostic &added =
            sink.add(severity_of(found.getSeverity()), code.empty() ? "invalid-ir" : code,
                     to_range(found.getLocation()), found.str());
        added.fix = attached(found, fix_key);
        for (mlir::Diagnostic &note : found.getNotes())
          added.notes.push_back({note.str(), to_range(note.getLocation())});
        return success();
      }) {}

LogicalResult report(MLIRContext *context, const Diagnostics &findings) {
  for (const paratope::Diagnostic &found : findings.all()) {
    Location where = to_location(context, found.where);
    InFlightDiagnostic reported = found.severity == Severity::error    ? error(where, found.code)
                                  : found.severity == Severity::remark ? remark(where, found.code)
                                                                       : warning(where, found.code);
    reported << found.message;
    if (!found.fix.empty())
      set_fix(reported, found.fix);
    for (const Note &note : found.notes)
      reported.attachNote(to_location(context, note.where)) << note.message;
  }
  return failure(findings.has_errors());
}

} // namespace paratope::topo
