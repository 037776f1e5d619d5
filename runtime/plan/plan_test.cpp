// SPDX-License-Identifier: Apache-2.0
//
// A plan through JSON and back, and one changed value for every message reading a plan can give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "runtime/exec/test_plan.h"
#include "runtime/plan/batch.h"
#include "runtime/plan/check.h"
#include "runtime/plan/instruction_set.h"
#include "runtime/plan/plan_fields.h"
#include "runtime/plan/plan_json.h"

namespace paratope::plan {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Plan small_plan() {
  Model model = test::small_model();
  model.engram_layers = {1}, model.engram_ngram = 2, model.engram_heads = 1, model.engram_dim = 4,
  model.engram_vocab_per_head = 50;
  return test::make_plan(model, {.dp = 2, .tp = 2, .exchange = "all-gather"});
}

std::string texts(const std::vector<Problem> &problems) {
  std::string all;
  for (const Problem &problem : problems)
    all += problem.text() + "\n";
  return all;
}

TEST(DigitSum, AddsDigitsOrReadsItsTable) {
  DigitSum sum{{{4, 4, 1}, {1, 2, 10}}, {}};
  EXPECT_EQ(sum(13), 3 + 10);
  EXPECT_EQ(sum(0), 0);
  EXPECT_EQ(DigitSum{}(5), 0);
  EXPECT_EQ((DigitSum{{}, {5, -1, 7}}(1)), -1);
}

TEST(PlanJson, RoundTripsExactly) {
  Plan plan = small_plan();
  plan.topology = "quote \" backslash \\ newline \n ü";
  plan.notes = {"", "a note"};
  plan.model.seed = INT64_MAX;
  plan.model.weights = "safetensors:a directory/ü";
  plan.ledger[0].predicted_us = 0.1;
  plan.instructions[2].numbers["x"] = 0; // removed below: not an attribute
  plan.instructions[2].numbers.clear();
  plan.model.rms_eps = 1e-20;
  plan.model.scaling = -0.0;
  plan.communicators[1].color = {{}, {0, 0, -1, -1}};
  plan.communicators[1].key = {{}, {0, 1, -1, -1}};
  plan.communicators[1].count = 1;
  std::string text = write_json(plan);
  ReadResult read = read_json(text);
  EXPECT_EQ(texts(read.problems), "");
  EXPECT_TRUE(read.plan == plan);
  EXPECT_TRUE(std::signbit(read.plan.model.scaling));
  EXPECT_EQ(write_json(read.plan), text);                          // deterministic
  EXPECT_THAT(text, HasSubstr("\n    {\"id\":0,\"op\":\"vote\"")); // one instruction a line
  EXPECT_THAT(text, Not(HasSubstr("\"awaits\":-1")));              // defaults are left out
}

TEST(PlanJson, TextThatIsNotUtf8IsWrittenAsReplacementCharacters) {
  Plan plan = small_plan();
  plan.source = "caf\xe9.toml";
  EXPECT_EQ(read_json(write_json(plan)).plan.source, "caf\xef\xbf\xbd.toml");
}

// One value of a good plan changed (or removed), and what is said about it.
struct Change {
  const char *path;
  const char *value; // JSON; nullptr removes the key
  const char *expected;
};

std::ostream &operator<<(std::ostream &out, const Change &change) {
  return out << change.path << " = " << (change.value ? change.value : "(none)");
}

class Rejected : public testing::TestWithParam<Change> {};

TEST_P(Rejected, SaysWhere) {
  json document = json::parse(write_json(small_plan()));
  json::json_pointer path(GetParam().path);
  if (GetParam().value)
    document[path] = json::parse(GetParam().value);
  else
    document[path.parent_pointer()].erase(path.back());
  ReadResult read = read_json(document.dump());
  EXPECT_FALSE(read.ok());
  EXPECT_THAT(texts(read.problems), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Form, Rejected,
    testing::Values(
        Change{"/version", "2", "/version: got plan version 2, expected 1 (compile the topology again"},
        Change{"/version", "\"1\"", "/version: got \"1\", expected a 64-bit integer"},
        Change{"/version", nullptr, "got no \"version\", expected one"},
        Change{"/world", "4.5", "/world: got 4.5, expected a 64-bit integer"},
        Change{"/world", "9223372036854775808", "/world: got 9223372036854775808, expected a 64-bit integer"},
        Change{"/nmae", "1", "/nmae: got an unknown key, expected one of version, tool,"},
        Change{"/buffers/0/roows", "1",
               "/buffers/0/roows: got an unknown key, expected one of id, name, dtype,"},
        Change{"/buffers/1", "[]", "/buffers/1: got a list, expected an object"},
        Change{"/buffers", "{}", "/buffers: got an object, expected a list"},
        Change{"/sizes", "3", "/sizes: got 3, expected an object"},
        Change{"/model/sink", "0", "/model/sink: got 0, expected true or false"},
        Change{"/model/name", "null", "/model/name: got null, expected a string"},
        Change{"/model/rms_eps", "\"x\"", "/model/rms_eps: got \"x\", expected a number"},
        Change{"/instructions/0/numbers", "{\"a/b~c\":\"x\"}",
               "/instructions/0/numbers/a~1b~0c: got \"x\", expected a number"},
        Change{
            "/instructions/0/numbers", "{\"value\":9007199254740993}",
            "/instructions/0/numbers/value: got 9007199254740993, expected an integer no larger than 2^53"}));

INSTANTIATE_TEST_SUITE_P(
    World, Rejected,
    testing::Values(
        Change{"/world", "0", "/world: got 0, expected at least 1"},
        Change{"/axes/1/name", "\"dp\"", "/axes/1/name: got axis \"dp\" twice, expected different names"},
        Change{"/axes/0/size", "0", "/axes/0/size: got 0, expected at least 1"},
        Change{"/axes/0/size", "1", "/axes/0/block: got block 1 for rank 2, expected 0 to 0"},
        Change{"/axes/0/block/digits/0/div", "0",
               "/axes/0/block/digits/0: got div 0 and mod 2, expected both at least 1"},
        Change{"/axes/0/block/digits/0/mul", "9223372036854775807",
               "/axes/0/block/digits/0/mul: got 9223372036854775807, expected a factor whose sums fit"},
        Change{"/axes/0/block/table", "[0,1]", "/axes/0/block: got both digits and a table"},
        Change{"/axes/0/block", "{\"table\":[0,1]}",
               "/axes/0/block/table: got 2 values, expected one a rank: 4"},
        Change{"/engine_axis", "\"pp\"", "/engine_axis: got axis \"pp\", expected one of dp, tp, ep"},
        Change{"/sizes/dp", "0", "/sizes/dp: got 0, expected at least 1"},
        Change{"/communicators/1/id", "7",
               "/communicators/1/id: got 7, expected 1 (ids count from 0 in order)"},
        Change{"/communicators/0/isolation", "\"both\"",
               "/communicators/0/isolation: got \"both\", expected one of data, control, prefetch"},
        Change{"/communicators/0/backend", "\"mpi\"",
               "/communicators/0/backend: got \"mpi\", expected one of host, nccl, gloo"},
        Change{"/communicators/0/size", "0", "/communicators/0/size: got 0, expected at least 1"},
        Change{"/communicators/0/count", "2",
               "/communicators/0: got 2 groups of 4, expected no more ranks than world = 4"},
        Change{"/communicators/0/count", "9223372036854775807",
               "/communicators/0: got 9223372036854775807 groups of 4"},
        Change{"/communicators/1/count", "1",
               "/communicators/1/color: got more than 1 colors, expected count = 1 of them: 1 of rank 2"},
        Change{"/communicators/1/key", "{\"digits\":[{\"div\":1,\"mod\":4,\"mul\":1}]}",
               "/communicators/1/key: got key 2 for rank 2, expected 0 to 1"},
        Change{"/communicators/1/key", "{}",
               "/communicators/1: got ranks 0 and 1 with color 0 and key 0, expected one rank"},
        Change{"/communicators/1/color", "{\"table\":[0,0,-1,-1]}",
               "/communicators/1: got 2 ranks in its groups, expected 2 groups of 2"}));

INSTANTIATE_TEST_SUITE_P(
    Model, Rejected,
    testing::Values(
        Change{"/model/hidden", "0", "/model/hidden: got 0, expected at least 1"},
        Change{"/model/vocab", "4294967296",
               "/model/vocab: got 4294967296, expected at most 2147483647 (ids are i32)"},
        Change{"/model/attention", "\"mqa\"",
               "/model/attention: got \"mqa\", expected one of latent, mla, gqa"},
        Change{"/model/weights", "\"safetensors:\"",
               "/model/weights: got \"safetensors:\", expected synthetic or safetensors:DIR"},
        Change{"/model/window", "[4]", "/model/window: got 1 entries, expected one a layer: 2"},
        Change{"/model/compress_ratios/1", "-2", "/model/compress_ratios/1: got -2, expected at least 0"},
        Change{"/model/top_k", "9", "/model/top_k: got 9, expected 1 to routed = 8"},
        Change{"/model/engram_layers/0", "2", "/model/engram_layers/0: got 2, expected a layer from 0 to 1"},
        Change{"/kv_block_tokens", "0", "/kv_block_tokens: got 0, expected at least 1"},
        Change{"/workload/phase", "\"train\"",
               "/workload/phase: got \"train\", expected one of decode, prefill"},
        Change{"/workload/engine_tokens", "[]", "/workload/engine_tokens: got no entries"},
        Change{"/workload/engine_tokens/0", "-1", "/workload/engine_tokens/0: got -1, expected at least 0"},
        Change{"/workload/context", "-1", "/workload/context: got -1, expected at least 0"},
        Change{"/workload/routing/kind", "\"best\"",
               "/workload/routing/kind: got \"best\", expected one of gate, uniform"},
        Change{"/workload/routing", "{\"kind\":\"hot\",\"expert\":8}",
               "/workload/routing/expert: got 8, expected a logical expert from 0 to 7"},
        Change{"/experts/slots", "[0]", "/experts/slots: got 1 slots, expected physical = 8"},
        Change{"/experts/slots/3", "8", "/experts/slots/3: got 8, expected a logical expert from 0 to 7"},
        Change{"/experts/slots/3", "2",
               "/experts/slots: got no slot for expert 3, expected every expert in at least one"},
        Change{"/experts/local", "4", "/experts/local: got 4, expected physical / ep = 8 / 4"},
        Change{"/experts/logical", "7", "/experts/logical: got 7, expected the model's routed = 8"}));

INSTANTIATE_TEST_SUITE_P(
    Memory, Rejected,
    testing::Values(
        Change{"/arena_bytes/activation", "-1", "/arena_bytes/activation: got -1, expected at least 0"},
        Change{"/arena_bytes/activation", "64", ", expected at most arena activation's 64 bytes"},
        Change{"/buffers/0/id", "1", "/buffers/0/id: got 1, expected 0"},
        Change{"/buffers/0/dtype", "\"f16\"", "/buffers/0/dtype: got \"f16\", expected one of f32, i32, i64"},
        Change{"/buffers/0/rows", "0", "/buffers/0/rows: got 0, expected at least 1"},
        Change{"/buffers/0/rows", "4611686018427387904",
               "/buffers/0: got 4611686018427387904 rows of 1 i32 at 0, expected a size that fits 64 bits"},
        Change{"/buffers/0/row_size", "-4", "/buffers/0/row_size: got -4, expected at least 1"},
        Change{"/buffers/0/bytes", "4",
               "/buffers/0/bytes: got 4, expected at least rows * row_size * 4 = 12"},
        Change{"/buffers/0/offset", "-64", "/buffers/0/offset: got -64, expected at least 0"},
        Change{"/buffers/0/offset", "2", "/buffers/0/offset: got 2, expected a multiple of 4 for i32"},
        Change{"/buffers/0/arena", "\"heap\"", "/buffers/0/arena: got \"heap\", expected one of activation"},
        Change{"/weights/0/id", "3", "/weights/0/id: got 3, expected 0"},
        Change{"/weights/0/name", "\"\"", "/weights/0/name: got an empty name"},
        Change{"/weights/0/init", "\"ones\"",
               "/weights/0/init: got \"ones\", expected one of normal, gain, bias, hc_scale"},
        Change{"/weights/0/fan_in", "0", "/weights/0/fan_in: got 0, expected at least 1"},
        Change{"/weights/0/shape", "[]", "/weights/0/shape: got no dims, expected at least one"},
        Change{"/weights/0/shape/1", "0", "/weights/0/shape/1: got 0, expected at least 1"},
        Change{"/weights/0/shape", "[4294967296, 4294967296]",
               "/weights/0/shape: got [4294967296, 4294967296], expected a size in bytes that fits 64 bits"},
        Change{"/weights/0/splits", "[{\"dim\":0,\"axis\":\"pp\"}]",
               "/weights/0/splits/0/axis: got axis \"pp\", expected one of dp, tp, ep"},
        Change{"/weights/0/splits", "[{\"dim\":2,\"axis\":\"tp\"}]",
               "/weights/0/splits/0/dim: got 2, expected a dim from 0 to 1"},
        Change{"/weights/0/splits", "[{\"dim\":1,\"axis\":\"tp\"},{\"dim\":1,\"axis\":\"dp\"}]",
               "/weights/0/splits/1/dim: got dim 1 twice"},
        Change{"/weights/0/splits", "[{\"dim\":0,\"axis\":\"tp\"}]",
               "/weights/0/splits/0: got 61 not divisible by axis tp of size 2"},
        Change{"/weights/0/splits", "[{\"dim\":0,\"axis\":\"ep\",\"by_slots\":true}]",
               "/weights/0/splits/0: got a dim of 61 cut by slots, expected the 8 logical experts"},
        Change{"/ledger/0/comm", "9", "/ledger/0/comm: got 9, expected a communicator from 0 to 1"},
        Change{"/ledger/0/ranks", "0", "/ledger/0/ranks: got 0, expected at least 1"},
        Change{"/ledger/0/times", "-1", "/ledger/0/times: got -1, expected at least 0"},
        Change{"/ledger/0/bytes_per_rank", "-1", "/ledger/0/bytes_per_rank: got -1"},
        Change{"/ledger/0/category", "\"other\"",
               "/ledger/0/category: got \"other\", expected one of dense, exchange, control, fetch, context, "
               "load"}));

// Instructions 0 to 5: vote, await, batch, engram_hash, fetch, embed.
INSTANTIATE_TEST_SUITE_P(
    Instructions, Rejected,
    testing::Values(
        Change{"/instructions", "[]", "/instructions: got none, expected a program"},
        Change{"/instructions/2/id", "5", "/instructions/2/id: got 5, expected 2"},
        Change{"/instructions/2/op", "\"batches\"",
               "/instructions/2/op: got unknown op \"batches\", expected one of batch, embed,"},
        Change{"/instructions/2/outputs", "[0]",
               "/instructions/2/outputs: got 1 outputs for batch, expected 2"},
        Change{"/instructions/2/outputs/1", "999",
               "/instructions/2/outputs/1: got 999, expected a buffer from 0 to"},
        Change{"/instructions/5/inputs/0", "-1",
               "/instructions/5/inputs/0: got -1, expected a buffer from 0 to"},
        Change{"/instructions/5/outputs/0", "0",
               "/instructions/5/outputs/0: got i32 ids as x of embed, expected f32"},
        Change{"/instructions/5/weights", "[]",
               "/instructions/5/weights: got 0 weights for embed, expected 1"},
        Change{"/instructions/5/weights/0", "500",
               "/instructions/5/weights/0: got 500, expected a weight from 0 to"},
        Change{"/instructions/5/numbers", "{\"eps\":1}",
               "/instructions/5/numbers/eps: got an attribute embed does not take, expected none"},
        Change{"/instructions/4/numbers", "{\"table\":0}",
               "/instructions/4: got no number \"rows_per_part\", expected one for fetch"},
        Change{"/instructions/4/numbers/colour", "1",
               "/instructions/4/numbers/colour: got an attribute fetch does not take, expected one of table, "
               "rows_per_part, async"},
        Change{"/instructions/4/comm", "2",
               "/instructions/4/comm: got 2, expected a communicator from 0 to 1"},
        Change{"/instructions/4/comm", nullptr,
               "/instructions/4/comm: got -1, expected a communicator from 0 to 1"},
        Change{"/instructions/5/comm", "0",
               "/instructions/5/comm: got 0 on embed, expected a communicator only on collectives"},
        Change{"/instructions/3/layer", "2", "/instructions/3/layer: got 2, expected a layer from 0 to 1"},
        Change{"/instructions/5/stream", "\"main\"",
               "/instructions/5/stream: got \"main\", expected one of compute, exchange, prefetch, control"},
        Change{"/instructions/5/waits", "[5]",
               "/instructions/5/waits/0: got 5, expected an instruction before 5"},
        Change{"/instructions/5/awaits", "4",
               "/instructions/5/awaits: got 4 on embed, expected awaits only on await"},
        Change{"/instructions/1/awaits", "1",
               "/instructions/1/awaits: got 1, expected a collective before 1"},
        Change{"/instructions/1/awaits", nullptr,
               "/instructions/1/awaits: got -1, expected a collective before 1"},
        Change{"/instructions/1/outputs", "[0]",
               "/instructions/1/outputs: got [0], expected the outputs of collective 0: []"},
        Change{"/instructions/0/numbers", "{\"async\":0}",
               "/instructions/1/awaits: got 0, which is not in flight"},
        Change{"/instructions/5/inputs/0", "3", "/instructions/5/inputs/0: got"}));

TEST(Check, KernelsAreRunsOfInstructions) {
  auto problems_with = [](std::vector<Kernel> kernels) {
    Plan plan = small_plan();
    plan.kernels = std::move(kernels);
    return texts(check(plan));
  };
  int64_t last = static_cast<int64_t>(small_plan().instructions.size()) - 1;
  EXPECT_EQ(problems_with({{"a", 0, 2}, {"b", 2, 2}, {"c", last - 1, 2}}), "");
  EXPECT_THAT(problems_with({{"a", 4, 2}, {"b", 5, 2}}),
              HasSubstr(fmt::format("/kernels/1/first: got 5, expected an instruction from 6 to {}", last)));
  EXPECT_THAT(problems_with({{"a", -1, 2}}),
              HasSubstr("/kernels/0/first: got -1, expected an instruction from 0"));
  EXPECT_THAT(
      problems_with({{"a", last, 2}}),
      HasSubstr(fmt::format("/kernels/0/count: got 2 from instruction {}, expected at most 1", last)));
  EXPECT_THAT(problems_with({{"a", 0, 1}}),
              HasSubstr("/kernels/0/count: got 1, expected at least 2 instructions"));
  EXPECT_THAT(problems_with({{"", 0, 2}}),
              HasSubstr("/kernels/0/fusion: got an empty name, expected the fusion's"));

  Plan plan = small_plan();
  plan.kernels = {{"a", 1, 2}, {"b", 5, 3}};
  std::string of_each;
  for (int64_t id = 0; id < 9; ++id)
    of_each += fusion_of(plan, id).empty() ? "-" : fusion_of(plan, id);
  EXPECT_EQ(of_each, "-aa--bbb-");
}

// What needs more than one value changed.
TEST(Check, FollowsTheProgram) {
  auto problems_after = [](auto change) {
    Plan plan = small_plan();
    change(plan);
    return texts(check(plan));
  };
  auto index = [](const Plan &plan, std::string_view op) {
    for (const Instruction &i : plan.instructions)
      if (i.op == op)
        return static_cast<size_t>(i.id);
    throw std::logic_error("no such op");
  };
  EXPECT_THAT(problems_after([&](Plan &p) {
                p.instructions[index(p, "embed")].inputs[0] = p.instructions[index(p, "argmax")].outputs[0];
              }),
              HasSubstr("got next, which nothing has written yet"));
  EXPECT_THAT(problems_after([&](Plan &p) {
                size_t reduce = index(p, "all_reduce");
                p.instructions[reduce + 1].op = "add"; // reads what is still in flight, and nothing awaits it
                p.instructions[reduce + 1].awaits = -1;
                p.instructions[reduce + 1].inputs = {p.instructions[reduce].outputs[0],
                                                     p.instructions[reduce].outputs[0]};
                p.instructions[reduce + 1].outputs = p.instructions[reduce].inputs;
              }),
              testing::AllOf(HasSubstr("is still writing; await it first"),
                             HasSubstr("got all_reduce that nothing awaits, expected one await")));
  EXPECT_THAT(problems_after([&](Plan &p) {
                size_t reduce = index(p, "all_reduce");
                p.instructions[reduce].op = "linear";
              }),
              HasSubstr("(linear), expected a collective"));
  EXPECT_THAT(problems_after([&](Plan &p) { p.instructions[index(p, "all_gather")].outputs.pop_back(); }),
              HasSubstr("got 2 outputs of all_gather, expected one an input: 3"));
  EXPECT_THAT(problems_after([&](Plan &p) { p.instructions[index(p, "reduce_scatter")].numbers["of"] = 0; }),
              HasSubstr("/numbers/of: got 0, expected an all_gather, or an all_to_all of columns, before"));
  EXPECT_THAT(problems_after([&](Plan &p) { p.instructions[index(p, "reduce_scatter")].comm = 1; }),
              HasSubstr("/comm: got 1, expected that of instruction 28, whose rows come back: 0"));
  EXPECT_THAT(problems_after([&](Plan &p) { p.instructions[index(p, "gate")].words["score"] = "relu"; }),
              HasSubstr("/words/score: got \"relu\", expected one of sqrtsoftplus, sigmoid, softmax"));
  EXPECT_THAT(problems_after([&](Plan &p) { p.instructions[index(p, "gate")].words.clear(); }),
              HasSubstr("got no word \"score\", expected one for gate"));
  EXPECT_THAT(problems_after([&](Plan &p) { p.instructions[index(p, "slice_rows")].words["axis"] = "pp"; }),
              HasSubstr("/words/axis: got axis \"pp\""));
  EXPECT_THAT(
      problems_after([&](Plan &p) { p.instructions[index(p, "gate")].numbers["scaling"] = INFINITY; }),
      HasSubstr("/numbers/scaling: got inf, expected a finite number"));
  EXPECT_THAT(problems_after([](Plan &p) { p.version = 0; }), HasSubstr("/version: got plan version 0"));
  EXPECT_THAT(problems_after([](Plan &p) { p.instructions[0].id = 1; }),
              HasSubstr("/instructions/0/id: got 1, expected 0"));
}

// One change of a plan with context parallelism, output groups, table-only ranks and a load program.
Plan prefill_plan(const test::TestTopology &topology) {
  Model model = test::small_model();
  model.engram_layers = {0, 1}, model.engram_ngram = 2, model.engram_heads = 1, model.engram_dim = 4,
  model.engram_vocab_per_head = 50;
  return test::make_plan(model, topology);
}

TEST(Check, FollowsAPrefill) {
  auto problems_after = [](auto change, bool og = false) {
    Plan plan = og ? prefill_plan({.dp = 4, .og = 2})
                   : prefill_plan({.dp = 2,
                                   .cp = 2,
                                   .table_ranks = 2,
                                   .engine_prompts = {{5, 1}, {}},
                                   .history = {0, 3},
                                   .load = true});
    change(plan);
    return texts(check(plan));
  };
  auto first = [](Plan &plan, std::string_view op, size_t skip = 0) -> Instruction & {
    for (std::vector<Instruction> *program : {&plan.load, &plan.instructions})
      for (Instruction &i : *program)
        if (i.op == op && skip-- == 0)
          return i;
    throw std::logic_error("no such op");
  };
  for (bool og : {false, true})
    EXPECT_EQ(problems_after([](Plan &) {}, og), "");
  Plan plan = prefill_plan({.dp = 2, .cp = 2, .engine_prompts = {{5, 1}, {}}, .history = {3}, .load = true});
  EXPECT_TRUE(read_json(write_json(plan)).plan == plan);

  struct Wrong {
    std::function<void(Plan &)> change;
    const char *expected;
    bool og = false;
  };
  for (const Wrong &each : {
           Wrong{[](Plan &p) { p.serving_ranks = -1; },
                 "/serving_ranks: got -1, expected 0 (all) to world = 6"},
           Wrong{[](Plan &p) { p.serving_ranks = 7; },
                 "/serving_ranks: got 7, expected 0 (all) to world = 6"},
           Wrong{[](Plan &p) { p.axes[0].block = {{}, {0, 0, 2, 2, 1, 1}}; },
                 "/engine_axis: got no serving rank in engine 1 of axis dp, expected one in each before 2"},
           Wrong{[](Plan &p) { p.workload.engine_prompts.clear(); },
                 "/workload/engine_prompts: got no entries, expected prompts of at least one engine"},
           Wrong{[](Plan &p) { p.workload.engine_prompts[0][1] = 0; },
                 "/workload/engine_prompts/0/1: got 0, expected at least 1"},
           Wrong{[](Plan &p) { p.workload.history[1] = -2; },
                 "/workload/history/1: got -2, expected at least 0"},
           Wrong{[&](Plan &p) { first(p, "mirror_pick").outputs.pop_back(); },
                 "got 1 outputs of mirror_pick, expected one an input: 2"},
           Wrong{[&](Plan &p) { first(p, "mirror_restore").words["axis"] = "pp"; },
                 "/words/axis: got axis \"pp\""},
           Wrong{[&](Plan &p) { first(p, "vote").comm = 3; },
                 "/comm: got vote over communicator 3, which has table-only rank 4 in one group with serving "
                 "rank 0, expected serving ranks alone"},
           Wrong{[&](Plan &p) { std::erase_if(p.load, [](auto &i) { return i.op == "gather_scales"; }); },
                 "got no gather_scales of table 0 in load, expected one"},
           Wrong{[&](Plan &p) { first(p, "fetch").numbers["rows_per_part"] = 7; },
                 "/numbers/rows_per_part: got 7, expected that of the table's gather_scales: "},
           Wrong{[&](Plan &p) { first(p, "fetch").numbers["rows_per_part"] = 0.5; },
                 "/numbers/rows_per_part: got 0.5, expected an integer of at least 1"},
           Wrong{[&](Plan &p) { first(p, "fetch").numbers["table"] = 2; },
                 "/numbers/table: got 2, expected a table from 0 to 1"},
           Wrong{[&](Plan &p) { first(p, "fetch").comm = 0; },
                 "/comm: got a fetch from 4 owners, expected the 6 of the table's gather_scales"},
           Wrong{[&](Plan &p) { first(p, "gather_scales").layer = 1; },
                 "/layer: got 1, expected the layer of table 0: 0"},
           Wrong{[&](Plan &p) { first(p, "gather_scales", 1) = first(p, "gather_scales"); },
                 "/numbers/table: got table 0 twice, expected each table's scales once"},
           Wrong{[&](Plan &p) { first(p, "warm_up").numbers.clear(); },
                 "/load/1/numbers/async: got a collective that an await would complete"},
           Wrong{[&](Plan &p) { first(p, "warm_up").comm = 9; },
                 "/load/1/comm: got 9, expected a communicator"},
           Wrong{[&](Plan &p) { first(p, "warm_up").waits = {0}; },
                 "/load/1: got waits or awaits, expected none"},
           Wrong{[&](Plan &p) { first(p, "warm_up").weights = {0}; },
                 "/load/1/weights: got 1 weights for warm_up, expected 0"},
           Wrong{[&](Plan &p) { first(p, "warm_up").id = 4; }, "/load/1/id: got 4, expected 1"},
           Wrong{[&](Plan &p) { first(p, "warm_up").op = "vote"; },
                 "/load/1/op: got \"vote\", expected one of kv_blocks, warm_up, gather_scales"},
           Wrong{[&](Plan &p) { first(p, "vote").op = "warm_up"; },
                 "/instructions/0/op: got warm_up in a step, expected it in load"},
           Wrong{[&](Plan &p) { first(p, "all_to_all").words["split"] = "both"; },
                 "/words/split: got \"both\", expected one of columns, rows", true},
           Wrong{[&](Plan &p) { first(p, "all_to_all").numbers["of"] = 0; },
                 "/numbers/of: got one for an all_to_all of columns, expected none", true},
           Wrong{[&](Plan &p) { first(p, "all_to_all", 1).numbers.clear(); },
                 "/numbers/of: got none for an all_to_all of rows, expected the all_to_all of columns it "
                 "undoes",
                 true},
           Wrong{[&](Plan &p) { first(p, "all_to_all", 1).numbers["of"] = 2; },
                 "/numbers/of: got 2, expected an all_to_all of columns before", true},
       })
    EXPECT_THAT(problems_after(each.change, each.og), HasSubstr(each.expected)) << each.expected;
}

TEST(Batch, NumbersSequencesAndTokensOverEngines) {
  Workload w;
  w.phase = "prefill";
  w.engine_prompts = {{3, 2}, {}, {4}};
  w.history = {10, 20};
  const Batch batch = batch_of(w, 4); // the fourth engine is as the first
  EXPECT_EQ(batch.tokens, 3 + 2 + 4 + 3 + 2);
  EXPECT_EQ(batch.first_sequence, (std::vector<int64_t>{0, 2, 2, 3, 5}));
  EXPECT_EQ(batch.sequences[1], (Sequence{20, 2, 3}));
  EXPECT_TRUE(batch.of_engine(1).empty());
  EXPECT_EQ(batch.of_engine(2)[0], (Sequence{10, 4, 5}));
  EXPECT_EQ(batch.of_engine(3)[0], (Sequence{10, 3, 9}));
  for (int64_t token : {0, 1, 2})
    EXPECT_EQ(batch.sequence_of(token), 0);
  EXPECT_EQ(batch.sequence_of(4), 1);
  EXPECT_EQ(batch.sequence_of(5), 2);
  EXPECT_EQ(batch.sequence_of(13), 4);
  EXPECT_EQ(batch.sequences[1].position(2, 1), 20 + 2 * 2 + 1);
  w.phase = "decode";
  w.engine_tokens = {2, 0};
  w.context = 7;
  const Batch decode = batch_of(w, 3);
  EXPECT_EQ(decode.tokens, 4);
  EXPECT_EQ(decode.sequences[3], (Sequence{7, 1, 3}));
  EXPECT_EQ(decode.sequence_of(3), 3);
}

TEST(PlanJson, BrokenTextSaysTheLine) {
  EXPECT_THAT(texts(read_json("").problems), HasSubstr("not JSON, line 1: parse error"));
  EXPECT_THAT(texts(read_json("{\n\"version\": 1,\n oops}").problems),
              HasSubstr("not JSON, line 3: parse error"));
  EXPECT_THAT(texts(read_json("[1]").problems), HasSubstr("got a list, expected an object"));
  EXPECT_THAT(texts(read_json(R"({"version":1,"world":2,"world":3})").problems),
              HasSubstr("got a key twice in one object: \"world\""));
  EXPECT_THAT(texts(read_json(std::string(100000, '[')).problems), HasSubstr("not JSON"));
}

// Every prefix of a plan, and every plan with one byte gone, is refused or read; neither may crash.
TEST(PlanJson, SurvivesDamage) {
  std::string text = write_json(test::make_plan(test::small_model(), {.dp = 1}));
  for (size_t cut = 0; cut + 3 < text.size(); cut += 97)
    EXPECT_FALSE(read_json(text.substr(0, cut)).ok()) << cut;
  size_t refused = 0;
  for (size_t at = 0; at < text.size(); at += 53)
    refused += !read_json(text.substr(0, at) + text.substr(at + 1)).ok();
  EXPECT_GT(refused, 0u);
}

TEST(PlanJson, ReportsAtMostFiftyProblems) {
  Plan plan = small_plan();
  for (Buffer &buffer : plan.buffers)
    buffer.rows = 0;
  for (Weight &weight : plan.weights)
    weight.fan_in = 0;
  EXPECT_EQ(check(plan).size(), max_problems);
}

// ---- the instruction set and the schema ----

TEST(InstructionSet, NamesOperandsByHowManyThereAre) {
  const Operation *compress = find_operation("compress_append");
  ASSERT_NE(compress, nullptr);
  EXPECT_EQ(Operation::count_text(compress->inputs), "2 or 3");
  EXPECT_EQ(operand_at(compress->inputs, 2, 1).name, "positions");
  EXPECT_EQ(operand_at(compress->inputs, 3, 1).name, "g");
  const Operation *gather = find_operation("all_gather");
  EXPECT_EQ(Operation::count_text(gather->inputs), "at least 1");
  EXPECT_TRUE(Operation::accepts(gather->inputs, 5));
  EXPECT_FALSE(Operation::accepts(gather->inputs, 0));
  EXPECT_EQ(find_operation("batches"), nullptr);
}

json schema() { return json::parse(std::ifstream(PARATOPE_SOURCE_DIR "/runtime/plan/plan.schema.json")); }

// plan.schema.json is written by hand; its keys are plan.h's.
template <class T> void expect_described(const json &object, const char *name) {
  std::set<std::string> keys, required, schema_keys, schema_required;
  T value;
  describe(&value, [&](const char *key, auto, bool is_required) {
    keys.insert(key);
    if (is_required)
      required.insert(key);
  });
  for (const auto &[key, unused] : object["properties"].items())
    schema_keys.insert(key);
  for (const auto &key : object["required"])
    schema_required.insert(key);
  EXPECT_EQ(keys, schema_keys) << name;
  EXPECT_EQ(required, schema_required) << name;
  EXPECT_EQ(object["additionalProperties"], false) << name;
}

TEST(Schema, HasTheKeysOfThePlan) {
  json s = schema();
  expect_described<Plan>(s, "plan");
  const json &defs = s["$defs"];
  expect_described<Digit>(defs["digit"], "digit");
  expect_described<DigitSum>(defs["digit_sum"], "digit_sum");
  expect_described<Axis>(defs["axis"], "axis");
  expect_described<Communicator>(defs["communicator"], "communicator");
  expect_described<Buffer>(defs["buffer"], "buffer");
  expect_described<WeightSplit>(defs["split"], "split");
  expect_described<Weight>(defs["weight"], "weight");
  expect_described<Instruction>(defs["instruction"], "instruction");
  expect_described<LedgerEntry>(defs["ledger_entry"], "ledger_entry");
  expect_described<Model>(defs["model"], "model");
  expect_described<Routing>(defs["routing"], "routing");
  expect_described<Workload>(defs["workload"], "workload");
  expect_described<Experts>(defs["experts"], "experts");
  std::vector<std::string> ops;
  for (const Operation &op : instruction_set())
    ops.emplace_back(op.name);
  EXPECT_EQ(defs["op"]["enum"].get<std::vector<std::string>>(), ops);
}

TEST(Schema, AcceptsAPlanAndRefusesAChangedOne) {
  const char *validator = R"(import json, sys, jsonschema
schema = json.load(open(sys.argv[1])); jsonschema.Draft202012Validator.check_schema(schema)
sys.exit(0 if jsonschema.Draft202012Validator(schema).is_valid(json.load(open(sys.argv[2]))) else 9))";
  auto python = [](const std::string &program, const std::string &arguments) {
    return std::system(fmt::format("/usr/bin/python3 -c '{}' {} 2>/dev/null", program, arguments).c_str()) /
           256;
  };
  if (python("import jsonschema", "") != 0)
    GTEST_SKIP() << "needs Debian's python3-jsonschema";
  std::string path = testing::TempDir() + "/paratope_schema_test.json";
  std::string arguments = fmt::format("{}/runtime/plan/plan.schema.json {}", PARATOPE_SOURCE_DIR, path);
  Plan plan = small_plan();
  std::ofstream(path) << write_json(plan);
  EXPECT_EQ(python(validator, arguments), 0);
  plan.instructions[0].stream = "main";
  std::ofstream(path) << write_json(plan);
  EXPECT_EQ(python(validator, arguments), 9);
  std::remove(path.c_str());
}

} // namespace
} // namespace paratope::plan
