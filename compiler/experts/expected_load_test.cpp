// SPDX-License-Identifier: Apache-2.0
#include "compiler/experts/expected_load.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

namespace paratope {
namespace {

using Kind = RoutingDistribution::Kind;

std::vector<double> drawn(const RoutingDistribution &routing, int64_t experts) {
  ExpertsErrors errors;
  const auto loads = expected_loads(routing, experts, errors);
  EXPECT_TRUE(loads);
  return loads.value_or(std::vector<double>{});
}

TEST(ExpectedLoad, UniformIsEven) {
  EXPECT_EQ(drawn({.kind = Kind::uniform}, 4), (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(drawn({.kind = Kind::zipf, .s = 0}, 4), (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
}

TEST(ExpectedLoad, ZipfOverAShuffleOfTheSeed) {
  // The permutation of seed 7, from an independent implementation of the same generator and shuffle: expert 1
  // is the most popular, then 4, 5, …
  const std::vector<size_t> expert_at = {1, 4, 5, 2, 6, 0, 3, 7};
  for (double s : {0.6, 1.0, 2.5}) {
    const std::vector<double> loads = drawn({.kind = Kind::zipf, .s = s, .seed = 7}, 8);
    double sum = 0;
    for (size_t position = 0; position < 8; ++position)
      sum += std::pow(static_cast<double>(position + 1), -s);
    for (size_t position = 0; position < 8; ++position)
      EXPECT_NEAR(loads[expert_at[position]], std::pow(static_cast<double>(position + 1), -s) / sum, 1e-14);
  }
  EXPECT_NE(drawn({.kind = Kind::zipf, .s = 1, .seed = 8}, 64),
            drawn({.kind = Kind::zipf, .s = 1, .seed = 9}, 64));
}

TEST(ExpectedLoad, DirichletOfTheSeed) {
  // From an independent implementation.
  const std::vector<double> uneven = {0.014247422598426802, 0.17079446287497543, 0.4460889458370109,
                                      0.3688691686895869};
  const std::vector<double> even = {0.1423476819887985, 0.2581495480575545, 0.41246510270011266,
                                    0.18703766725353443};
  const std::vector<double> half = drawn({.kind = Kind::dirichlet, .alpha = 0.5, .seed = 3}, 4);
  const std::vector<double> four = drawn({.kind = Kind::dirichlet, .alpha = 4, .seed = 3}, 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(half[i], uneven[i], 1e-12);
    EXPECT_NEAR(four[i], even[i], 1e-12);
  }
}

TEST(ExpectedLoad, DirichletHasItsMoments) {
  // mean 1/n and variance (n − 1) / (n² (n·alpha + 1)) over many seeds, within five standard errors or so.
  for (double alpha : {0.2, 1.0, 5.0}) {
    const int64_t experts = 4, trials = 20000;
    double sum = 0, squares = 0;
    for (int64_t seed = 0; seed < trials; ++seed) {
      const double share = drawn({.kind = Kind::dirichlet, .alpha = alpha, .seed = seed}, experts)[0];
      sum += share;
      squares += share * share;
    }
    const double n = experts, mean = sum / trials, variance = squares / trials - mean * mean;
    const double expected = (n - 1) / (n * n * (n * alpha + 1));
    EXPECT_NEAR(mean, 1 / n, 5 * std::sqrt(expected / trials)) << alpha;
    EXPECT_NEAR(variance, expected, 0.06 * expected) << alpha;
  }
}

TEST(ExpectedLoad, SharesSumToOneHoweverUneven) {
  for (const RoutingDistribution &routing : {RoutingDistribution{.kind = Kind::zipf, .s = 1000, .seed = 1},
                                             {.kind = Kind::dirichlet, .alpha = 1e-6},
                                             {.kind = Kind::dirichlet, .alpha = 1e308},
                                             {.kind = Kind::zipf, .s = 1e308, .seed = -1}}) {
    for (int64_t experts : {1, 2, 384}) {
      const std::vector<double> loads = drawn(routing, experts);
      EXPECT_NEAR(std::accumulate(loads.begin(), loads.end(), 0.0), 1, 1e-12);
      EXPECT_TRUE(std::all_of(loads.begin(), loads.end(), [](double share) { return share >= 0; }));
    }
  }
}

TEST(ExpectedLoad, RefusesDistributionsThatAreNone) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  struct Slip {
    RoutingDistribution routing;
    int64_t experts;
    const char *code, *message;
  };
  for (const Slip &slip : {
           Slip{{}, 0, "experts-logical", "a model with experts has at least 1, got 0"},
           Slip{{},
                int64_t{1} << 25,
                "experts-too-many",
                "at most 16777216 physical experts can be placed, got 33554432"},
           Slip{{.kind = Kind::zipf, .s = -1},
                8,
                "routing-zipf",
                "s of zipf is a finite number of at least 0, got -1"},
           Slip{{.kind = Kind::zipf, .s = nan},
                8,
                "routing-zipf",
                "s of zipf is a finite number of at least 0, got nan"},
           Slip{{.kind = Kind::dirichlet, .alpha = 0},
                8,
                "routing-dirichlet",
                "alpha of dirichlet is a finite number of at least 1e-06, got 0"},
           Slip{{.kind = Kind::dirichlet, .alpha = inf},
                8,
                "routing-dirichlet",
                "alpha of dirichlet is a finite number of at least 1e-06, got inf"},
       }) {
    ExpertsErrors errors;
    EXPECT_FALSE(expected_loads(slip.routing, slip.experts, errors));
    ASSERT_EQ(errors.size(), 1u) << slip.message;
    EXPECT_EQ(errors[0].code, slip.code);
    EXPECT_EQ(errors[0].message, slip.message);
  }
}

double distinct(int64_t experts, int64_t ranks, int64_t top_k) {
  ExpertsErrors errors;
  return expected_distinct_ranks(experts, ranks, top_k, errors).value();
}
double active(int64_t experts, int64_t local, int64_t top_k, int64_t tokens) {
  ExpertsErrors errors;
  return expected_active_experts(experts, local, top_k, tokens, errors).value();
}

TEST(DistinctRanks, ExactValues) {
  // From rational arithmetic.
  EXPECT_NEAR(distinct(384, 64, 6), 5.806895429894545, 1e-13);
  EXPECT_NEAR(distinct(384, 8, 6), 4.429823346236269, 1e-13);
  EXPECT_NEAR(distinct(256, 32, 8), 7.26679991735288, 1e-13);
  EXPECT_NEAR(distinct(int64_t{1} << 20, int64_t{1} << 20, 4), 4, 1e-9); // 1 − (1 − 2⁻²⁰)… loses nothing
  EXPECT_EQ(distinct(16, 16, 2), 2);
  EXPECT_EQ(distinct(8, 8, 8), 8);
  EXPECT_EQ(distinct(8, 1, 3), 1);
  EXPECT_EQ(distinct(8, 4, 0), 0);
  EXPECT_EQ(distinct(1, 1, 1), 1);
}

TEST(DistinctRanks, IsTheMeanOverAllChoices) {
  // Brute force: every subset of k of E experts.
  for (int64_t ranks : {1, 2, 3, 4, 6, 12})
    for (int64_t top_k = 0; top_k <= 12; ++top_k) {
      const int64_t experts = 12, local = experts / ranks;
      int64_t subsets = 0, visits = 0;
      for (uint32_t chosen = 0; chosen < (1u << experts); ++chosen) {
        if (__builtin_popcount(chosen) != top_k)
          continue;
        ++subsets;
        for (int64_t rank = 0; rank < ranks; ++rank)
          visits += (chosen >> (rank * local) & ((1u << local) - 1)) != 0;
      }
      EXPECT_NEAR(distinct(experts, ranks, top_k), static_cast<double>(visits) / static_cast<double>(subsets),
                  1e-12);
    }
}

TEST(ActiveExperts, ExactValues) {
  EXPECT_NEAR(active(384, 6, 6, 64), 3.8100808545365554, 1e-13);
  EXPECT_NEAR(active(384, 6, 6, 3840), 6, 1e-13);
  EXPECT_NEAR(active(448, 7, 6, 1), 0.09375, 1e-15);
  EXPECT_DOUBLE_EQ(active(int64_t{1} << 24, 1, 1, 1), 5.960464477539063e-08); // 1 − (1 − 2⁻²⁴) loses nothing
  EXPECT_EQ(active(8, 4, 8, 1), 4);                                           // every expert, always
  EXPECT_EQ(active(8, 4, 8, 0), 0);
  EXPECT_EQ(active(8, 4, 0, 100), 0);
  EXPECT_EQ(active(8, 0, 2, 100), 0);
}

TEST(ExpertExchange, RefusesImpossibleNumbers) {
  struct Slip {
    int64_t experts, ranks, top_k;
    const char *code;
  };
  for (const Slip &slip :
       {Slip{8, 0, 2, "experts-ranks"}, Slip{8, 9, 2, "experts-ranks"}, Slip{8, 4, 9, "experts-top-k"},
        Slip{8, 4, -1, "experts-top-k"}, Slip{INT64_MAX, 4, 2, "experts-too-many"}}) {
    ExpertsErrors errors;
    EXPECT_FALSE(expected_distinct_ranks(slip.experts, slip.ranks, slip.top_k, errors));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, slip.code);
  }
  struct ActiveSlip {
    int64_t experts, local, top_k, tokens;
    const char *code;
  };
  for (const ActiveSlip &slip :
       {ActiveSlip{0, 0, 0, 1, "experts-logical"}, ActiveSlip{8, 9, 2, 1, "experts-local"},
        ActiveSlip{8, -1, 2, 1, "experts-local"}, ActiveSlip{8, 4, 9, 1, "experts-top-k"},
        ActiveSlip{8, 4, 2, -1, "experts-tokens"}}) {
    ExpertsErrors errors;
    EXPECT_FALSE(expected_active_experts(slip.experts, slip.local, slip.top_k, slip.tokens, errors));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].code, slip.code);
  }
}

} // namespace
} // namespace paratope
