// SPDX-License-Identifier: Apache-2.0
//
// The language as JSON Schema (draft 2020-12), for completion and hover text in editors (Taplo, VS Code).
// Made from the same `describe` functions that the reader walks, so the two cannot disagree on a key.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace paratope {

enum class FileKind { topology, layout, model, machine };

nlohmann::json json_schema(FileKind kind);

} // namespace paratope
