// SPDX-License-Identifier: Apache-2.0
//
// The whole compiler, in order. Each stage is a pass or two with a reason; between stages the verifiers run,
// and
// `--print-after` shows what a stage changed.
#include "compiler/pipeline.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "fmt/format.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/xxhash.h"

#include "compiler/passes.h"
#include "dsl/diagnostic/nearest.h"
#include "dsl/spec/check.h"
#include "dsl/toml/read.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

namespace {

using MakePass = std::unique_ptr<Pass> (*)();

enum class When {
  always,
  tiny,          // only with --tiny
  no_program,    // a module that comes with a step program keeps it
  no_collectives // a program that comes with its collectives keeps them
};

struct Stage {
  const char *name;
  const char *reason;
  When when;
  std::vector<MakePass> passes;
};

// clang-format off
const std::vector<Stage> &stages() {
  static const std::vector<Stage> all = {
      {"tiny",     "widths that a CPU can run; every axis and every collective stays",                  When::tiny,           {createTopoTiny}},
      {"size",     "what follows from the file's numbers, before anything is built on them",            When::always,         {createTopoDeriveSizes}},
      {"legality", "what cannot be, said at the key that asks for it, before groups hide the cause",    When::always,         {createTopoCheckLegality}},
      {"group",    "patterns to communicators in closed form: a cost of axes, not of ranks",            When::always,         {createTopoBuildGroups}},
      {"built",    "what is legal but not built yet, before a step is built that would be wrong",       When::no_program,     {createTopoCheckBuilt}},
      {"step",     "the model's mathematics on sharded tensors, as if communication were free",         When::no_program,     {createStepBuild}},
      {"exchange", "where a producer's sharding is not its consumer's, the collective that makes it so", When::no_collectives, {createStepInsertExchange}},
      {"check",    "the proof that none is missing, before anything relies on it",                      When::always,         {createStepCheckProgram, createStepCheckShardings}},
      {"fuse",     "which ops are one kernel, before streams and liveness are made of kernels",          When::always,         {createStepFuse}},
      {"order",    "collectives issued early and awaited late, streams assigned",                       When::always,         {createStepOrder}},
      {"memory",   "a GPU holds what the ordered step keeps alive, itemised where it does not",          When::always,         {createStepCheckMemory}},
      {"place",    "one arena a kind of memory, offsets from liveness: steps allocate nothing",         When::always,         {createStepPlace}},
  };
  return all;
}
// clang-format on

bool wanted(const Stage &stage, ModuleOp module, const CompileOptions &options) {
  auto programs = module.getOps<step::ProgramOp>();
  switch (stage.when) {
  case When::always:
    return true;
  case When::tiny:
    return options.tiny;
  case When::no_program:
    return programs.empty();
  case When::no_collectives:
    for (step::ProgramOp program : programs)
      for (Operation &op : program.getBody().front())
        if (step::is_collective(&op) && !isa<step::VoteOp>(op))
          return false;
    return true;
  }
  return true;
}

std::string text_of(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module << '\n';
  return text;
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// MLIR's readers recurse with the nesting of their input, and trust bytecode more than a damaged file
// deserves. Text is measured before it is parsed; bytecode is first read by a child process, so that what
// kills the reader does not kill us.
constexpr int64_t most_nesting = 256;

bool too_deep(llvm::StringRef text) {
  int64_t depth = 0;
  for (char c : text) {
    depth += c == '{' || c == '[' || c == '(' || c == '<';
    depth -= c == '}' || c == ']' || c == ')' || (c == '>' && depth > 0);
    if (depth > most_nesting)
      return true;
  }
  return false;
}

bool survives_reading(MLIRContext *context, const llvm::MemoryBuffer &buffer) {
  pid_t child = fork();
  if (child < 0)
    return true; // no process to try it in
  if (child == 0) {
    alarm(10);
    ScopedDiagnosticHandler silent(context, [](mlir::Diagnostic &) { return success(); });
    llvm::SourceMgr sources;
    sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(buffer.getMemBufferRef()), llvm::SMLoc());
    (void)parseSourceFile<ModuleOp>(sources, ParserConfig(context));
    _exit(0); // refused or read: either way the reader came back
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status);
}

// MLIR text or bytecode.
OwningOpRef<ModuleOp> read_mlir(MLIRContext *context, const std::string &file, Diagnostics &diagnostics) {
  if (std::filesystem::is_directory(file)) {
    diagnostics.error("unreadable-file", {file, 0, 0, 0},
                      fmt::format("cannot read '{}': it is a directory", file));
    return {};
  }
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(file, /*IsText=*/false);
  if (!buffer) {
    auto &found = diagnostics.error("file-not-found", {},
                                    fmt::format("cannot read {}: {}", file, buffer.getError().message()));
    if (auto near = nearest_file(file))
      found.fix = fmt::format("write {}", *near);
    return {};
  }
  if (isBytecode(**buffer) ? !survives_reading(context, **buffer) : too_deep((*buffer)->getBuffer())) {
    diagnostics.error("damaged-ir", {file, 0, 0, 0},
                      isBytecode(**buffer) ? "the bytecode is damaged: reading it does not come to an end"
                                           : fmt::format("brackets are nested deeper than {}", most_nesting));
    return {};
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, ParserConfig(context));
  if (module) // keys that must agree with each other, as the TOML reader checks them
    if (std::optional<TopologySpec> spec = topo::to_spec(*module, diagnostics))
      check(*spec, diagnostics);
  return module;
}

OwningOpRef<ModuleOp> read(MLIRContext *context, const std::string &file, const CompileOptions &options,
                           Diagnostics &diagnostics) {
  std::string path = file.substr(0, file.find('#')),
              extension = std::filesystem::path(path).extension().string();
  if (extension == ".mlir" || extension == ".mlirbc" || file == "-") {
    if (!options.settings.empty())
      diagnostics.error("set-on-mlir", {"--set", 1, 1, 1},
                        "--set changes TOML files: an .mlir file has no keys to set");
    else
      return read_mlir(context, file, diagnostics);
    return {};
  }
  std::optional<TopologySpec> spec = read_topology(file, {options.settings, options.search}, diagnostics);
  return spec ? topo::to_module(context, *spec) : OwningOpRef<ModuleOp>();
}

} // namespace

