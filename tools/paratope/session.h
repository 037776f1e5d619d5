// SPDX-License-Identifier: Apache-2.0
//
// What every command shares: the options they all take, the exit codes, loading a topology, and writing to a
// stdout that may be closed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "compiler/mesh/view.h"
#include "compiler/pipeline.h"
#include "dsl/spec/topology.h"

namespace paratope {

// cli.md's contract.
enum Exit {
  exit_good = 0,
  exit_wrong_input = 1,
  exit_wrong_usage = 2,
  exit_failed = 3,
  exit_no_hardware = 4
};

// The options every command that reads a topology takes.
struct SourceOptions {
  std::string file;
  std::vector<std::string> settings;
  bool json = false;
  bool tiny = false;
};

// Adds FILE, --set and --json to a command.
void add_source(CLI::App &command, SourceOptions &options, bool file_required = true);

// A topology compiled up to a stage, with its values and its mesh.
struct Loaded {
  Compilation compilation;
  Diagnostics diagnostics;
  TopologySpec spec;
  MeshView mesh;
  std::string title; // the topology's name, with the variants that were selected: "decode#tp8"
  mlir::ModuleOp module() { return *compilation.module; }
};

// Compiles the file up to `until` and shows what was found: errors and warnings on stderr, or, with --json, a
// document on stdout when nothing can be returned. Remarks are kept for those who explain.
std::unique_ptr<Loaded> load(const SourceOptions &options, const std::string &until = "");

// Directories of layouts/, models/ and machines/: PARATOPE_TOPOLOGIES from the environment, the source
// tree's, the installed ones.
std::vector<std::string> search_path();

// Diagnostics on stderr; in colour only on a terminal and when NO_COLOR is not set.
void show(const Diagnostics &diagnostics, bool with_remarks = false);

// An error that no place in a file caused: on stderr and, with --json, as a document; answers
// exit_wrong_input.
int refuse(bool json, const std::string &message, const std::string &fix = "");

// Text to stdout. A reader that has gone away is no error; a full disk ends the program with exit_failed.
void print(const std::string &text);
void print(const nlohmann::ordered_json &document);

// Registers each command; `exit_code` is what it answers.
using Register = void (*)(CLI::App &app, int &exit_code);
void register_check(CLI::App &app, int &exit_code);
void register_compile(CLI::App &app, int &exit_code);
void register_cp_index(CLI::App &app, int &exit_code);
void register_engram_hash(CLI::App &app, int &exit_code);
void register_eplb(CLI::App &app, int &exit_code);
void register_experts(CLI::App &app, int &exit_code);
void register_explain(CLI::App &app, int &exit_code);
void register_fusions(CLI::App &app, int &exit_code);
void register_groups(CLI::App &app, int &exit_code);
void register_ledger(CLI::App &app, int &exit_code);
void register_lists(CLI::App &app, int &exit_code);
void register_memory(CLI::App &app, int &exit_code);
void register_rearrange(CLI::App &app, int &exit_code);
void register_run(CLI::App &app, int &exit_code);

// mlir-opt with the project's dialects and passes; takes the rest of the command line.
int run_opt(int argc, char **argv);

} // namespace paratope
