// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/routing.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace paratope {
namespace {

plan::Routing routing_of(const std::string &kind) {
  plan::Routing routing;
  routing.kind = kind;
  routing.seed = 7;
  return routing;
}

std::string message_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const WeightError &e) {
    return e.what();
  }
  return "no error";
}

// How often each expert is a token's choice number `place`.
std::vector<double> frequencies(const plan::Routing &routing, int64_t experts, int64_t top_k, int64_t tokens,
                                int64_t place) {
  const ExpertDraw draw = prepare_routing(routing, experts, top_k);
  std::vector<double> share(static_cast<size_t>(experts), 0.0);
  std::vector<int32_t> chosen(static_cast<size_t>(top_k));
  for (int64_t t = 0; t < tokens; ++t) {
    draw_experts(draw, t, 3, chosen);
    EXPECT_EQ(std::set<int32_t>(chosen.begin(), chosen.end()).size(), chosen.size());
    share[chosen[place]] += 1.0 / static_cast<double>(tokens);
  }
  return share;
}

TEST(Routing, FirstChoicesFollowTheProbabilities) {
  for (const char *kind : {"uniform", "zipf", "dirichlet"}) {
    const int64_t tokens = 40000;
    const std::vector<double> p = expert_probabilities(routing_of(kind), 10);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12);
    const std::vector<double> share = frequencies(routing_of(kind), 10, 3, tokens, 0);
    for (size_t e = 0; e < p.size(); ++e)
      EXPECT_NEAR(share[e], p[e], 4.5 * std::sqrt(p[e] / tokens) + 1e-9) << kind << " " << e;
  }
}

TEST(Routing, SecondChoicesAreDrawnAmongTheRest) {
  const int64_t tokens = 40000;
  const std::vector<double> p = expert_probabilities(routing_of("zipf"), 6);
  const std::vector<double> share = frequencies(routing_of("zipf"), 6, 2, tokens, 1);
  for (size_t e = 0; e < 6; ++e) {
    double expected = 0; // Σ over first choices f ≠ e of p_f · p_e / (1 − p_f)
    for (size_t f = 0; f < 6; ++f)
      expected += f == e ? 0 : p[f] * p[e] / (1 - p[f]);
    EXPECT_NEAR(share[e], expected, 4.5 * std::sqrt(expected / tokens)) << e;
  }
}

TEST(Routing, ZipfIsAPermutationOfTheLawAndDirichletDependsOnAlpha) {
  plan::Routing zipf = routing_of("zipf");
  zipf.s = 0.6;
  std::vector<double> p = expert_probabilities(zipf, 20);
  EXPECT_FALSE(std::is_sorted(p.rbegin(), p.rend())); // the seed permutes the places
  std::sort(p.rbegin(), p.rend());
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(p[i] / p[0], std::pow(static_cast<double>(i + 1), -0.6), 1e-12);
  plan::Routing other = zipf;
  other.seed = 8;
  EXPECT_NE(expert_probabilities(zipf, 20), expert_probabilities(other, 20));

  plan::Routing few = routing_of("dirichlet"), even = few;
  few.alpha = 0.01;
  even.alpha = 1000;
  const std::vector<double> hot = expert_probabilities(few, 64), flat = expert_probabilities(even, 64);
  EXPECT_GT(*std::max_element(hot.begin(), hot.end()), 0.3);
  EXPECT_LT(*std::max_element(flat.begin(), flat.end()), 1.3 / 64);
}

TEST(Routing, HotComesFirstAndTheOthersAreUniform) {
  plan::Routing hot = routing_of("hot");
  hot.expert = 4;
  EXPECT_NEAR(frequencies(hot, 9, 3, 1000, 0)[4], 1.0, 1e-9);
  const std::vector<double> second = frequencies(hot, 9, 3, 20000, 1);
  for (size_t e = 0; e < 9; ++e)
    EXPECT_NEAR(second[e], e == 4 ? 0 : 0.125, 0.012);
}

TEST(Routing, ADrawDependsOnTokenAndPositionAlone) {
  const ExpertDraw draw = prepare_routing(routing_of("uniform"), 64, 6),
                   again = prepare_routing(routing_of("uniform"), 64, 6);
  std::vector<int32_t> a(6), b(6), c(6), d(6);
  draw_experts(draw, 5, 100, a);
  draw_experts(draw, 6, 100, c);
  draw_experts(draw, 5, 101, d);
  draw_experts(again, 5, 100, b);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
  std::vector<int32_t> all(64); // all experts: a permutation
  draw_experts(prepare_routing(routing_of("zipf"), 64, 64), 1, 1, all);
  EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), 64U);
}

