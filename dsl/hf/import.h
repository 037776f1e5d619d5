// SPDX-License-Identifier: Apache-2.0
//
// `[model] hf = "path/to/config.json"`: a public configuration becomes the keys of [model], with the places
// of the JSON. What a configuration says and Paratope does not compute is never dropped in silence.
//
//     config.json ─▶ json.h ─▶ architecture.h's table ─▶ dotted key → value ─▶ describe(ModelSpec) fills
//                    places    copy / require / leave out / ignore             types and ranges, as for TOML
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"
#include "dsl/spec/topology.h"

namespace paratope {

// Fills `model` from the text of a configuration; `file` names it in diagnostics, and its folder (or, when it
// is not called config.json, its stem) names the model. Fields are not `written`, as those of a used file.
// False exactly when an error was added:
//   json-syntax, duplicate-key, nested-too-deep    no JSON
//   unknown-architecture      no table for its model_type (those there are, and the nearest, are said)
//   unknown-key               a key no row of the table knows
//   unsupported               a value that changes the mathematics to what is not computed
//   missing-key, wrong-type, out-of-range, unknown-choice, inconsistent-model    as for TOML
// and a warning left-out for each part of the model that is computed without. All are found at once.
bool import_hf(std::string_view text, const std::string &file, ModelSpec &model, Diagnostics &diagnostics);

// The model_types there are tables for, sorted.
std::vector<std::string> hf_architectures();

} // namespace paratope
