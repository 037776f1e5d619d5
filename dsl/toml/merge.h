// SPDX-License-Identifier: Apache-2.0
//
// Laying one document over another: what variants and --set do. Tables are merged key by key; anything else
// replaces what lies under it, and keeps the place where it was written.
#pragma once

#include "dsl/toml/document.h"

namespace paratope {

void lay_over(Value &base, const Value &over);

// One of several documents that are laid over the same base.
struct Layer {
  std::string name; // how errors call it: "variant 'tp8'", "--set"
  const Value *document;
};

// An error with `code` for each key that two layers set to different values, at the later with a note at the
// earlier. Their order would decide silently otherwise.
void check_conflicts(const std::vector<Layer> &layers, const char *code, Diagnostics &diagnostics);

} // namespace paratope
