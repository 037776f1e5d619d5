// SPDX-License-Identifier: Apache-2.0
#include "dsl/diagnostic/diagnostic.h"

#include <algorithm>
#include <utility>

namespace paratope {

Diagnostic &Diagnostics::add(Severity severity, std::string code, SourceRange where, std::string message) {
  items.push_back({severity, std::move(code), std::move(message), std::move(where), {}, {}});
  return items.back();
}

void Diagnostics::add(Diagnostic diagnostic) { items.push_back(std::move(diagnostic)); }

bool Diagnostics::has_errors() const { return count(Severity::error) > 0; }

size_t Diagnostics::count(Severity severity) const {
  return static_cast<size_t>(std::count_if(items.begin(), items.end(), [&](const Diagnostic &diagnostic) {
    return diagnostic.severity == severity;
  }));
}

} // namespace paratope
