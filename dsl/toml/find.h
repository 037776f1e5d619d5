// SPDX-License-Identifier: Apache-2.0
//
// From the name in `layout = …` or `use = …` to a file.
//
//     "deepinfer"        <search>/layouts/deepinfer.toml, each search directory in turn, then the folder of
//                        the file that names it
//     "./mine.toml"      a path (it has a '/' or ends in .toml), relative to the file that names it
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"

namespace paratope {

struct LibraryKind {
  const char *noun;   // "layout": in messages, and the key of the file's version
  const char *folder; // "layouts"
};
inline constexpr LibraryKind layout_library{"layout", "layouts"};
inline constexpr LibraryKind model_library{"model", "models"};
inline constexpr LibraryKind machine_library{"machine", "machines"};

// The search directories with, last, the nearest one above `file` that holds a library folder.
std::vector<std::string> search_from(const std::string &file, std::vector<std::string> search);

// Or the error unknown-layout, unknown-model or unknown-machine at `where`, with near names and a list.
std::optional<std::string> find_named(const LibraryKind &kind, const std::string &name,
                                      const SourceRange &where, const std::vector<std::string> &search,
                                      Diagnostics &diagnostics);

// name → path of everything of a kind, sorted by name; of two with one name the first directory's.
std::vector<std::pair<std::string, std::string>> list_library(const LibraryKind &kind,
                                                              const std::vector<std::string> &search);

} // namespace paratope
