// SPDX-License-Identifier: Apache-2.0
//
// random_topologies: legal topologies must run and equal the reference; near-legal ones must be refused at
// the key that is wrong. What fails is made small and printed with the command that shows it again.
//
//     random_topologies --seed 1 --count 3000 --jobs 2        3000 of each kind
//     random_topologies --seed 1 --case 4711                  one of them
//     random_topologies --write 4711 --seed 1                 its file, on stdout
//     random_topologies --file F.toml                         a file of found/, as its first lines say it
//     must end
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report.h"
#include "shrink.h"
#include "workers.h"

namespace paratope::random {

namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double case_seconds = 240;
#else
constexpr double case_seconds = 40;
#endif
constexpr double shrink_seconds = 60;
constexpr size_t most_shrunk = 6;        // failures of one kind are one fault
constexpr int64_t covering_count = 2500; // as many cases of a kind meet every word

struct Options {
  uint64_t seed =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) % 1000000;
  int64_t count = 500; // of each kind
  bool legal = true, near = true;
  std::optional<uint64_t> only, write;
  std::string file, keep;
  int jobs = 1;
};

int usage(const std::string &wrong) {
  fmt::print(
      stderr,
      "error: {}\nusage: random_topologies [--seed S] [--count N] [--legal-only | --near-only] [--jobs J] "
      "[--keep DIR] [--case K | --write K | --file FILE]\n",
      wrong);
  return 2;
}

// Answers an exit code where the command line is wrong.
std::optional<int> parse(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--legal-only") {
      options.near = false;
      continue;
    }
    if (word == "--near-only") {
      options.legal = false;
      continue;
    }
    static const std::set<std::string> known = {"--seed", "--count", "--jobs", "--keep",
                                                "--case", "--write", "--file"};
    if (!known.contains(word))
      return usage(fmt::format("unknown option {}", word));
    if (++i == argc)
      return usage(fmt::format("{} needs a value", word));
    std::string value = argv[i];
    if (word == "--keep" || word == "--file") {
      (word == "--keep" ? options.keep : options.file) = value;
      continue;
    }
    char *end = nullptr;
    errno = 0;
    unsigned long long number = std::strtoull(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || errno != 0 || value[0] == '-')
      return usage(fmt::format("{} needs a number, got '{}'", word, value));
    if (word == "--seed")
      options.seed = number;
    else if (word == "--count")
      options.count = static_cast<int64_t>(number);
    else if (word == "--jobs")
      options.jobs =
          static_cast<int>(std::max<unsigned long long>(1, std::min<unsigned long long>(number, 64)));
    else
      (word == "--case" ? options.only : options.write) = number;
  }
  return std::nullopt;
}

struct Program {
  const Options &options;
  Library library = read_library({PARATOPE_TOPOLOGIES, PARATOPE_RANDOM});
  std::vector<Mutation> mutations = all_mutations();
  fs::path scratch = fs::temp_directory_path() / fmt::format("paratope-random-{}", getpid());
  std::map<std::string, int64_t> failures; // by kind
  size_t shrunk = 0;

  explicit Program(const Options &the_options) : options(the_options) { fs::create_directories(scratch); }
  ~Program() {
    std::error_code ignored;
    fs::remove_all(scratch, ignored);
  }

  Outcome judge_here(const Case &each) {
    auto [text, expectation] = each.text();
    return evaluate((scratch / fmt::format("{}.toml", getpid())).string(), text, expectation, each.steps,
                    library.search);
  }

  static Outcome outcome_of(const Finished &finished) {
    if (finished.good())
      return from_text(finished.text);
    Outcome outcome;
    outcome.fault = finished.hung ? "hang" : "crash";
    outcome.kind = outcome.fault;
    outcome.detail = finished.hung ? fmt::format("  no answer in {} s\n", case_seconds)
                     : finished.signal
                         ? fmt::format("  signal {} ({})\n", finished.signal, strsignal(finished.signal))
                         : fmt::format("  ended with exit code {}\n", finished.exit);
    return outcome;
  }

  // In a process of its own.
  Outcome judge(const Case &each) {
    Outcome outcome;
    run_forked(
        1, 1, case_seconds, [&](size_t) { return to_text(judge_here(each)); },
        [&](const Finished &finished) {
          outcome = outcome_of(finished);
          return true;
        });
    return outcome;
  }

  void report(uint64_t idx, const Case &failing, const Outcome &outcome) {
    fmt::print("\ncase {} ({}): {}\n{}", idx, failing.legal ? "legal" : failing.mutation, outcome.fault,
               outcome.detail);
    int64_t before = failures[outcome.kind + failing.mutation]++;
    bool alone = options.only.has_value();
    fmt::print("  again: random_topologies --seed {} --case {}\n", options.seed, idx);
    if (!options.keep.empty())
      keep(fmt::format("{}-{}.toml", options.seed, idx), failing.text().first);
    // A rule that is accepted is shown whole: made smaller it may become legal.
    if ((before > 0 && !alone) || shrunk >= most_shrunk || outcome.fault == "accepted") {
      if (before == 0)
        fmt::print("{}", failing.text().first);
      return;
    }
    ++shrunk;
    Shrunk small = shrink(failing, outcome, shrink_seconds, [&](const Case &each) { return judge(each); });
    std::string name = fmt::format("small-{}-{}.toml", options.seed, idx);
    fmt::print("  after {} tries this still fails:\n{}", small.tried, small.outcome.detail);
    fmt::print("------------------------------------------------------------ {}\n{}"
               "------------------------------------------------------------\n",
               name, small.smallest.text().first);
    fmt::print("  PARATOPE_TOPOLOGIES={} paratope run {} --tiny --verify --steps {}\n", PARATOPE_RANDOM, name,
               small.smallest.steps);
    if (!options.keep.empty())
      keep(name, small.smallest.text().first);
    std::fflush(stdout);
  }

