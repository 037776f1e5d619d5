// SPDX-License-Identifier: Apache-2.0
//
// `compile`: the pipeline, to any of its levels.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "mlir/Bytecode/BytecodeWriter.h"

#include "compiler/plan/emit.h"
#include "dsl/diagnostic/render.h"
#include "dsl/toml/write.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"
#include "runtime/plan/plan_json.h"
#include "tools/paratope/dot.h"
#include "tools/paratope/session.h"
#include "tools/paratope/table.h"

namespace paratope {

namespace {

struct Arguments {
  SourceOptions source;
  std::string output, emit = "plan", print_after;
  bool time = false, bytecode = false, locations = false;
};

std::string mlir_text(mlir::ModuleOp module, const Arguments &arguments) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (arguments.bytecode)
    (void)mlir::writeBytecodeToFile(module, out);
  else
    module.print(out, mlir::OpPrintingFlags().enableDebugInfo(arguments.locations));
  return text;
}

int write(const Arguments &arguments, const std::string &text) {
  if (arguments.output.empty() || arguments.output == "-") {
    print(text);
    return exit_good;
  }
  std::ofstream file(arguments.output, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    return refuse(arguments.source.json,
                  fmt::format("cannot write '{}': {}", arguments.output, std::strerror(errno)));
  }
  return exit_good;
}

int compiled(const Arguments &arguments) {
  CompileOptions options;
  options.settings = arguments.source.settings;
  options.search = search_path();
  options.tiny = arguments.source.tiny;
  options.print_after = arguments.print_after;
  options.log = &std::cerr;
  if (arguments.emit == "topo" || arguments.emit == "toml")
    options.until = arguments.emit == "toml" ? "read" : "group";
  Diagnostics found;
  Compilation compilation = compile(arguments.source.file, options, found);
  std::string text;
  auto failed = [&] {
    show(found);
    if (arguments.source.json)
      print(nlohmann::ordered_json{{"ok", false}, {"diagnostics", to_json(found)}});
    bool usage = !found.all().empty() && found.all().front().code == "unknown-stage";
    return usage ? exit_wrong_usage : exit_wrong_input;
  };
  if (!compilation.ok || found.has_errors())
    return failed();
  auto start = std::chrono::steady_clock::now();
  if (arguments.emit == "plan") {
    topo::DiagnosticBridge bridge(compilation.context.get(), found);
    auto plan = emit_plan(*compilation.module, {arguments.source.file, compilation.source_hash});
    if (mlir::failed(plan))
      return failed();
    text = plan::write_json(*plan);
    compilation.times.push_back(
        {"plan",
         std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count()});
  } else if (arguments.emit == "toml") {
    topo::DiagnosticBridge bridge(compilation.context.get(), found);
    auto spec = topo::to_spec(*compilation.module, found);
    if (!spec)
      return failed();
    text = topo::is_handwritten(*compilation.module) ? write_full(*spec) : write_topology(*spec);
  } else if (arguments.emit == "dot") {
    text = to_dot(*compilation.module);
  } else {
    text = mlir_text(*compilation.module, arguments);
  }
  show(found);
  if (arguments.time) {
    double total = 0;
    for (const StageTime &stage : compilation.times)
      total += stage.ms;
    Table table({"<stage", "ms"});
    for (const StageTime &stage : compilation.times)
      table.row({stage.stage, fmt::format("{:.2f}", stage.ms)});
    table.row({"total", fmt::format("{:.2f}", total)});
    std::cerr << table.text("");
  }
  return write(arguments, text);
}

} // namespace

void register_compile(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command = app.add_subcommand("compile", "the pipeline: to a plan, or to any level before it");
  add_source(*command, arguments->source);
  command->add_option("-o,--output", arguments->output, "where to write; stdout when absent");
  command->add_option("--emit", arguments->emit, "what to write")
      ->check(CLI::IsMember({"toml", "topo", "step", "plan", "dot"}))
      ->capture_default_str();
  std::string listed;
  for (const auto &[name, reason] : stage_names()) {
    listed += fmt::format("  {:10} {}\n", name, reason);
  }
  command->add_option("--print-after", arguments->print_after, "a stage, or all: what it changed, on stderr");
  command->add_flag("--time", arguments->time, "how long each stage took, on stderr");
  command->add_flag("--tiny", arguments->source.tiny, "widths and batch that a CPU can run");
  command->add_flag("--bytecode", arguments->bytecode, "MLIR as bytecode (with --emit topo or step)");
  command->add_flag("--locations", arguments->locations, "MLIR text with the place of each op in the file");
  command->footer("Stages, in order:\n" + listed +
                  "\nExample:\n  paratope compile topologies/deepinfer/decode-ep64.toml --emit step "
                  "--print-after exchange");
  command->callback([arguments, &exit_code] { exit_code = compiled(*arguments); });
}

} // namespace paratope