std::vector<std::pair<std::string, std::string>> stage_names() {
  std::vector<std::pair<std::string, std::string>> names = {
      {"read", "TOML or MLIR to the topo dialect, all errors at once"}};
  for (const Stage &stage : stages())
    names.emplace_back(stage.name, stage.reason);
  return names;
}

std::unique_ptr<MLIRContext> make_context() {
  auto context = std::make_unique<MLIRContext>(MLIRContext::Threading::DISABLED);
  context->loadDialect<topo::TopoDialect, step::StepDialect>();
  return context;
}

Compilation compile(const std::string &file, const CompileOptions &options, Diagnostics &diagnostics) {
  Compilation result;
  for (const std::string &named : {options.until, options.print_after})
    if (!named.empty() && named != "all" &&
        llvm::none_of(stage_names(), [&](const auto &stage) { return stage.first == named; })) {
      std::vector<std::string> names;
      for (const auto &[name, reason] : stage_names())
        names.push_back(name);
      auto near = nearest(named, names);
      auto &found = diagnostics.error(
          "unknown-stage", {},
          fmt::format("there is no stage '{}', expected {}", named, fmt::join(names, " | ")));
      found.fix = near ? *near : "";
      return result;
    }

  auto start = std::chrono::steady_clock::now();
  result.context = make_context();
  topo::DiagnosticBridge bridge(result.context.get(), diagnostics);
  result.module = read(result.context.get(), file, options, diagnostics);
  if (!result.module || diagnostics.has_errors())
    return result;
  std::string before = text_of(*result.module);
  result.source_hash = fmt::format("{:016x}", llvm::xxh3_64bits(llvm::StringRef(before)));
  result.times.push_back({"read", ms_since(start)});
  bool printing = options.log && !options.print_after.empty();
  auto show = [&](const std::string &stage, const std::string &after) {
    if (!printing || (options.print_after != "all" && options.print_after != stage))
      return;
    *options.log << fmt::format("// after {}{}\n", stage,
                                after == before && stage != "read" ? " (unchanged)" : "");
    if (after != before || stage == "read")
      *options.log << after;
  };
  show("read", before);
  result.ok = options.until == "read";
  for (const Stage &stage : stages()) {
    if (result.ok)
      break;
    if (wanted(stage, *result.module, options)) {
      start = std::chrono::steady_clock::now();
      PassManager passes(result.context.get());
      passes.enableVerifier(options.verify_each);
      for (MakePass make : stage.passes)
        passes.addPass(make());
      Diagnostics findings;
      bool good = false;
      {
        topo::DiagnosticBridge inner(result.context.get(), findings);
        good = succeeded(passes.run(*result.module));
      }
      bool stop_here = !good && options.legal_suffices && std::string_view(stage.name) == "built";
      for (paratope::Diagnostic found : findings.all()) {
        if (stop_here && found.severity == Severity::error)
          found.severity = Severity::warning;
        diagnostics.add(std::move(found));
      }
      result.times.push_back({stage.name, ms_since(start)});
      if (printing) {
        std::string after = text_of(*result.module);
        show(stage.name, after);
        before = std::move(after);
      }
      result.ok = result.stopped_as_legal = stop_here;
      if (!good)
        return result;
    }
    result.ok = options.until == stage.name;
  }
  result.ok = true;
  return result;
}

} // namespace paratope
