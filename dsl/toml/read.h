// SPDX-License-Identifier: Apache-2.0
//
// A topology file becomes plain values here, or a list of everything that is wrong with it.
//
//     decode.toml ──┐  variants (#a+b)   settings (--set)
//                   ▼        ▼               ▼
//                 text ─▶ document ─▶ overlaid document ─▶ TopologySpec ─▶ check (dsl/spec)
//                                                              ▲
//     layouts/ models/ machines/  (each read like it, with its own locations)
//
// The language is a closed world: an unknown key, section, axis, layout, model, machine or variant is an
// error at its own line and column, with the nearest legal spelling. All errors are reported at once; only a
// TOML syntax error stands alone, because nothing after it can be trusted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"
#include "dsl/spec/topology.h"

namespace paratope {

struct ReadOptions {
  // "dotted.key=value", as --set takes them; they win over the file and its variants. The value is TOML; a
  // bare word is a string. Errors in the i-th are at file "--set", line i, with the column in the argument.
  std::vector<std::string> settings;
  // Directories that hold layouts/, models/ and machines/, searched in order. The nearest such directory
  // above the topology file is searched too, last.
  std::vector<std::string> search;
};

// Reads FILE.toml, FILE.toml#variant or FILE.toml#variant+variant. Returns nothing exactly when an error was
// added to `diagnostics`; warnings come with a value. Never throws, whatever the bytes of the file.
std::optional<TopologySpec> read_topology(const std::string &file_and_variants, const ReadOptions &options,
                                          Diagnostics &diagnostics);

// The same for text that is in memory; `file` names it in diagnostics and anchors its relative paths.
std::optional<TopologySpec> read_topology_text(std::string_view text, const std::string &file,
                                               const std::vector<std::string> &variants,
                                               const ReadOptions &options, Diagnostics &diagnostics);

// A layout, model or machine file by itself.
std::optional<LayoutSpec> read_layout(const std::string &file, Diagnostics &diagnostics);
std::optional<ModelSpec> read_model(const std::string &file, Diagnostics &diagnostics);
std::optional<MachineSpec> read_machine(const std::string &file, Diagnostics &diagnostics);

// The variants a topology file offers, in the order of the file; empty when it cannot be read.
std::vector<std::string> list_variants(const std::string &file);

// One file a topology may name.
struct Listed {
  std::string name;    // what `layout = …` or `use = …` says
  std::string summary; // the file's own
  std::string path;
};

// What there is to name, sorted by name; of files with one name, the first directory's. Files that cannot be
// read are listed with an empty summary.
std::vector<Listed> list_layouts(const std::vector<std::string> &search);
std::vector<Listed> list_models(const std::vector<std::string> &search);
std::vector<Listed> list_machines(const std::vector<std::string> &search);

} // namespace paratope
