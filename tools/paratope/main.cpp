// SPDX-License-Identifier: Apache-2.0
//
// The command line. Each command is a file of this folder and registers itself; what they share is session.h.
#include <csignal>
#include <cstring>
#include <iostream>

#include "dsl/diagnostic/nearest.h"
#include "tools/paratope/session.h"

namespace paratope {

static int run(int argc, char **argv) {
  std::signal(SIGPIPE, SIG_IGN); // a pipe closed early is not an error
  if (argc > 1 && std::strcmp(argv[1], "opt") == 0)
    return run_opt(argc - 1, argv + 1);

  CLI::App app{"paratope: a topology file in, a checked, explained and executed step out\n\n"
               "  paratope check topologies/deepinfer/decode-ep64.toml\n"
               "  paratope run topologies/deepinfer/decode-ep64.toml --tiny --verify\n"};
  app.name("paratope");
  app.set_version_flag("--version", std::string("paratope ") + PARATOPE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int exit_code = exit_good;
  for (Register add :
       {register_check, register_explain, register_groups, register_rearrange, register_experts,
        register_memory, register_ledger, register_compile, register_run, register_cp_index,
        register_engram_hash, register_eplb, register_fusions, register_lists})
    add(app, exit_code);
  app.add_subcommand("opt", "mlir-opt with the project's dialects and passes (paratope opt --help)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) // --help, --version
      return app.exit(error);
    std::vector<std::string> names;
    for (const CLI::App *command : app.get_subcommands({}))
      names.push_back(command->get_name());
    bool known = argc > 1 && std::find(names.begin(), names.end(), argv[1]) != names.end();
    if (argc > 1 && argv[1][0] != '-' && !known) {
      std::cerr << "error: there is no command '" << argv[1] << "'\n";
      if (auto near = nearest(argv[1], names))
        std::cerr << "fix: paratope " << *near << "\n";
      std::cerr << "run `paratope --help` for the list\n";
      return exit_wrong_usage;
    }
    std::cerr << "error: " << error.what() << "\nrun `paratope " << (known ? std::string(argv[1]) + " " : "")
              << "--help` for how it is used\n";
    return exit_wrong_usage;
  }
  return exit_code;
}

} // namespace paratope

int main(int argc, char **argv) { return paratope::run(argc, argv); }