  void keep(const std::string &name, const std::string &text) {
    fs::create_directories(options.keep);
    std::ofstream(fs::path(options.keep) / name, std::ios::binary) << text;
  }

  // ---- files of found/ ----------------------------------------------------------------------------------

  // "# expect: good", or "# expect: CODE at LINE"; "# steps: N" where it is not 1.
  std::optional<std::string> run_file(const fs::path &path) {
    std::ifstream stream(path);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    auto after = [&](const std::string &word) -> std::string {
      size_t at = text.find("# " + word + ": ");
      return at == std::string::npos
                 ? ""
                 : text.substr(at + word.size() + 4, text.find('\n', at) - at - word.size() - 4);
    };
    std::string expected = after("expect"), steps = after("steps");
    Expectation expectation;
    if (expected.empty())
      return "has no line '# expect: good' or '# expect: CODE at LINE'";
    if (expected != "good") {
      size_t at = expected.find(" at ");
      if (at == std::string::npos)
        return "expects neither 'good' nor 'CODE at LINE'";
      expectation.legal = false;
      expectation.codes = {expected.substr(0, at)};
      expectation.places = {{std::strtoll(expected.c_str() + at + 4, nullptr, 10), 1, 1000}};
    }
    Outcome outcome;
    run_forked(
        1, 1, case_seconds,
        [&](size_t) {
          return to_text(evaluate((scratch / "found.toml").string(), text, expectation,
                                  steps.empty() ? 1 : std::strtoll(steps.c_str(), nullptr, 10),
                                  library.search));
        },
        [&](const Finished &finished) {
          outcome = outcome_of(finished);
          return true;
        });
    return outcome.fault.empty() ? std::nullopt : std::optional(outcome.fault + "\n" + outcome.detail);
  }

  bool run_found(const std::vector<fs::path> &files) {
    bool good = true;
    for (const fs::path &file : files)
      if (auto wrong = run_file(file)) {
        fmt::print("{}: {}\n", file.string(), *wrong);
        good = false;
      }
    fmt::print("{} files that found faults before: {}\n", files.size(), good ? "good" : "NOT GOOD");
    return good;
  }

  // ---- random cases -------------------------------------------------------------------------------------

  bool run_random() {
    std::vector<uint64_t> cases;
    if (options.only) {
      cases = {*options.only};
    } else {
      for (int64_t i = 0; i < options.count; ++i) {
        if (options.legal)
          cases.push_back(2 * static_cast<uint64_t>(i));
        if (options.near)
          cases.push_back(2 * static_cast<uint64_t>(i) + 1);
      }
    }
    auto start = std::chrono::steady_clock::now();
    Coverage coverage;
    size_t failed = 0;
    run_forked(
        cases.size(), options.jobs, case_seconds,
        [&](size_t i) { return to_text(judge_here(make_case(options.seed, cases[i], library, mutations))); },
        [&](const Finished &finished) {
          uint64_t idx = cases[finished.task];
          Case done = make_case(options.seed, idx, library, mutations);
          Outcome outcome = outcome_of(finished);
          coverage.add(done, outcome);
          if (!outcome.fault.empty()) {
            ++failed;
            report(idx, done, outcome);
          }
          return failed < 200;
        });
    fmt::print("{}", coverage.table());
    std::vector<std::string> missing;
    if (options.count >= covering_count && !options.only)
      missing = coverage.missing(library, mutations);
    if (!missing.empty())
      fmt::print("never covered: {}\n", fmt::join(missing, ", "));
    fmt::print("{} legal and {} near-legal topologies of seed {}: {} failed, {:.1f} s on {} processes\n",
               coverage.legal(), coverage.near(), options.seed, failed,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), options.jobs);
    return failed == 0 && missing.empty();
  }

  int run() {
    if (options.write) {
      fmt::print("{}", make_case(options.seed, *options.write, library, mutations).text().first);
      return 0;
    }
    if (!options.file.empty())
      return run_found({options.file}) ? 0 : 3;
    fmt::print("seed {}\n", options.seed);
    std::fflush(stdout);
    bool good = true;
    if (!options.only) {
      std::vector<fs::path> files;
      for (const fs::directory_entry &entry : fs::directory_iterator(fs::path(PARATOPE_RANDOM) / "found"))
        if (entry.path().extension() == ".toml")
          files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      good = run_found(files);
    }
    good = run_random() && good;
    return good ? 0 : 3;
  }
};

} // namespace

} // namespace paratope::random

int main(int argc, char **argv) {
  using namespace paratope::random;
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // what was found is there even when the run is ended
  Options options;
  if (std::optional<int> code = parse(argc, argv, options))
    return *code;
  try {
    Program program(options);
    return program.run();
  } catch (const std::exception &error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
