// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe/op.h"

#include "kernels/linear/op.h"
#include "kernels/testing.h"

#include <set>

namespace paratope {
namespace {

using namespace testing_support;

struct Gated {
  std::vector<int32_t> idx;
  std::vector<float> w;
};

Gated run_gate(const std::vector<float> &x, const std::vector<float> &wg, const float *bias,
               const GateOptions &options, const std::vector<int32_t> &drawn = {}) {
  const auto hidden = static_cast<int64_t>(wg.size()) / options.experts;
  const auto t = static_cast<int64_t>(x.size()) / hidden;
  Gated out{std::vector<int32_t>(static_cast<size_t>(t * options.top_k), -1), poisoned(t * options.top_k)};
  gate({x.data(), t, hidden}, wg.data(), bias, options, drawn, out.idx, {out.w.data(), t, options.top_k});
  return out;
}

double naive_score(const std::vector<double> &logits, size_t e, Score score) {
  if (score == Score::sigmoid)
    return 1 / (1 + std::exp(-logits[e]));
  if (score == Score::sqrtsoftplus)
    return std::sqrt(std::log(1 + std::exp(logits[e])));
  double total = 0;
  for (double value : logits)
    total += std::exp(value);
  return std::exp(logits[e]) / total;
}

TEST(Gate, ChoosesByBiasAndWeighsByScore) {
  for (Score score : {Score::softmax, Score::sigmoid, Score::sqrtsoftplus})
    for (bool normalise : {false, true})
      for (int64_t groups : {1, 4})
        for (int64_t t : {0, 1, 5}) {
          const int64_t hidden = 9, experts = 12, k = 3, top_groups = groups == 1 ? 1 : 2;
          const auto x = random_floats(t * hidden, 1), wg = random_floats(experts * hidden, 2),
                     bias = random_floats(experts, 3);
          const Gated got =
              run_gate(x, wg, bias.data(), {experts, k, groups, top_groups, score, normalise, 1.5});
          std::vector<double> expected_w;
          std::vector<int32_t> expected_idx;
          for (int64_t i = 0; i < t; ++i) {
            std::vector<double> logits, s, choosing;
            for (int64_t e = 0; e < experts; ++e) {
              logits.push_back(0);
              for (int64_t h = 0; h < hidden; ++h)
                logits.back() += static_cast<double>(x[i * hidden + h]) * wg[e * hidden + h];
            }
            for (int64_t e = 0; e < experts; ++e) {
              s.push_back(naive_score(logits, e, score));
              choosing.push_back(s.back() + bias[e]);
            }
            // Groups by exhaustion: a group is used when fewer than top_groups groups beat it.
            const int64_t size = experts / groups;
            auto value = [&](int64_t g) {
              std::vector<double> members(choosing.begin() + g * size, choosing.begin() + (g + 1) * size);
              std::ranges::sort(members, std::greater<>());
              return members[0] + members[1];
            };
            std::vector<int32_t> open;
            for (int64_t e = 0; e < experts; ++e) {
              int64_t better = 0;
              for (int64_t g = 0; g < groups; ++g)
                better += value(g) > value(e / size);
              if (better < top_groups)
                open.push_back(static_cast<int32_t>(e));
            }
            std::ranges::stable_sort(open, [&](int32_t a, int32_t b) { return choosing[a] > choosing[b]; });
            double total = 0;
            for (int64_t j = 0; j < k; ++j)
              total += s[open[j]];
            for (int64_t j = 0; j < k; ++j) {
              expected_idx.push_back(open[j]);
              expected_w.push_back(s[open[j]] / (normalise ? total : 1) * 1.5);
            }
          }
          EXPECT_EQ(got.idx, expected_idx);
          EXPECT_LT(error_of(got.w, expected_w), rounding);
        }
}

TEST(Gate, TiesGoToTheLowestIndex) {
  const Gated got = run_gate({1}, {2, 3, 3, 3, 1}, nullptr, {5, 2, 1, 1, Score::sigmoid, true, 1});
  EXPECT_EQ(got.idx, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(got.w, (std::vector<float>{0.5, 0.5}));
}

TEST(Gate, LargeLogitsDoNotOverflow) {
  for (Score score : {Score::softmax, Score::sigmoid, Score::sqrtsoftplus}) {
    const Gated got = run_gate({1}, {900, -900, 800}, nullptr, {3, 1, 1, 1, score, false, 1});
    EXPECT_EQ(got.idx, std::vector<int32_t>{0});
    EXPECT_FLOAT_EQ(got.w[0], score == Score::sqrtsoftplus ? 30.0F : 1.0F);
  }
}

TEST(Gate, ADrawnChoiceIsKeptAndStillWeighed) {
  const Gated got = run_gate({1}, {0, 0, 5, 0}, nullptr, {4, 2, 1, 1, Score::sigmoid, true, 2}, {3, 0});
  EXPECT_EQ(got.idx, (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(got.w, (std::vector<float>{1, 1}));
}

TEST(Gate, RefusesWhatCannotBeChosen) {
  auto call = [](GateOptions options, std::vector<int32_t> drawn = {}) {
    return message_of([&] {
      run_gate({1}, std::vector<float>(static_cast<size_t>(options.experts), 1.0F), nullptr, options, drawn);
    });
  };
  EXPECT_EQ(call({4, 5, 1, 1, Score::softmax, true, 1}), "gate: got top_k 5, expected 1 to 4");
  EXPECT_EQ(call({4, 1, 3, 1, Score::softmax, true, 1}),
            "gate: got 3 groups, expected a divisor of 4 experts");
  EXPECT_EQ(call({4, 1, 2, 3, Score::softmax, true, 1}), "gate: got top_groups 3, expected 1 to 2");
  EXPECT_EQ(call({4, 3, 2, 1, Score::softmax, true, 1}),
            "gate: got top_k 3, expected at most 2, the experts of 1 of 2 groups");
  EXPECT_EQ(call({4, 2, 1, 1, Score::softmax, true, 1}, {0, 4}),
            "gate: got drawn expert 4 in row 0, expected 0 to 3");
  EXPECT_EQ(call({4, 2, 1, 1, Score::softmax, true, 1}, {2, 2}),
            "gate: got expert 2 drawn twice in row 0, expected distinct experts");
  EXPECT_EQ(call({4, 2, 1, 1, Score::softmax, true, 1}, {2}), "gate: got drawn experts 1, expected 2");
  EXPECT_EQ(message_of([] { run_gate({1}, {1, NAN, 2}, nullptr, {3, 1, 1, 1, Score::softmax, true, 1}); }),
            "gate: got NaN as the score of expert 1 in row 0, expected a number");
  EXPECT_EQ(message_of([] { score_named("relu"); }),
            "gate: got score 'relu', expected softmax, sigmoid or sqrtsoftplus");
  EXPECT_EQ(score_named("sqrtsoftplus"), Score::sqrtsoftplus);
}

// One row, float64 throughout.
std::vector<double> naive_ffn(const float *x, const float *w13, const float *w2, int64_t hidden,
                              int64_t width, double limit) {
  std::vector<double> y(static_cast<size_t>(hidden), 0.0);
  for (int64_t i = 0; i < width; ++i) {
    double g = 0, u = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      g += static_cast<double>(x[h]) * w13[i * hidden + h];
      u += static_cast<double>(x[h]) * w13[(width + i) * hidden + h];
    }
    if (limit > 0) {
      g = g > limit ? limit : g;
      u = u > limit ? limit : u < -limit ? -limit : u;
    }
    for (int64_t h = 0; h < hidden; ++h)
      y[h] += g / (1 + std::exp(-g)) * u * w2[h * width + i];
  }
  return y;
}

// A feed-forward as a plan runs it.
void run_ffn(ConstRows x, const float *w13, const float *w2, int64_t width, double limit, Rows y) {
  auto h = poisoned(x.rows * 2 * width), a = poisoned(x.rows * width);
  gate_up(x, w13, {h.data(), x.rows, 2 * width});
  swiglu({h.data(), x.rows, 2 * width}, limit, {a.data(), x.rows, width});
  linear({a.data(), x.rows, width}, w2, y);
}

TEST(FeedForward, EqualsTheFormula) {
  for (int64_t t : {0, 1, 3})
    for (int64_t width : {1, 7, 32})
      for (double limit : {0.0, 0.8}) {
        const int64_t hidden = 11;
        const auto x = random_floats(t * hidden, 1), w13 = random_floats(2 * width * hidden, 2),
                   w2 = random_floats(hidden * width, 3);
        auto y = poisoned(t * hidden);
        run_ffn({x.data(), t, hidden}, w13.data(), w2.data(), width, limit, {y.data(), t, hidden});
        std::vector<double> expected;
        for (int64_t i = 0; i < t; ++i) {
          const auto row = naive_ffn(x.data() + i * hidden, w13.data(), w2.data(), hidden, width, limit);
          expected.insert(expected.end(), row.begin(), row.end());
        }
        EXPECT_LT(error_of(y, expected), 2 * rounding);
      }
}

TEST(FeedForward, RefusesSizesThatDoNotFit) {
  std::vector<float> d(64);
  const float *x = d.data();
  EXPECT_EQ(message_of([&] { gate_up({x, 1, 2}, x, {d.data(), 1, 3}); }),
            "gate_up: got row size of h modulo 2 1, expected 0");
  EXPECT_EQ(message_of([&] { gate_up({x, 1, 2}, x, {d.data(), 2, 4}); }),
            "gate_up: got rows of h 2, expected 1");
  EXPECT_EQ(message_of([&] { swiglu({x, 1, 6}, 0, {d.data(), 1, 2}); }),
            "swiglu: got row size of a 2, expected 3");
  EXPECT_EQ(message_of([&] { swiglu({x, 1, 6}, 0, {d.data(), 3, 3}); }),
            "swiglu: got rows of a 3, expected 1");
  EXPECT_EQ(message_of([&] { swiglu({x, 1, 0}, 0, {d.data(), 1, 0}); }),
            "swiglu: got row size of h 0, expected 1 or more");
}

TEST(Experts, EachRowMeetsItsSlotsExpert) {
  const int64_t hidden = 6, width = 5, slots = 4, rows = 7;
  const std::vector<int64_t> offsets{0, 3, 3, 4, 7}; // slot 1 has no row
  const auto x = random_floats(rows * hidden, 1), w13 = random_floats(slots * 2 * width * hidden, 2),
             w2 = random_floats(slots * width * hidden, 3);
  auto h = poisoned(rows * 2 * width), a = poisoned(rows * width), y = poisoned(rows * hidden);
  expert_gate_up({x.data(), rows, hidden}, offsets, w13.data(), {h.data(), rows, 2 * width});
  swiglu({h.data(), rows, 2 * width}, 1, {a.data(), rows, width});
  expert_down({a.data(), rows, width}, offsets, w2.data(), {y.data(), rows, hidden});
  for (int64_t s = 0; s < slots; ++s) { // the same bits as the slot's feed-forward alone
    const int64_t first = offsets[s], count = offsets[s + 1] - first;
    auto alone = poisoned(count * hidden);
    run_ffn({x.data() + first * hidden, count, hidden}, w13.data() + s * 2 * width * hidden,
            w2.data() + s * width * hidden, width, 1, {alone.data(), count, hidden});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + first * hidden));
  }
  std::vector<double> expected;
  for (int64_t s = 0; s < slots; ++s)
    for (int64_t r = offsets[s]; r < offsets[s + 1]; ++r) {
      const auto row = naive_ffn(x.data() + r * hidden, w13.data() + s * 2 * width * hidden,
                                 w2.data() + s * width * hidden, hidden, width, 1);
      expected.insert(expected.end(), row.begin(), row.end());
    }
  EXPECT_LT(error_of(y, expected), 2 * rounding);
  auto call = [&](std::vector<int64_t> wrong) {
    return message_of(
        [&] { expert_gate_up({x.data(), rows, hidden}, wrong, w13.data(), {h.data(), rows, 2 * width}); });
  };
  EXPECT_EQ(call({0, 3, 6}), "expert_gate_up: got last offset 6, expected 7");
  EXPECT_EQ(call({1, 7}), "expert_gate_up: got first offset 1, expected 0");
  EXPECT_EQ(call({0, 5, 3, 7}), "expert_gate_up: got rows 5 to 3 for slot 1, expected ascending offsets");
  EXPECT_EQ(call({0, 9, 7}), "expert_gate_up: got rows 0 to 9 for slot 0, expected ascending offsets");
  EXPECT_EQ(message_of([&] {
              expert_down({a.data(), rows, width}, std::vector<int64_t>{0, 6}, w2.data(),
                          {y.data(), rows, hidden});
            }),
            "expert_down: got last offset 6, expected 7");
}

TEST(LocalExperts, PartialSumsOfAllBlocksAreTheWhole) {
  const int64_t t = 6, hidden = 5, width = 4, k = 3, logical = 8, ep = 4;
  const std::vector<int64_t> expert_of{0, 1, 2, 3, 4, 5, 6, 7, 0, 3, 0, 7};
  const SlotTable table = slot_table(expert_of, logical, ep);
  const auto x = random_floats(t * hidden, 1), w = random_floats(t * k, 2);
  const auto w13 = random_floats(logical * 2 * width * hidden, 3),
             w2 = random_floats(logical * width * hidden, 4);
  std::vector<int32_t> idx;
  std::vector<int64_t> numbers;
  for (int32_t i = 0; i < t; ++i) {
    idx.insert(idx.end(), {i, (i + 3) % 8, (i + 7) % 8});
    numbers.push_back(100 + i);
  }
  std::vector<float> sum(static_cast<size_t>(t * hidden), 0.0F);
  for (int64_t block = 0; block < ep; ++block) {
    std::vector<float> local13, local2;
    for (int64_t s = block * table.local; s < (block + 1) * table.local; ++s) {
      const int64_t e = expert_of[s];
      local13.insert(local13.end(), w13.begin() + e * 2 * width * hidden,
                     w13.begin() + (e + 1) * 2 * width * hidden);
      local2.insert(local2.end(), w2.begin() + e * width * hidden, w2.begin() + (e + 1) * width * hidden);
    }
    auto y = poisoned(t * hidden);
    local_experts({x.data(), t, hidden}, idx, {w.data(), t, k}, numbers, table, block, local13.data(),
                  local2.data(), width, 0, {y.data(), t, hidden});
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += y[i];
    const std::vector<int64_t> padding(numbers.size(), -1); // meets no expert
    local_experts({x.data(), t, hidden}, idx, {w.data(), t, k}, padding, table, block, local13.data(),
                  local2.data(), width, 0, {y.data(), t, hidden});
    EXPECT_EQ(y, std::vector<float>(y.size(), 0.0F));
  }
  std::vector<double> expected(sum.size(), 0.0);
  for (int64_t i = 0; i < t; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const int64_t e = idx[i * k + j];
      const auto row = naive_ffn(x.data() + i * hidden, w13.data() + e * 2 * width * hidden,
                                 w2.data() + e * width * hidden, hidden, width, 0);
      for (int64_t h = 0; h < hidden; ++h)
        expected[i * hidden + h] += w[i * k + j] * row[h];
    }
  EXPECT_LT(error_of(sum, expected), 4 * rounding);
  EXPECT_EQ(message_of([&] {
              local_experts({x.data(), t, hidden}, idx, {w.data(), t, k}, numbers, table, 4, w13.data(),
                            w2.data(), width, 0, {sum.data(), t, hidden});
            }),
            "local_experts: got block 4 in row 0, expected 0 to 3");
}

} // namespace
} // namespace paratope
