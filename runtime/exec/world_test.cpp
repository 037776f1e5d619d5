// SPDX-License-Identifier: Apache-2.0
//
// Whole runs of hand-made plans against the one-rank reference: every exchange, every kind of engine, and
// what is said when a run goes wrong.
#include "runtime/exec/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "runtime/exec/test_plan.h"
#include "runtime/plan/check.h"
#include "runtime/trace/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace paratope {
namespace {

using test::make_plan;
using test::small_model;
using test::TestTopology;
using testing::HasSubstr;

RunOptions verified(int64_t steps) {
  RunOptions options;
  options.steps = steps;
  options.verify = true;
  options.timeout = std::chrono::seconds(20);
  return options;
}

std::string failures_of(const RunResult &result) {
  return fmt::format("{}\n{}", fmt::join(result.failures, "\n"), fmt::join(result.verify.problems, "\n"));
}

struct Case {
  const char *name;
  TestTopology topology;
  void (*change)(plan::Model &) = [](plan::Model &) {};
};

std::ostream &operator<<(std::ostream &out, const Case &each) { return out << each.name; }

void with_hyper_connections(plan::Model &m) { m.hyper_connections = 4; }
void with_engram(plan::Model &m) {
  m.hyper_connections = 2;
  m.engram_layers = {0, 1}, m.engram_ngram = 3, m.engram_heads = 2, m.engram_dim = 4,
  m.engram_vocab_per_head = 100;
}
void dense(plan::Model &m) {
  m.routed = m.top_k = m.shared = 0;
  m.dense_width = 24;
}
void ratio_one(plan::Model &m) { m.compress_ratios = {1, 3}, m.sink = false; }
void grouped_query(plan::Model &m) {
  m.attention = "gqa", m.kv_heads = 2, m.rope_dim = 16, m.compress_ratios.clear(), m.window = {0, 4};
}
void everything(plan::Model &m) {
  with_engram(m);
  m.layers = 3, m.window = {4, 4, 4}, m.compress_ratios = {0, 2, 1};
}

std::vector<Case> cases() {
  plan::Routing zipf, hot;
  zipf.kind = "zipf", zipf.s = 1.2, zipf.seed = 3;
  hot.kind = "hot", hot.expert = 5;
  return {
      {"one_rank", {.dp = 1}},
      {"two_stage", {.dp = 4}},
      {"two_stage_8_ranks_redundant", {.dp = 8, .engine_tokens = {2, 5, 1}, .redundant = 8}},
      {"synchronous", {.dp = 4, .asynchronous = false}},
      {"uneven_and_empty_engines", {.dp = 4, .engine_tokens = {5, 0, 1, 0}}},
      {"no_context", {.dp = 2, .context = 0}},
      {"long_context", {.dp = 2, .context = 23}},
      {"zipf_routing", {.dp = 4, .engine_tokens = {3, 0}, .redundant = 4, .routing = zipf}},
      {"hot_expert", {.dp = 8, .engine_tokens = {4}, .routing = hot}},
      {"all_gather", {.dp = 4, .exchange = "all-gather", .engine_tokens = {4, 1, 0}}},
      {"all_gather_redundant", {.dp = 2, .exchange = "all-gather", .redundant = 4}},
      {"tp_dense", {.dp = 2, .tp = 2, .exchange = "none", .engine_tokens = {3, 1}}, dense},
      {"tp_two_stage_split", {.dp = 2, .tp = 2, .engine_tokens = {3, 1}}},
      {"tp_all_gather_split", {.dp = 1, .tp = 2, .exchange = "all-gather"}},
      {"tp_placeholder", {.dp = 2, .tp = 2, .engine_tokens = {3, 0}}},
      {"hyper_connections", {.dp = 4}, with_hyper_connections},
      {"engram", {.dp = 4, .engine_tokens = {2, 3}}, with_engram},
      {"engram_synchronous_no_context", {.dp = 2, .context = 0, .asynchronous = false}, with_engram},
      {"compression_of_every_token", {.dp = 2, .context = 7}, ratio_one},
      {"gqa", {.dp = 2}, grouped_query},
      {"gqa_tp_2", {.dp = 2, .tp = 2, .engine_tokens = {3, 1}}, grouped_query},
      {"gqa_tp_4_on_2_kv_heads", {.dp = 2, .tp = 4, .engine_tokens = {3, 0}, .load = true}, grouped_query},
      {"og_gather_inputs", {.dp = 4, .og = 2, .engine_tokens = {3, 1, 0, 2}}},
      {"og_reduce_outputs", {.dp = 4, .og = 2, .reduce_outputs = true, .engine_tokens = {3, 1, 0, 2}}},
      {"og_synchronous", {.dp = 2, .og = 2, .asynchronous = false}},
      {"load_program", {.dp = 4, .engine_tokens = {2, 0}, .load = true}},
      {"table_only_ranks", {.dp = 4, .table_ranks = 4, .engine_tokens = {2, 3}, .load = true}, with_engram},
      {"table_only_ranks_tp",
       {.dp = 2, .tp = 2, .table_ranks = 1, .engine_tokens = {0, 3}, .asynchronous = false},
       with_engram},
      {"prefill", {.dp = 2, .engine_prompts = {{5, 1}, {3}}}},
      {"prefill_history", {.dp = 2, .engine_prompts = {{5, 1}, {3}}, .history = {7, 0, 2}}, everything},
      {"prefill_mirror_of_one", {.dp = 2, .engine_prompts = {{5, 1}}, .mirror = true}},
      {"prefill_cp_2", {.dp = 2, .cp = 2, .engine_prompts = {{1, 10, 3}, {7, 8}}}},
      {"prefill_cp_2_history",
       {.dp = 2, .cp = 2, .engine_prompts = {{1, 10, 3}, {7, 8}}, .history = {0, 5}},
       everything},
      {"prefill_cp_4", {.dp = 1, .cp = 4, .engine_prompts = {{1, 5, 17, 8}}, .load = true}, ratio_one},
      {"prefill_cp_4_placeholder",
       {.dp = 2, .cp = 4, .engine_prompts = {{}, {9, 2}}, .history = {3}, .asynchronous = false},
       everything},
      {"prefill_cp_all_gather", {.dp = 2, .cp = 2, .exchange = "all-gather", .engine_prompts = {{6, 1}, {}}}},
      {"prefill_cp_tp", {.dp = 2, .tp = 2, .cp = 2, .engine_prompts = {{6, 1}, {3}}}},
      {"prefill_cp_zipf_redundant",
       {.dp = 2, .cp = 2, .engine_prompts = {{6, 1}, {}}, .redundant = 4, .routing = zipf},
       with_hyper_connections},
      {"prefill_cp_gqa",
       {.dp = 1, .tp = 2, .cp = 2, .exchange = "none", .engine_prompts = {{9, 4}}, .history = {3}},
       [](plan::Model &m) { grouped_query(m), dense(m); }},
      {"prefill_og", {.dp = 4, .og = 2, .engine_prompts = {{6, 1}, {2}, {}, {3}}}},
      {"prefill_table_only_ranks",
       {.dp = 2, .cp = 2, .table_ranks = 4, .engine_prompts = {{6, 1}, {}}, .history = {2}, .load = true},
       everything},
  };
}

class Runs : public testing::TestWithParam<Case> {};

TEST_P(Runs, EqualTheReference) {
  plan::Model model = small_model();
  GetParam().change(model);
  plan::Plan plan = make_plan(model, GetParam().topology);
  for (const plan::Problem &problem : plan::check(plan))
    ADD_FAILURE() << problem.text();
  RunResult result = run_plan(plan, verified(4));
  EXPECT_TRUE(result.ok()) << failures_of(result);
  EXPECT_TRUE(result.verify.ok);
  EXPECT_EQ(result.steps, 4);
  EXPECT_GT(result.verify.tokens, 0);
  EXPECT_GT(result.verify.max_rel_error, 0); // float32 is not float64: nothing was compared with itself
  EXPECT_EQ(result.collectives_issued, result.collectives_expected);
  EXPECT_GT(result.collectives_issued, 0);
  EXPECT_EQ(result.sent, result.received);
}

INSTANTIATE_TEST_SUITE_P(Plans, Runs, testing::ValuesIn(cases()),
                         [](const auto &each) { return std::string(each.param.name); });

TEST(Run, CountsTokensPlaceholdersAndRows) {
  plan::Plan plan = make_plan(small_model(), {.dp = 4, .engine_tokens = {5, 0, 1, 0}});
  RunResult result = run_plan(plan, verified(2));
  EXPECT_EQ(result.tokens_per_step, 6);
  EXPECT_EQ(result.placeholders, 2);
  EXPECT_EQ(result.verify.tokens, 6 * 2);
  // 6 tokens and 2 placeholders, 2 experts each, 2 layers, 2 steps
  EXPECT_EQ(result.sent, 8 * 2 * 2 * 2);
  EXPECT_EQ(result.collectives_issued, (1 + 2 * 2) * 2);
  EXPECT_GT(result.sent_bytes, 0);
  EXPECT_EQ(result.step_times_us.size(), 2u);
}

TEST(Run, LoadsOnceAndReportsWhatEveryRankHas) {
  plan::Model model = small_model();
  with_engram(model);
  TestTopology topology{.dp = 2, .table_ranks = 2, .engine_tokens = {3, 0}, .context = 5, .load = true};
  RunResult result = run_plan(make_plan(model, topology), verified(2));
  EXPECT_TRUE(result.ok()) << failures_of(result);
  EXPECT_EQ(result.load_issued, 1 + 3 + 2); // pages, a warm-up a communicator, two tables' scales
  EXPECT_EQ(result.load_expected, result.load_issued);
  EXPECT_EQ(result.kv_blocks, 1); // the placeholder's engine; the other has 3 sequences of 2 pages
  auto json = nlohmann::json::parse(result_json(result));
  EXPECT_EQ(json["load"]["kv_blocks"], 1);
  EXPECT_EQ(json["load"]["issued"], 6);
  EXPECT_THAT(result_text(result), HasSubstr("1 KV pages on every rank"));
  result = run_plan(make_plan(model, {.dp = 2}), verified(1));
  EXPECT_TRUE(nlohmann::json::parse(result_json(result))["load"]["kv_blocks"].is_null());
}

TEST(Run, CountsTokensOfAPrefillOnEveryRankThatHoldsThem) {
  TestTopology topology{.dp = 2, .cp = 2, .engine_prompts = {{5, 1}, {}}};
  RunResult result = run_plan(make_plan(small_model(), topology), verified(3));
  EXPECT_TRUE(result.ok()) << failures_of(result);
  EXPECT_EQ(result.tokens_per_step, 6);
  EXPECT_EQ(result.placeholders, 1);
  EXPECT_EQ(result.verify.tokens, 6 * 2 * 3);  // two ranks hold each, three steps
  EXPECT_EQ(result.sent, (6 + 1) * 2 * 2 * 3); // padding is sent nowhere
}

// The bits of a run do not depend on how many ranks compute at a time.
TEST(Run, SameErrorForAnyNumberOfThreads) {
  plan::Plan plan = make_plan(small_model(), {.dp = 8, .engine_tokens = {2, 3}});
  std::vector<double> errors;
  for (int64_t threads : {1, 2, 3, 8}) {
    RunOptions options = verified(3);
    options.threads = threads;
    RunResult result = run_plan(plan, options);
    EXPECT_TRUE(result.ok()) << failures_of(result);
    errors.push_back(result.verify.max_rel_error);
  }
  for (double error : errors)
    EXPECT_EQ(error, errors[0]);
}

// ---- what goes wrong ----

struct Break {
  const char *name;
  void (*change)(plan::Plan &);
  const char *expected;
};

std::ostream &operator<<(std::ostream &out, const Break &each) { return out << each.name; }

plan::Instruction &first(plan::Plan &plan, const std::string &op) {
  for (plan::Instruction &instruction : plan.instructions)
    if (instruction.op == op)
      return instruction;
  throw std::logic_error("no " + op);
}

class Broken : public testing::TestWithParam<Break> {};

TEST_P(Broken, IsReported) {
  plan::Plan plan = make_plan(small_model(), {.dp = 4, .engine_tokens = {2}});
  GetParam().change(plan);
  RunResult result = run_plan(plan, verified(1));
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(failures_of(result), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Broken,
    testing::Values(
        Break{"ledger_short", [](plan::Plan &p) { p.ledger.pop_back(); },
              "got 2 combine over communicator 0 in 1 steps, expected 1 by the ledger"},
        Break{"ledger_long", [](plan::Plan &p) { p.ledger[0].times = 3; },
              "got 1 vote over communicator 0 in 1 steps, expected 3 by the ledger"},
        Break{"prompts", [](plan::Plan &p) { p.workload.phase = "prefill"; },
              "got no entries of engine_prompts, expected some for a prefill"},
        Break{"batch_of_billions", [](plan::Plan &p) { p.workload.engine_tokens = {1 << 30}; },
              "got 1073741824 tokens for engine 0 after 0 of those before it, expected at most 16777216 a "
              "step"},
        Break{"rows_of_a_buffer", [](plan::Plan &p) { p.buffers[0].rows = 1; },
              "step 0, instruction 2 batch (test.toml:3:1): got 2 rows for buffer ids, expected at most 1"},
        Break{"rows_of_experts",
              [](plan::Plan &p) { p.buffers[static_cast<size_t>(first(p, "dispatch").outputs[0])].rows = 1; },
              "dispatch"},
        Break{
            "weight_shape",
            [](plan::Plan &p) { p.buffers[static_cast<size_t>(first(p, "linear").outputs[0])].row_size = 8; },
            "got weight layers.0.attn.wq_a of shape [24, 32] on this rank, expected [8, 32]"},
        Break{"weight_seed", [](plan::Plan &p) { p.weights[2].name = "something.else"; },
              "outputs are not equal to the reference"},
        Break{"experts_swapped",
              [](plan::Plan &p) {
                std::swap(first(p, "expert_gate_up").weights[0], first(p, "expert_down").weights[0]);
              },
              "got weight layers.0.moe.w2 of shape [2, 32, 12] on this rank, expected [2, 2, 12, 32]"},
        Break{"eps", [](plan::Plan &p) { p.instructions[p.instructions.size() - 3].numbers["eps"] = 0.01; },
              "of hidden, expected at most 1e-05"},
        Break{"unwritten_rows",
              [](plan::Plan &p) { first(p, "add").inputs[1] = first(p, "lm_head").outputs[0]; },
              "instruction"},
        Break{"compress_ratio", [](plan::Plan &p) { first(p, "attention").numbers["ratio"] = 4; },
              "got ratio 4, expected the layer's 0"},
        Break{"no_axis_ep", [](plan::Plan &p) { p.axes[2].name = "other"; }, "got a plan without axis ep"},
        Break{"dispatch_over_tp", [](plan::Plan &p) { first(p, "dispatch").comm = 1; },
              "expected its block of axis ep"},
        Break{"fractional_attribute", [](plan::Plan &p) { first(p, "gate").numbers["top_k"] = 1.5; },
              "got top_k = 1.5, expected an integer"},
        Break{"unknown_score", [](plan::Plan &p) { first(p, "gate").words["score"] = "relu"; }, "relu"},
        Break{"huge_world", [](plan::Plan &p) { p.world = 1 << 20; },
              "got a world of 1048576 ranks, expected at most 4096"},
        Break{"rank_in_no_group",
              [](plan::Plan &p) {
                p.communicators[1].color = {{}, {0, 1, 2, -1}};
                first(p, "vote").comm = 1;
              },
              "rank 3 is in no group of communicator 1"},
        Break{"context", [](plan::Plan &p) { p.workload.context = int64_t{1} << 40; },
              "expected positions that fit 32 bits"}),
    [](const auto &each) { return std::string(each.param.name); });

class BrokenPrefill : public testing::TestWithParam<Break> {};

TEST_P(BrokenPrefill, IsReported) {
  plan::Model model = small_model();
  with_engram(model);
  plan::Plan plan =
      make_plan(model, {.dp = 2, .cp = 2, .table_ranks = 2, .engine_prompts = {{5, 1}}, .load = true});
  GetParam().change(plan);
  RunResult result = run_plan(plan, verified(1));
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(failures_of(result), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Plans, BrokenPrefill,
    testing::Values(
        Break{"load_ledger_short", [](plan::Plan &p) { p.ledger.pop_back(); },
              "got 2 gather_scales over communicator 3 at load, expected 1 by the ledger"},
        Break{"no_scales", [](plan::Plan &p) { p.load.pop_back(); },
              "got no scales of table 1 on this rank, expected a gather_scales over it at load"},
        Break{"scales_of_fewer_rows", [](plan::Plan &p) { p.load.back().numbers["rows_per_part"] = 1; },
              "engram_scale: got table row"},
        Break{"gathered_in_another_order",
              [](plan::Plan &p) { p.communicators[2].key = {{}, {1, 0, 1, 0, 0, 0}}; },
              "(rows gathered over the axis, by its blocks)"},
        Break{"mirror_of_rows_that_are_mirrored",
              [](plan::Plan &p) { first(p, "mirror_pick").inputs[0] = first(p, "mirror_pick").outputs[0]; },
              "expected one for each of the engine's 6 tokens"},
        Break{"append_of_mirrored_rows",
              [](plan::Plan &p) { first(p, "kv_append").inputs[0] = first(p, "all_gather").inputs[0]; },
              "got rows of layers.0.kv_rope in another order, expected the engine's tokens from "},
        Break{"restore_of_too_few",
              [](plan::Plan &p) { first(p, "mirror_restore").inputs[0] = first(p, "all_gather").inputs[0]; },
              "mirror_restore: got rows 6, expected 12"},
        Break{"history", [](plan::Plan &p) { p.workload.history = {int64_t{1} << 40}; },
              "expected positions that fit 32 bits"}),
    [](const auto &each) { return std::string(each.param.name); });

// One rank finds more rows than its neighbours, say by a plan that differs: no rank hangs, all say the same.
TEST(Run, AFailingRankStopsAllWithOneReport) {
  plan::Plan plan = make_plan(small_model(), {.dp = 4, .engine_tokens = {2, 2, 2, 2}});
  plan.workload.engine_tokens = {2, 2, 7, 2};
  RunOptions options = verified(1);
  options.timeout = std::chrono::hours(1);
  RunResult result = run_plan(plan, options);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_THAT(result.failures[0], HasSubstr("rank 2 failed: step 0, instruction 2 batch (test.toml:3:1): got "
                                            "7 rows for buffer ids, expected at most 2"));
  EXPECT_THAT(result.failures[0], HasSubstr("rank 2: failed, after vote #0 of group ep"));
}

TEST(Run, StopsAfterTheStepItIsIn) {
  plan::Plan plan = make_plan(small_model(), {.dp = 4});
  std::atomic<bool> stop{false};
  RunOptions options = verified(1000);
  options.stop = &stop;
  options.progress = [&](const std::string &line) {
    if (line == "step 3 of 1000")
      stop = true;
  };
  RunResult result = run_plan(plan, options);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps, 3);
  EXPECT_TRUE(result.ok()) << failures_of(result);
  EXPECT_FALSE(result.verify.done);
  EXPECT_EQ(result.collectives_issued, result.collectives_expected);
}

TEST(Run, TracesEveryInstructionOfEveryRankWithPairedArrows) {
  plan::Plan plan = make_plan(small_model(), {.dp = 2});
  std::string path = testing::TempDir() + "/paratope_run_trace.json";
  TraceWriter trace;
  ASSERT_EQ(trace.open(path), "");
  RunOptions options;
  options.steps = 2;
  options.trace = &trace;
  EXPECT_TRUE(run_plan(plan, options).ok());
  ASSERT_EQ(trace.close(), "");
  std::FILE *file = std::fopen(path.c_str(), "r");
  auto json = nlohmann::json::parse(file);
  std::fclose(file);
  std::remove(path.c_str());
  std::map<std::string, int64_t> events;
  int64_t last_bytes = -1;
  for (const auto &event : json["traceEvents"]) {
    ++events[event["ph"]];
    if (event["ph"] == "C")
      last_bytes = event["args"]["bytes"];
  }
  EXPECT_EQ(events["X"], static_cast<int64_t>(plan.instructions.size()) * 2 * 2);
  EXPECT_EQ(events["s"], 2 * 2 * 2); // layers, ranks, steps
  EXPECT_EQ(events["f"], events["s"]);
  EXPECT_EQ(last_bytes, 0);
}

// ---- results ----

TEST(Result, QuantilesAreNearestRank) {
  RunResult result;
  EXPECT_EQ(result.median_us(), 0);
  EXPECT_EQ(result.tokens_per_s(), 0);
  for (int i = 10; i >= 1; --i)
    result.step_times_us.push_back(i * 100);
  result.tokens_per_step = 8;
  EXPECT_EQ(result.median_us(), 500);
  EXPECT_EQ(result.p90_us(), 900);
  EXPECT_EQ(result.tokens_per_s(), 16000);
}

TEST(Result, JsonHoldsTheContractsKeysAndNeverNaN) {
  RunResult result;
  result.world = 2;
  result.verify.done = true;
  result.verify.max_rel_error = NAN;
  result.per_op = {{"linear", 3, 1.5}};
  auto json = nlohmann::json::parse(result_json(result));
  for (const char *key : {"backend", "world", "steps", "step_us", "tokens_per_s", "verify", "collectives",
                          "per_op", "conservation"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_TRUE(json["verify"]["max_rel_error"].is_null());
  EXPECT_EQ(json["verify"]["ok"], false);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["per_op"][0]["op"], "linear");
  result.verify.done = false;
  EXPECT_TRUE(nlohmann::json::parse(result_json(result))["verify"].is_null());
}

} // namespace
} // namespace paratope
