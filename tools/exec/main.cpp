// SPDX-License-Identifier: Apache-2.0
//
// paratope-exec: a compiled plan in, its result out. It links neither MLIR nor TOML, so it runs wherever a
// plan can be copied to. Exit codes: 0 good, 1 the plan is wrong, 2 wrong usage, 3 the run failed or a check
// did not hold, 4 the backend needs hardware that is not here, 130 interrupted.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/exec/world.h"
#include "runtime/plan/plan_json.h"
#include "runtime/trace/trace.h"

namespace paratope {
namespace {

enum Exit { good = 0, wrong_input = 1, wrong_usage = 2, failed = 3, no_hardware = 4, interrupted = 130 };

std::atomic<bool> stop_requested{false};

// The first Ctrl-C ends the run after its step; the second ends the process.
extern "C" void on_interrupt(int) {
  stop_requested.store(true);
  std::signal(SIGINT, SIG_DFL);
}

struct Arguments {
  std::string plan, trace, dump, backend = "host";
  int64_t steps = 1, threads = 0;
  double timeout_s = 60;
  bool verify = false, json = false;
};

// The whole of a stream, or errno's text.
bool read_all(std::FILE *file, std::string &text, std::string &error) {
  char block[1 << 16];
  while (size_t count = std::fread(block, 1, sizeof block, file))
    text.append(block, count);
  if (std::ferror(file))
    error = std::strerror(errno);
  return error.empty();
}

bool read_plan_text(const std::string &path, std::string &text, std::string &error) {
  if (path == "-")
    return read_all(stdin, text, error);
  std::FILE *file = std::fopen(path.c_str(), "rb");
  if (!file) {
    error = std::strerror(errno);
    return false;
  }
  bool read = read_all(file, text, error);
  std::fclose(file);
  return read;
}

// A reader that has gone away (a closed pipe) has read what it wanted.
// Anything else that keeps text from arriving is a failure: a result that nobody got is not a success.
void print(const std::string &text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE)
    return;
  fmt::print(stderr, "error: cannot write to stdout: {}\n", std::strerror(errno));
  std::_Exit(failed);
}

// Says why nothing was run, on stderr and, when asked for JSON, in the document.
int refuse(const Arguments &arguments, int code, const std::vector<std::string> &reasons) {
  for (const std::string &reason : reasons)
    fmt::print(stderr, "error: {}\n", reason);
  if (arguments.json)
    print(nlohmann::ordered_json{{"ok", false}, {"failures", reasons}}.dump(
              2, ' ', false, nlohmann::json::error_handler_t::replace) +
          "\n");
  return code;
}

int parse(int argc, char **argv, Arguments &arguments) {
  CLI::App app("runs a compiled plan, and checks what it computes\n\n"
               "  paratope compile topologies/v4-flash.toml -o plan.json\n"
               "  paratope-exec plan.json --steps 4 --verify\n",
               "paratope-exec");
  app.add_option("plan", arguments.plan, "the plan, or - for standard input")
      ->required()
      ->type_name("PLAN.json");
  app.add_option("--steps", arguments.steps, "steps to run (of a prefill: chunks of every prompt)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_flag("--verify", arguments.verify, "compare every output with the one-rank reference");
  app.add_option("--trace", arguments.trace, "write a Chrome trace of every instruction")->type_name("FILE");
  app.add_option(
         "--dump", arguments.dump,
         "write weights, inputs, residuals and results here, as safetensors, to compute the step again")
      ->type_name("DIR");
  app.add_flag("--json", arguments.json, "print one JSON document and nothing else");
  app.add_option("--timeout", arguments.timeout_s, "longest wait for another rank")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_option("--backend", arguments.backend, "host, gpu or nccl")
      ->check(CLI::IsMember({"host", "gpu", "nccl"}))
      ->capture_default_str();
  app.add_option("--threads", arguments.threads, "ranks that compute at the same time; 0: one a processor")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? -1 : wrong_usage;
  }
  return good;
}

int run(const Arguments &arguments) {
  if (arguments.backend != "host")
    return refuse(arguments, no_hardware,
                  {fmt::format("got --backend {}, but there is no GPU here (or this build has no GPU "
                               "runtime); use --backend host",
                               arguments.backend)});
  std::string text, error;
  if (!read_plan_text(arguments.plan, text, error))
    return refuse(arguments, wrong_input, {fmt::format("cannot read plan {}: {}", arguments.plan, error)});
  plan::ReadResult read = plan::read_json(text);
  if (!read.ok()) {
    std::vector<std::string> reasons;
    for (const plan::Problem &problem : read.problems)
      reasons.push_back(fmt::format("{}: {}", arguments.plan, problem.text()));
    return refuse(arguments, wrong_input, reasons);
  }

  TraceWriter trace;
  if (!arguments.trace.empty()) {
    error = trace.open(arguments.trace);
    if (!error.empty())
      return refuse(arguments, wrong_input, {error});
  }
  bool terminal = isatty(STDERR_FILENO) != 0;
  RunOptions options;
  options.steps = arguments.steps;
  options.verify = arguments.verify;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout_s * 1000));
  options.threads = arguments.threads;
  options.base_dir =
      arguments.plan == "-" ? "" : std::filesystem::path(arguments.plan).parent_path().string();
  options.dump = arguments.dump;
  options.trace = trace.is_open() ? &trace : nullptr;
  options.stop = &stop_requested;
  if (terminal)
    options.progress = [](const std::string &line) { fmt::print(stderr, "\r\x1b[K{}", line); };
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  RunResult result = run_plan(read.plan, options);
  if (terminal)
    fmt::print(stderr, "\r\x1b[K");
  error = trace.close();
  if (!error.empty())
    result.failures.push_back(error);

  for (const std::string &failure : result.failures)
    fmt::print(stderr, "error: {}\n", failure);
  if (arguments.json)
    print(result_json(result));
  else if (!result.refused)
    print(result_text(result));
  if (result.refused)
    return wrong_input;
  if (!result.ok())
    return failed;
  return result.interrupted ? interrupted : good;
}

} // namespace
} // namespace paratope

int main(int argc, char **argv) {
  std::signal(SIGPIPE, SIG_IGN);
  paratope::Arguments arguments;
  int code = paratope::parse(argc, argv, arguments);
  if (code != paratope::good)
    return code < 0 ? 0 : code;
  return paratope::run(arguments);
}
