// SPDX-License-Identifier: Apache-2.0
//
// `check`: every compile-time check of each file.
#include "fmt/format.h"

#include "compiler/plan/emit.h"
#include "dsl/diagnostic/render.h"
#include "dsl/topo/bridge.h"
#include "tools/paratope/session.h"

namespace paratope {

namespace {

struct Arguments {
  SourceOptions source;
  std::vector<std::string> files;
  bool remarks = false;
};

int check(const Arguments &arguments) {
  bool ok = true;
  Diagnostics all;
  for (const std::string &file : arguments.files) {
    CompileOptions options;
    options.settings = arguments.source.settings;
    options.search = search_path();
    options.legal_suffices = true;
    Diagnostics found;
    Compilation compilation = compile(file, options, found);
    bool good = compilation.ok && !found.has_errors();
    if (good && !compilation.stopped_as_legal) { // the last check is the plan's own
      topo::DiagnosticBridge bridge(compilation.context.get(), found);
      good = mlir::succeeded(emit_plan(*compilation.module, {file, compilation.source_hash}));
    }
    ok = ok && good;
    show(found, arguments.remarks);
    if (!arguments.source.json && good)
      print(fmt::format("{}: ok\n", file));
    for (const Diagnostic &one : found.all())
      all.add(one);
  }
  if (arguments.source.json)
    print(nlohmann::ordered_json{{"ok", ok}, {"diagnostics", to_json(all)}});
  return ok ? exit_good : exit_wrong_input;
}

} // namespace

void register_check(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command = app.add_subcommand("check", "every compile-time check");
  command->add_option("FILE", arguments->files, "FILE.toml, FILE.toml#variant+variant, or FILE.mlir")
      ->required();
  command->add_option("--set", arguments->source.settings, "KEY=VALUE: override a dotted key")
      ->take_all()
      ->expected(1)
      ->type_name("KEY=VALUE");
  command->add_flag("--json", arguments->source.json, "one JSON document on stdout and nothing else");
  command->add_flag("--remarks", arguments->remarks, "also show the decisions that were taken");
  command->footer("Example:\n  paratope check topologies/deepinfer/decode-ep64.toml --set axes.ep=60");
  command->callback([arguments, &exit_code] { exit_code = check(*arguments); });
}

} // namespace paratope
