// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

namespace paratope {
namespace {

std::string contents(const std::string &path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Trace : testing::Test {
  std::string path = testing::TempDir() + "/paratope_trace_test.json";
  void TearDown() override { std::remove(path.c_str()); }
};

TEST_F(Trace, IsValidJsonAfterEveryFlush) {
  TraceWriter trace;
  ASSERT_EQ(trace.open(path), "");
  EXPECT_EQ(nlohmann::json::parse(contents(path))["traceEvents"].size(), 0u);
  trace.name_rank(0, "say \"hi\"");
  trace.flush();
  EXPECT_EQ(nlohmann::json::parse(contents(path))["traceEvents"].size(), 6u);
  trace.span({.rank = 0,
              .stream = "exchange",
              .op = "dispatch",
              .name = "layers.0.moe",
              .where = "a\\b.toml:1:2",
              .fusion = "gate-dispatch",
              .instruction = 4,
              .step = 1,
              .start_us = 10,
              .end_us = 12.5});
  trace.flush();
  auto span = nlohmann::json::parse(contents(path))["traceEvents"].back();
  EXPECT_EQ(span["ph"], "X");
  EXPECT_EQ(span["tid"], 1);
  EXPECT_EQ(span["ts"], 10.0);
  EXPECT_EQ(span["dur"], 2.5);
  EXPECT_EQ(span["args"]["where"], "a\\b.toml:1:2");
  EXPECT_EQ(span["args"]["kernel"], "gate-dispatch");
  trace.flow(true, 7, 0, 12);
  trace.flow(false, 7, 0, 20);
  trace.bytes_in_flight(12, 4096);
  // Without a flush the file still is what it was; then close writes the rest.
  EXPECT_EQ(nlohmann::json::parse(contents(path))["traceEvents"].size(), 7u);
  EXPECT_EQ(trace.close(), "");
  auto events = nlohmann::json::parse(contents(path))["traceEvents"];
  ASSERT_EQ(events.size(), 10u);
  EXPECT_EQ(events[7]["id"], events[8]["id"]);
  EXPECT_EQ(events[9]["args"]["bytes"], 4096);
}

TEST_F(Trace, PathsThatCannotBeWrittenAreErrors) {
  TraceWriter trace;
  EXPECT_THAT(trace.open("/no/such/folder/trace.json"),
              testing::HasSubstr("cannot write trace /no/such/folder/trace.json: "));
  EXPECT_FALSE(trace.is_open());
}

} // namespace
} // namespace paratope
