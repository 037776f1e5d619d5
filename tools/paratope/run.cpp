// SPDX-License-Identifier: Apache-2.0
//
// `run`: compiles a topology and becomes paratope-exec, with the plan on its stdin; or hands it a plan file.
// The runtime is a program of its own because GPU nodes rarely have MLIR: what runs here runs there.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fmt/format.h"

#include "compiler/plan/emit.h"
#include "dsl/diagnostic/render.h"
#include "dsl/toml/write.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"
#include "runtime/plan/plan_json.h"
#include "tools/paratope/session.h"

namespace paratope {

namespace {

struct Arguments {
  SourceOptions source;
  std::string backend = "host", trace, dump;
  int64_t steps = 1, threads = 0;
  double timeout_s = 60;
  bool verify = false;
};

// The plan as an anonymous file that the next program finds on its stdin.
bool put_on_stdin(const std::string &text) {
  int file = memfd_create("plan.json", 0);
  if (file < 0)
    return false;
  for (size_t done = 0; done < text.size();) {
    ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR)
      return false;
    done += written > 0 ? static_cast<size_t>(written) : 0;
  }
  return lseek(file, 0, SEEK_SET) == 0 && dup2(file, STDIN_FILENO) == STDIN_FILENO;
}

// The topology beside what a run of it gives, whole: every value that is not the language's default. Answers
// why it cannot be written, or an empty text.
std::string write_beside(const std::string &directory, const Arguments &arguments) {
  CompileOptions options;
  options.settings = arguments.source.settings;
  options.search = search_path();
  options.until = "read";
  Diagnostics found;
  Compilation read = compile(arguments.source.file, options, found);
  auto spec = read.ok ? topo::to_spec(*read.module, found) : std::nullopt;
  if (!spec)
    return "it does not read back";
  const std::string path = directory + "/topology.toml";
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed)
    return fmt::format("{}: {}", directory, failed.message());
  std::ofstream file(path);
  file << write_full(*spec) << std::flush;
  return file ? "" : fmt::format("{}: {}", path, std::strerror(errno));
}

int become_exec(const Arguments &arguments, const std::string &plan) {
  std::error_code ignored;
  std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "paratope-exec";
  std::vector<std::string> words = {program.string(),  plan,      "--backend",
                                    arguments.backend, "--steps", std::to_string(arguments.steps)};
  words.insert(words.end(), {"--timeout", fmt::format("{}", arguments.timeout_s)});
  if (arguments.threads > 0)
    words.insert(words.end(), {"--threads", std::to_string(arguments.threads)});
  if (arguments.verify)
    words.push_back("--verify");
  if (arguments.source.json)
    words.push_back("--json");
  if (!arguments.trace.empty())
    words.insert(words.end(), {"--trace", arguments.trace});
  if (!arguments.dump.empty())
    words.insert(words.end(), {"--dump", arguments.dump});
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  fmt::print(stderr, "error: cannot start {}: {}\n", program.string(), std::strerror(errno));
  return exit_failed;
}

int run(Arguments &arguments) {
  std::string extension = std::filesystem::path(arguments.source.file).extension().string();
  if (extension == ".json")
    return become_exec(arguments, arguments.source.file);
  CompileOptions options;
  options.settings = arguments.source.settings;
  options.search = search_path();
  options.tiny = arguments.source.tiny;
  Diagnostics found;
  Compilation compilation = compile(arguments.source.file, options, found);
  bool good = compilation.ok && !found.has_errors();
  std::string text;
  if (good) {
    topo::DiagnosticBridge bridge(compilation.context.get(), found);
    auto plan = emit_plan(*compilation.module, {arguments.source.file, compilation.source_hash});
    good = mlir::succeeded(plan);
    if (good)
      text = plan::write_json(*plan);
  }
  show(found);
  if (!good) {
    if (arguments.source.json)
      print(nlohmann::ordered_json{{"ok", false}, {"diagnostics", to_json(found)}});
    return exit_wrong_input;
  }
  if (!arguments.dump.empty())
    if (std::string why = write_beside(arguments.dump, arguments); !why.empty()) {
      fmt::print(stderr, "error: cannot write the topology into the dump: {}\n", why);
      return exit_failed;
    }
  if (!put_on_stdin(text)) {
    fmt::print(stderr, "error: cannot hand over the plan: {}\n", std::strerror(errno));
    return exit_failed;
  }
  return become_exec(arguments, "-");
}

} // namespace

void register_run(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command = app.add_subcommand("run", "execute: every rank of the topology, for real");
  add_source(*command, arguments->source);
  command->add_option("--backend", arguments->backend, "host: threads of this process")
      ->check(CLI::IsMember({"host", "gpu", "nccl"}))
      ->capture_default_str();
  command->add_flag("--tiny", arguments->source.tiny,
                    "widths and batch that a CPU can run; axes, experts and layers stay");
  command->add_option("--steps", arguments->steps, "decode steps, each fed the tokens of the one before")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}))
      ->capture_default_str();
  command->add_flag("--verify", arguments->verify, "compare with the one-rank reference");
  command->add_option("--trace", arguments->trace, "write a Chrome/Perfetto trace here");
  command->add_option("--dump", arguments->dump,
                      "write weights, inputs, residuals after each layer and results into this directory, as "
                      "safetensors: enough to compute the step again in another language");
  command
      ->add_option("--threads", arguments->threads,
                   "ranks that compute at once; the result has the same bits for any number")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command
      ->add_option("--timeout", arguments->timeout_s,
                   "seconds a collective may wait before the watchdog reports who is missing")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command->footer("Example:\n  paratope run topologies/deepinfer/decode-ep64.toml --tiny --verify\n\nFILE "
                  "may also be a plan.json that `paratope compile` wrote.");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

} // namespace paratope