class Trace : public testing::Test {
protected:
  std::filesystem::path dir =
      std::filesystem::temp_directory_path() /
      (std::string("paratope_trace_") + testing::UnitTest::GetInstance()->current_test_info()->name());
  void SetUp() override { std::filesystem::create_directories(dir); }
  void TearDown() override { std::filesystem::remove_all(dir); }
  plan::Routing write(const std::string &text) {
    std::ofstream(dir / "t.json") << text;
    plan::Routing routing = routing_of("trace");
    routing.file = "t.json";
    return routing;
  }
};

TEST_F(Trace, ListsAreDealtToTokensInTurn) {
  const ExpertDraw draw = prepare_routing(write("[[0, 1], [2, 3], [7, 0]]"), 8, 2, dir.string());
  std::vector<int32_t> chosen(2);
  draw_experts(draw, 1, 0, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{2, 3}));
  draw_experts(draw, 4, 1, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{7, 0}));
}

TEST_F(Trace, ErrorsSayWhere) {
  const std::string path = (dir / "t.json").string();
  auto call = [&](const std::string &text) {
    const plan::Routing routing = write(text);
    return message_of([&] { prepare_routing(routing, 8, 2, dir.string()); });
  };
  EXPECT_EQ(call("[[0, 1], [2"), path + ": not JSON at byte 12, expected a list of lists of expert ids");
  EXPECT_EQ(call("{}"), path + ": got object, expected a list of lists of expert ids");
  EXPECT_EQ(call("[]"), path + ": got an empty list, expected a list of lists of expert ids");
  EXPECT_EQ(call("[[0, 1], [2]]"), path + ": list 1: got 1 ids, expected a list of 2 expert ids");
  EXPECT_EQ(call("[[0, 1], 5]"), path + ": list 1: got number, expected a list of 2 expert ids");
  EXPECT_EQ(call("[[0, 8]]"), path + ": list 0, place 1: got 8, expected an expert id 0 to 7");
  EXPECT_EQ(call("[[-1, 2]]"), path + ": list 0, place 0: got -1, expected an expert id 0 to 7");
  EXPECT_EQ(call("[[1.5, 2]]"), path + ": list 0, place 0: got 1.5, expected an expert id 0 to 7");
  EXPECT_EQ(call("[[3, 3]]"), path + ": list 0: got expert 3 twice, expected distinct ids");
  plan::Routing missing = routing_of("trace");
  missing.file = (dir / "none.json").string();
  EXPECT_EQ(message_of([&] { prepare_routing(missing, 8, 2, "/elsewhere"); }),
            missing.file + ": cannot read the routing trace, expected a JSON list of lists of expert ids");
}

TEST(Routing, RefusesWhatCannotBeDrawn) {
  auto call = [](plan::Routing routing, int64_t experts = 8, int64_t top_k = 2) {
    return message_of([&] { prepare_routing(routing, experts, top_k); });
  };
  EXPECT_EQ(call(routing_of("gate")),
            "got routing 'gate' to draw from, expected uniform, zipf, dirichlet, hot or trace");
  EXPECT_EQ(call(routing_of("uniform"), 8, 9), "routing 'uniform': got top_k 9, expected 1 to 8");
  EXPECT_EQ(call(routing_of("uniform"), 0, 0), "routing 'uniform': got top_k 0, expected 1 to 0");
  plan::Routing routing = routing_of("zipf");
  routing.s = -1;
  EXPECT_EQ(call(routing), "routing 'zipf': got s -1, expected 0 or more");
  routing = routing_of("dirichlet");
  routing.alpha = 0;
  EXPECT_EQ(call(routing), "routing 'dirichlet': got alpha 0, expected more than 0");
  routing = routing_of("hot");
  routing.expert = 8;
  EXPECT_EQ(call(routing), "routing 'hot': got expert 8, expected 0 to 7");
  EXPECT_EQ(message_of([] { expert_probabilities(routing_of("uniform"), 0); }),
            "routing 'uniform': got 0 experts, expected 1 or more");
  std::vector<int32_t> chosen(3);
  EXPECT_EQ(message_of([&] { draw_experts(prepare_routing(routing_of("uniform"), 8, 2), 1, 1, chosen); }),
            "routing 'uniform': got 3 choices for token 1 at position 1, expected 2");
}

} // namespace
} // namespace paratope
