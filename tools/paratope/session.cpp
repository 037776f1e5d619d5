// SPDX-License-Identifier: Apache-2.0
#include "tools/paratope/session.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "compiler/mesh/view.h"
#include "dsl/diagnostic/render.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

namespace paratope {

void add_source(CLI::App &command, SourceOptions &options, bool file_required) {
  CLI::Option *file =
      command.add_option("FILE", options.file, "FILE.toml, FILE.toml#variant+variant, or FILE.mlir");
  if (file_required)
    file->required();
  command
      .add_option("--set", options.settings, "KEY=VALUE: override a dotted key of the file, e.g. axes.ep=32")
      ->take_all()
      ->expected(1)
      ->type_name("KEY=VALUE");
  command.add_flag("--json", options.json, "one JSON document on stdout and nothing else");
}

std::vector<std::string> search_path() {
  std::vector<std::string> directories;
  if (const char *own = std::getenv("PARATOPE_TOPOLOGIES"))
    directories.push_back(own);
  for (const char *directory : {PARATOPE_TOPOLOGIES, PARATOPE_INSTALLED_TOPOLOGIES})
    if (std::filesystem::is_directory(directory))
      directories.push_back(directory);
  return directories;
}

void show(const Diagnostics &diagnostics, bool with_remarks) {
  Diagnostics shown;
  for (const auto &[file, text] : diagnostics.sources())
    shown.add_source(file, text);
  for (const Diagnostic &found : diagnostics.all())
    if (with_remarks || found.severity != Severity::remark)
      shown.add(found);
  RenderOptions options;
  options.colour = isatty(STDERR_FILENO) && !std::getenv("NO_COLOR");
  render(std::cerr, shown, options);
}

int refuse(bool json, const std::string &message, const std::string &fix) {
  Diagnostics found;
  found.error("refused", {}, message).fix = fix;
  show(found);
  if (json)
    print(nlohmann::ordered_json{{"ok", false}, {"diagnostics", to_json(found)}});
  return exit_wrong_input;
}

void print(const std::string &text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE)
    return;
  std::cerr << "error: cannot write to stdout: " << std::strerror(errno) << "\n";
  std::_Exit(exit_failed);
}

void print(const nlohmann::ordered_json &document) {
  print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::unique_ptr<Loaded> load(const SourceOptions &options, const std::string &until) {
  auto loaded = std::make_unique<Loaded>();
  CompileOptions compile_options;
  compile_options.settings = options.settings;
  compile_options.search = search_path();
  compile_options.tiny = options.tiny;
  compile_options.until = until;
  loaded->compilation = compile(options.file, compile_options, loaded->diagnostics);
  bool good = loaded->compilation.ok && !loaded->diagnostics.has_errors();
  if (good) {
    topo::DiagnosticBridge bridge(loaded->compilation.context.get(), loaded->diagnostics);
    if (auto spec = topo::to_spec(loaded->module(), loaded->diagnostics))
      loaded->spec = std::move(*spec);
    loaded->title = *loaded->spec.name;
    if (size_t variants = options.file.find('#'); variants != std::string::npos)
      loaded->title += options.file.substr(variants);
    if (until != "read") {
      auto mesh = view_mesh(loaded->module());
      if (mlir::succeeded(mesh))
        loaded->mesh = std::move(*mesh);
      else
        good = false;
    }
  }
  show(loaded->diagnostics);
  if (good)
    return loaded;
  if (options.json)
    print(nlohmann::ordered_json{{"ok", false}, {"diagnostics", to_json(loaded->diagnostics)}});
  return nullptr;
}

} // namespace paratope
