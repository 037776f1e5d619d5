// SPDX-License-Identifier: Apache-2.0
//
// The built executable from the outside: exit codes, what goes to which stream, pipes and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "runtime/exec/test_plan.h"
#include "runtime/plan/plan_json.h"

namespace paratope {
namespace {

using testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string out, err;
};

struct Cli : testing::Test {
  std::filesystem::path folder;

  void SetUp() override {
    std::string pattern = testing::TempDir() + "/paratope_cli_XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string write(const std::string &name, const std::string &text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
  std::string read(const std::string &name) {
    std::stringstream text;
    text << std::ifstream(folder / name).rdbuf();
    return text.str();
  }
  std::string plan_file(const plan::Plan &plan) { return write("plan.json", plan::write_json(plan)); }

  // Runs `sh -c` with $EXEC as the executable.
  Outcome run(const std::string &command) {
    std::string line =
        fmt::format("cd {}; EXEC={}; ( {} ) > out 2> err", folder.string(), PARATOPE_EXEC, command);
    int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read("out"), read("err")};
  }
};

plan::Plan small_plan() { return test::make_plan(test::small_model(), {.dp = 4, .engine_tokens = {2, 0}}); }

TEST_F(Cli, RunsVerifiesAndPrintsATable) {
  plan_file(small_plan());
  Outcome o = run("$EXEC plan.json --steps 3 --verify");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char *part :
       {"world          4 ranks, backend host", "steps          3 of 4 tokens and 2 placeholders",
        "issued = expected", "equal to the reference", "top ops"})
    EXPECT_THAT(o.out, HasSubstr(part));
}

TEST_F(Cli, JsonIsOneDocumentAndThePlanMayComeFromAPipe) {
  plan_file(small_plan());
  Outcome o = run("cat plan.json | $EXEC - --steps 2 --verify --json");
  EXPECT_EQ(o.code, 0) << o.err;
  auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_EQ(json["verify"]["ok"], true);
  EXPECT_EQ(json["collectives"]["issued"], json["collectives"]["expected"]);
}

TEST_F(Cli, WritesATrace) {
  plan_file(small_plan());
  EXPECT_EQ(run("$EXEC plan.json --trace t.json").code, 0);
  EXPECT_GT(nlohmann::json::parse(read("t.json"))["traceEvents"].size(), 100u);
}

TEST_F(Cli, AWrongPlanIsLocatedAndExitsOne) {
  plan::Plan plan = small_plan();
  plan.instructions[3].op = "embedd";
  plan_file(plan);
  Outcome o = run("$EXEC plan.json --json");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(
      o.err,
      HasSubstr(
          "error: plan.json: /instructions/3/op: got unknown op \"embedd\", expected one of batch, embed,"));
  EXPECT_EQ(nlohmann::json::parse(o.out)["ok"], false);

  EXPECT_THAT(run("$EXEC none.json").err, HasSubstr("cannot read plan none.json: No such file or directory"));
  EXPECT_EQ(run("$EXEC none.json").code, 1);
  EXPECT_EQ(run("$EXEC .").code, 1);
  EXPECT_EQ(run("echo '{' | $EXEC -").code, 1);
  EXPECT_EQ(run("$EXEC plan.json --trace /no/such/folder/t.json").code, 1);
}

TEST_F(Cli, WhatDoesNotFitIntoMemoryIsRefusedBeforeItIsTaken) {
  plan_file(small_plan());
  Outcome o = run("$EXEC plan.json --steps 1000000000");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("of memory here"));
  EXPECT_THAT(o.err, HasSubstr("caches 640.000 GB and Engram scales 0.000 GB on 4 ranks"));
}

TEST_F(Cli, WrongUsageExitsTwo) {
  for (const char *arguments : {"", "plan.json --steps 0", "plan.json --backend tpu",
                                "plan.json --timeout -1", "plan.json --colour", "a.json b.json"}) {
    Outcome o = run(fmt::format("$EXEC {}", arguments));
    EXPECT_EQ(o.code, 2) << arguments;
    EXPECT_NE(o.err, "") << arguments;
  }
  EXPECT_EQ(run("$EXEC --help").code, 0);
}

TEST_F(Cli, AFailedCheckExitsThree) {
  plan::Plan plan = small_plan();
  plan.ledger[0].times = 2;
  plan_file(plan);
  Outcome o = run("$EXEC plan.json");
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(
      o.err, HasSubstr("error: rank 0: got 1 vote over communicator 0 in 1 steps, expected 2 by the ledger"));
}

TEST_F(Cli, HardwareThatIsNotHereExitsFour) {
  plan_file(small_plan());
  for (const char *backend : {"gpu", "nccl"}) {
    Outcome o = run(fmt::format("$EXEC plan.json --backend {}", backend));
    EXPECT_EQ(o.code, 4);
    EXPECT_THAT(o.err, HasSubstr("no GPU here"));
    EXPECT_THAT(o.err, HasSubstr("use --backend host"));
  }
}

TEST_F(Cli, APipeClosedEarlyIsNoError) {
  plan_file(small_plan());
  Outcome o = run("{ $EXEC plan.json --json; echo $? > code; } | true; sleep 0.2");
  EXPECT_EQ(read("code"), "0\n");
  EXPECT_EQ(o.err, "");
}

TEST_F(Cli, AnInterruptWritesWhatThereIs) {
  plan_file(small_plan());
  Outcome o = run("$EXEC plan.json --steps 50000 --trace t.json --json & pid=$!; sleep 0.3; kill -INT "
                  "$pid; wait $pid");
  EXPECT_EQ(o.code, 130) << o.err;
  auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_GT(json["steps"], 0);
  EXPECT_EQ(json["collectives"]["issued"], json["collectives"]["expected"]);
  EXPECT_GT(nlohmann::json::parse(read("t.json"))["traceEvents"].size(), 100u);
}

} // namespace
} // namespace paratope
