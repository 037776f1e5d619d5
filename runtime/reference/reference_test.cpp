// SPDX-License-Identifier: Apache-2.0
//
// What the reference decides by itself: ties and mismatches, its errors, and mla's absorbed form against keys
// and values written out. That it computes the model is composed_test.cpp's claim.
#include "runtime/reference/reference.h"

#include "runtime/reference/attention.h"
#include "runtime/reference/choice.h"
#include "runtime/weights/state.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace paratope {
namespace {

using namespace reference;

plan::Model gate_model(int64_t experts, int64_t top_k, int64_t groups, int64_t top_groups) {
  plan::Model m;
  m.routed = experts, m.top_k = top_k, m.gate_groups = groups, m.gate_top_groups = top_groups;
  return m;
}

TEST(JudgeExperts, OrderDoesNotMatterAndBoundariesTie) {
  const plan::Model m = gate_model(5, 2, 1, 1);
  const Vector choosing{1, 0.5, 0.4999999, 0.1, 0.9};
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(judge_experts(m, choosing, {}, 1e-5).experts, (Ids{0, 4}));
  const Ids swapped{4, 0};
  EXPECT_EQ(judge_experts(m, choosing, swapped, 1e-5).verdict, Verdict::agrees);

  const plan::Model three = gate_model(5, 3, 1, 1);
  const Ids tied{0, 4, 2}, wrong{0, 4, 3};
  ExpertChoice choice = judge_experts(three, choosing, tied, 1e-5);
  EXPECT_EQ(choice.verdict, Verdict::tie);
  EXPECT_EQ(choice.experts, tied);
  EXPECT_EQ(choice.own, (Ids{0, 4, 1}));
  EXPECT_NEAR(choice.gap, 1e-7, 1e-12);
  choice = judge_experts(three, choosing, wrong, 1e-5);
  EXPECT_EQ(choice.verdict, Verdict::mismatch);
  EXPECT_EQ(choice.experts, choice.own);
  EXPECT_NEAR(choice.gap, 0.4, 1e-12);
  // The gap is relative to the largest score.
  Vector large(choosing);
  for (double &value : large)
    value *= 1e6;
  EXPECT_EQ(judge_experts(three, large, tied, 1e-5).verdict, Verdict::tie);
}

TEST(JudgeExperts, WhatIsNoChoiceIsAMismatch) {
  const plan::Model m = gate_model(4, 2, 2, 1);
  const Vector choosing{1, 1, 1, 1};
  for (const std::vector<int32_t> &observed : {std::vector<int32_t>{0, 0},
                                               {0, 4},
                                               {-1, 0},
                                               {0},
                                               {0, 2}}) // the last is of two groups, of which one is allowed
    EXPECT_EQ(judge_experts(m, choosing, observed, 1e-5).verdict, Verdict::mismatch);
}

TEST(JudgeExperts, GroupsTieToo) {
  const plan::Model m = gate_model(6, 2, 3, 1); // groups {0 1} {2 3} {4 5}, values 3, 3 − 1e-6, 1
  const Vector choosing{2, 1, 1.5, 1.4999990, 0.5, 0.5};
  const std::vector<int32_t> second{2, 3}, third{4, 5};
  const ExpertChoice tie = judge_experts(m, choosing, second, 1e-5);
  EXPECT_EQ(tie.verdict, Verdict::tie);
  EXPECT_EQ(tie.own, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(tie.experts, second);
  EXPECT_EQ(judge_experts(m, choosing, third, 1e-5).verdict, Verdict::mismatch);
}

TEST(JudgeId, AdoptsTies) {
  const double logits[] = {1, 2, 2, 1.999999, -4};
  EXPECT_EQ(judge_id(logits, 5, -1, 1e-5).id, 1);
  EXPECT_EQ(judge_id(logits, 5, 1, 1e-5).verdict, Verdict::agrees);
  EXPECT_EQ(judge_id(logits, 5, 3, 1e-5).verdict, Verdict::tie);
  EXPECT_EQ(judge_id(logits, 5, 3, 1e-5).id, 3);
  EXPECT_EQ(judge_id(logits, 5, 0, 1e-5).verdict, Verdict::mismatch);
  EXPECT_EQ(judge_id(logits, 5, 0, 1e-5).id, 1);
  EXPECT_EQ(judge_id(logits, 5, 5, 1e-5).verdict, Verdict::mismatch);
}

plan::Model small_model() {
  plan::Model m;
  m.hidden = 16, m.layers = 2, m.vocab = 31, m.seed = 3, m.rms_eps = 1e-6;
  m.attention = "mla", m.heads = 4, m.rope_dim = 4, m.q_lora = 8, m.kv_lora = 10, m.nope_dim = 6, m.v_dim = 5;
  m.rope_theta = 10000;
  m.routed = 8, m.top_k = 2, m.expert_width = 6, m.score = "sigmoid";
  return m;
}

plan::Workload workload_of(int64_t context, const std::string &routing = "gate") {
  plan::Workload w;
  w.context = context;
  w.routing.kind = routing;
  return w;
}

ReferenceResult run_decode(const plan::Model &m, const plan::Workload &w, int64_t sequences, int steps,
                           const RoutingChoices *seen = nullptr, const ReferenceOptions &options = {}) {
  plan::Workload one = w;
  one.engine_tokens = {sequences};
  return run_reference(m, one, plan::batch_of(one, 1).sequences, steps, seen, options);
}

TEST(Reference, AnyNumberOfThreadsGivesTheSameBits) {
  ReferenceOptions one, three;
  one.threads = 1, three.threads = 3, three.keep_hidden = true;
  const ReferenceResult a = run_decode(small_model(), workload_of(5), 7, 3, nullptr, one);
  const ReferenceResult b = run_decode(small_model(), workload_of(5), 7, 3, nullptr, three);
  ASSERT_EQ(a.steps.size(), 3U);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(a.steps[s].hidden, b.steps[s].hidden);
    EXPECT_EQ(a.steps[s].logits, b.steps[s].logits);
    EXPECT_EQ(a.steps[s].next_ids, b.steps[s].next_ids);
    EXPECT_EQ(b.steps[s].layers.size(), 2U);
    EXPECT_EQ(b.steps[s].layers[1].size(), 7U * 16);
  }
  EXPECT_NE(a.steps[0].hidden, a.steps[1].hidden);
  EXPECT_TRUE(run_decode(small_model(), workload_of(5), 0, 1).steps[0].hidden.empty());
}

TEST(Reference, ASequenceDoesNotDependOnHowManyThereAre) {
  const ReferenceResult few = run_decode(small_model(), workload_of(5), 2, 2);
  const ReferenceResult many = run_decode(small_model(), workload_of(5), 6, 2);
  for (size_t i = 0; i < few.steps[1].hidden.size(); ++i)
    EXPECT_EQ(few.steps[1].hidden[i], many.steps[1].hidden[i]);
}

TEST(Reference, ItsOwnChoicesAgree) {
  const ReferenceResult own = run_decode(small_model(), workload_of(5), 4, 2);
  const RoutingChoices seen{{own.steps[0].experts, own.steps[1].experts},
                            {own.steps[0].next_ids, own.steps[1].next_ids}};
  const ReferenceResult again = run_decode(small_model(), workload_of(5), 4, 2, &seen);
  EXPECT_EQ(again.expert_ties + again.expert_mismatches + again.id_ties + again.id_mismatches, 0);
  EXPECT_EQ(again.steps[1].hidden, own.steps[1].hidden);
}

TEST(Reference, MismatchesAreCountedLocatedAndNotAdopted) {
  const ReferenceResult own = run_decode(small_model(), workload_of(5), 4, 1);
  RoutingChoices seen{{own.steps[0].experts}, {own.steps[0].next_ids}};
  std::vector<int32_t> &layer = seen.experts[0][1];
  const int32_t kept = layer[2 * 2], right = layer[2 * 2 + 1];
  layer[2 * 2 + 1] = (std::max(kept, right) + 1) % 8 == std::min(kept, right)
                         ? (std::max(kept, right) + 2) % 8
                         : (std::max(kept, right) + 1) % 8;
  seen.next_ids[0][3] = (seen.next_ids[0][3] + 1) % 31;
  const ReferenceResult judged = run_decode(small_model(), workload_of(5), 4, 1, &seen);
  EXPECT_EQ(judged.expert_mismatches, 1);
  EXPECT_EQ(judged.id_mismatches, 1);
  EXPECT_EQ(judged.steps[0].hidden, own.steps[0].hidden);
  ASSERT_EQ(judged.mismatches.size(), 2U);
  EXPECT_TRUE(judged.mismatches[0].starts_with("step 0, layer 1, token 2: the run chose experts "));
  EXPECT_TRUE(judged.mismatches[1].starts_with("step 0, sequence 3: the run's next id is "));

  ReferenceOptions lenient;
  lenient.tie = 10;
  const ReferenceResult adopted = run_decode(small_model(), workload_of(5), 4, 1, &seen, lenient);
  EXPECT_EQ(adopted.expert_ties, 1);
  EXPECT_GE(adopted.id_ties, 1); // the token with other experts may now prefer another id, too
  EXPECT_EQ(adopted.steps[0].experts[1], layer);
  EXPECT_EQ(adopted.steps[0].next_ids, seen.next_ids[0]);
  EXPECT_NE(adopted.steps[0].hidden, own.steps[0].hidden);
}

TEST(Reference, ADrawnChoiceHasNoTies) {
  const ReferenceResult own = run_decode(small_model(), workload_of(5, "uniform"), 3, 1);
  RoutingChoices seen{{own.steps[0].experts}, {}};
  std::swap(seen.experts[0][0][0], seen.experts[0][0][1]); // another order is the same choice
  ReferenceOptions lenient;
  lenient.tie = 10;
  EXPECT_EQ(run_decode(small_model(), workload_of(5, "uniform"), 3, 1, &seen, lenient).expert_mismatches, 0);
  const int32_t sum = seen.experts[0][0][0] + seen.experts[0][0][1];
  seen.experts[0][0] = {(sum + 1) % 8, (sum + 2) % 8, 0, 1, 2, 3};
  EXPECT_GE(run_decode(small_model(), workload_of(5, "uniform"), 3, 1, &seen, lenient).expert_mismatches, 1);
}

TEST(Reference, MlaAbsorbedEqualsKeysAndValuesWrittenOut) {
  const plan::Model m = small_model();
  const WeightSource source(m);
  const AttentionWeights w(source, 0);
  const std::vector<plan::Sequence> sequences{{6, 1, 0}};
  AttentionLayer layer(m, 0, sequences);
  Vector x(16), out(16), expected(16, 0.0);
  for (int64_t i = 0; i < 16; ++i)
    x[i] = std::sin(static_cast<double>(i));
  attend(layer, w, 0, x.data(), out.data());

  Vector low(8), q(4 * 10), o(4 * 5, 0.0);
  matvec(w.wq_a.data(), 8, 16, x.data(), low.data());
  rms_norm(low.data(), 8, w.q_norm.data(), m.rms_eps);
  matvec(w.wq_b.data(), 40, 8, low.data(), q.data());
  for (int64_t h = 0; h < 4; ++h) {
    rotate(q.data() + h * 10 + 6, Angles(6, 10000, 4));
    double total = 0;
    for (int64_t p = 0; p <= 6; ++p) {
      Weights row(14);
      Vector entry(layer.sequences[0].appended); // the token's own
      if (p < 6) {
        fill_state_row(state_key(3, StateTensor::kv, 0), 0, p, 14, 0, 14, row.data());
        entry.assign(row.begin(), row.end());
      }
      Vector key(6), value(5, 0.0);
      double score = 0;
      for (int64_t d = 0; d < 6; ++d) { // k = W_k·latent, written out
        for (int64_t c = 0; c < 10; ++c)
          key[d] += w.wk_b[(h * 10 + c) * 6 + d] * entry[c];
        score += q[h * 10 + d] * key[d];
      }
      for (int64_t d = 0; d < 4; ++d)
        score += q[h * 10 + 6 + d] * entry[10 + d];
      matvec(w.wv_b.data() + h * 50, 5, 10, entry.data(), value.data());
      const double weight = std::exp(score / std::sqrt(10.0));
      total += weight;
      for (int64_t d = 0; d < 5; ++d)
        o[h * 5 + d] += weight * value[d];
    }
    for (int64_t d = 0; d < 5; ++d)
      o[h * 5 + d] /= total;
  }
  matvec(w.wo.data(), 16, 20, o.data(), expected.data());
  for (int64_t i = 0; i < 16; ++i)
    EXPECT_NEAR(out[i], expected[i], 1e-12);
}

TEST(Reference, RefusesModelsItDoesNotKnow) {
  auto call = [](const std::function<void(plan::Model &, plan::Workload &)> &change, int64_t sequences = 1,
                 int steps = 1) {
    plan::Model m = small_model();
    plan::Workload w = workload_of(2);
    change(m, w);
    try {
      run_decode(m, w, sequences, steps);
    } catch (const std::invalid_argument &e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(call([](auto &, auto &) {}), "no error");
  EXPECT_EQ(call([](auto &m, auto &) { m.attention = "linear"; }),
            "reference: got attention 'linear', expected latent, mla or gqa");
  EXPECT_EQ(call([](auto &, auto &w) { w.phase = "train"; }),
            "reference: got phase 'train', expected decode or prefill");
  EXPECT_EQ(call([](auto &, auto &w) { w.context = -1; }),
            "reference: got a sequence of 1 tokens from 0 after a history of -1, expected 1 or more from 0 "
            "after 0 or "
            "more");
  EXPECT_EQ(call([](auto &, auto &) {}, 1, -1), "reference: got -1 steps, expected 0 or more");
  EXPECT_EQ(call([](auto &m, auto &) { m.rope_dim = 3; }),
            "reference: got rope_dim 3, expected an even number of at most 9");
  EXPECT_EQ(call([](auto &m, auto &) { m.score = "relu"; }),
            "reference: got score 'relu', expected softmax, sigmoid or sqrtsoftplus");
  EXPECT_EQ(call([](auto &m, auto &) { m.gate_groups = 3; }),
            "reference: got 1 of 3 gate groups, expected a divisor of 8 experts and at most that many");
  EXPECT_EQ(call([](auto &m, auto &) { m.top_k = 9; }), "reference: got top_k 9, expected 1 to 8");
  EXPECT_EQ(call([](auto &m, auto &) { m.engram_layers = {2}; }),
            "reference: got engram layer 2, expected 0 to 1");
  EXPECT_EQ(call([](auto &m, auto &) { m.engram_layers = {1}, m.engram_multipliers = {{1}, {1}}; }),
            "reference: got 2 rows of engram multipliers, expected 1");
  EXPECT_EQ(
      call([](auto &m, auto &) { m.engram_layers = {1}, m.engram_ngram = 3, m.engram_multipliers = {{1}}; }),
      "reference: got 1 engram multipliers, expected 3");
  EXPECT_EQ(call([](auto &m, auto &) { m.kv_lora = 0; }), "model: got kv_lora = 0, expected 1 or more");
  EXPECT_EQ(call([](auto &, auto &w) { w.routing.kind = "zip"; }),
            "got routing 'zip' to draw from, expected uniform, zipf, dirichlet, hot or trace");
}

TEST(Reference, RefusesBatchesThatAreNone) {
  auto call = [](const std::string &phase, std::vector<plan::Sequence> sequences) {
    plan::Workload w = workload_of(2);
    w.phase = phase;
    try {
      run_reference(small_model(), w, sequences, 1);
    } catch (const ReferenceError &e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(call("decode", {{2, 2, 0}}),
            "reference: got a sequence of 2 tokens in a decode step, expected 1");
  EXPECT_EQ(call("prefill", {{2, 2, 0}}), "no error");
  EXPECT_EQ(call("prefill", {{0, 2, 0}, {0, 1, 3}}), "reference: got a sequence of 1 tokens from 3 after a "
                                                     "history of 0, expected 1 or more from 2 after 0 or "
                                                     "more");
}

// A prompt's chunks are the prompt: what one step computes of all tokens, three do of a third each.
TEST(Reference, ChunksOfAPromptAreThePrompt) {
  plan::Workload w = workload_of(0);
  w.phase = "prefill";
  const std::vector<plan::Sequence> whole{{4, 6, 0}, {0, 9, 6}}, chunks{{4, 2, 0}, {0, 3, 2}};
  const ReferenceResult one = run_reference(small_model(), w, whole, 1);
  const ReferenceResult three = run_reference(small_model(), w, chunks, 3);
  const std::vector<double> &hidden = one.steps[0].hidden;
  EXPECT_EQ(three.steps[2].logits, one.steps[0].logits);
  for (size_t step = 0; step < 3; ++step)
    for (size_t s = 0; s < 2; ++s) {
      const auto size = static_cast<size_t>(chunks[s].length * 16);
      const size_t from = static_cast<size_t>(chunks[s].first_token * 16),
                   at = static_cast<size_t>(whole[s].first_token * 16) + step * size;
      const std::vector<double> &part = three.steps[step].hidden;
      EXPECT_TRUE(std::equal(part.begin() + static_cast<int64_t>(from),
                             part.begin() + static_cast<int64_t>(from + size),
                             hidden.begin() + static_cast<int64_t>(at)))
          << step << " " << s;
    }
}

TEST(Reference, RefusesObservationsOfAnotherSize) {
  auto call = [](const RoutingChoices &seen) {
    try {
      run_decode(small_model(), workload_of(2), 2, 1, &seen);
    } catch (const ReferenceError &e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(call({{{{0, 1, 2}}}, {}}),
            "reference: got 3 observed experts in step 0, layer 0, expected 2 tokens x 2");
  EXPECT_EQ(call({{}, {{1}}}), "reference: got 1 observed ids in step 0, expected 2");
  EXPECT_EQ(call({{{{}, {}}}, {{}}}), "no error"); // nothing observed
}

} // namespace
} // namespace paratope
