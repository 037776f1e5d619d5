// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/op.h"

#include "kernels/testing.h"

#include <complex>

namespace paratope {
namespace {

using namespace testing_support;

// Rotates the last `dims` of a head as complex numbers, which the kernel does not.
void naive_rotate(double *head, int64_t head_dim, int64_t dims, double theta, int64_t position,
                  bool inverse) {
  for (int64_t i = 0; i < dims / 2; ++i) {
    double *pair = head + head_dim - dims + 2 * i;
    const double angle = static_cast<double>(position) /
                         std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(dims));
    const auto turned = std::complex<double>(pair[0], pair[1]) * std::polar(1.0, inverse ? -angle : angle);
    pair[0] = turned.real();
    pair[1] = turned.imag();
  }
}

TEST(Rope, EqualsComplexRotation) {
  for (int64_t t : {0, 1, 3})
    for (int64_t rope_dim : {0, 2, 6, 8})
      for (bool inverse : {false, true})
        for (bool normalise : {false, true}) {
          const int64_t heads = 3, head_dim = 8;
          const auto x = random_floats(t * heads * head_dim, 1);
          std::vector<int32_t> positions{0, 77, 4096};
          positions.resize(static_cast<size_t>(t));
          auto y = poisoned(t * heads * head_dim);
          rope({x.data(), t, heads * head_dim}, positions,
               {heads, head_dim, rope_dim, 160000, inverse, normalise, 1e-6},
               {y.data(), t, heads * head_dim});
          std::vector<double> expected(x.begin(), x.end());
          for (int64_t i = 0; i < t * heads; ++i) {
            double *head = expected.data() + i * head_dim, square = 0;
            for (int64_t d = 0; d < head_dim; ++d)
              square += head[d] * head[d];
            for (int64_t d = 0; d < head_dim && normalise; ++d)
              head[d] /= std::sqrt(square / head_dim + 1e-6);
            naive_rotate(head, head_dim, rope_dim, 160000, positions[i / heads], inverse);
          }
          EXPECT_LT(error_of(y, expected), rounding);
          auto in_place = x;
          rope({in_place.data(), t, heads * head_dim}, positions,
               {heads, head_dim, rope_dim, 160000, inverse, normalise, 1e-6},
               {in_place.data(), t, heads * head_dim});
          EXPECT_EQ(in_place, y);
        }
}

TEST(Rope, RefusesWhatCannotRotate) {
  std::vector<float> x(16);
  auto call = [&](std::vector<int32_t> positions, RopeOptions options) {
    return message_of([&] { rope({x.data(), 2, 8}, positions, options, {x.data(), 2, 8}); });
  };
  EXPECT_EQ(call({0, 1}, {1, 8, 3, 1e4, false, false, 0}),
            "rope: got rope_dim 3, expected an even number of at most 8");
  EXPECT_EQ(call({0, 1}, {1, 8, 10, 1e4, false, false, 0}),
            "rope: got rope_dim 10, expected an even number of at most 8");
  EXPECT_EQ(call({0, -1}, {1, 8, 2, 1e4, false, false, 0}),
            "rope: got position -1 in row 1, expected 0 or more");
  EXPECT_EQ(call({0}, {1, 8, 2, 1e4, false, false, 0}), "rope: got positions 1, expected 2");
  EXPECT_EQ(call({0, 1}, {3, 8, 2, 1e4, false, false, 0}), "rope: got row size of x 8, expected 24");
}

TEST(CompressAppend, PoolsEachBlockAndRotatesAtItsFirstPosition) {
  for (int64_t ratio : {1, 2, 3}) {
    const int64_t size = 6, tokens = 10;
    KvCache cache({2, tokens, 4, {{size, ratio}}, 0});
    const auto c = random_floats(tokens * size, 1), g = random_floats(tokens * size, 2),
               gain = random_floats(size, 3);
    const CompressOptions options{4, 160000, 1e-6};
    for (int64_t p = 0; p < tokens; ++p) // one token a step, sequence 1
      compress_append(cache, 0, {c.data() + p * size, 1, size}, {g.data() + p * size, 1, size},
                      std::vector<int32_t>{static_cast<int32_t>(p)}, gain.data(), options,
                      std::vector<int32_t>{1});
    std::vector<float> got;
    std::vector<double> expected;
    for (int64_t j = 0; j < tokens / ratio; ++j) {
      std::vector<double> entry(size, 0.0);
      double square = 0;
      for (int64_t d = 0; d < size; ++d) {
        double total = 0;
        for (int64_t p = j * ratio; p < (j + 1) * ratio; ++p)
          total += std::exp(static_cast<double>(g[p * size + d]));
        for (int64_t p = j * ratio; p < (j + 1) * ratio; ++p)
          entry[d] +=
              (ratio == 1 ? 1 : std::exp(static_cast<double>(g[p * size + d])) / total) * c[p * size + d];
        square += entry[d] * entry[d];
      }
      for (int64_t d = 0; d < size; ++d)
        entry[d] *= gain[d] / std::sqrt(square / size + 1e-6);
      naive_rotate(entry.data(), size, 4, 160000, j * ratio, false);
      expected.insert(expected.end(), entry.begin(), entry.end());
      got.insert(got.end(), cache.compressed(0, 1, j), cache.compressed(0, 1, j) + size);
    }
    EXPECT_LT(error_of(got, expected), 2 * rounding) << ratio;
    if (tokens / ratio * ratio + ratio <=
        12) { // the open block's place is reserved with its page, and still poisoned
      EXPECT_TRUE(std::isnan(*cache.compressed(0, 1, tokens / ratio)));
    }
  }
}

struct AttentionCase {
  int64_t kv_heads, v_dim, v_offset, window, ratio;
  bool sink;
};

TEST(Attention, EqualsNaiveSoftmax) {
  const int64_t heads = 4, head_dim = 5, tokens = 3;
  for (const AttentionCase &c :
       {AttentionCase{1, 5, 0, 0, 0, false}, AttentionCase{1, 3, 0, 4, 2, true},
        AttentionCase{1, 5, 0, 1, 1, true}, AttentionCase{2, 5, 5, 6, 0, false},
        AttentionCase{4, 2, 5, 0, 3, true}, AttentionCase{1, 5, 0, 100, 128, true}}) {
    const int64_t head_entry = std::max(head_dim, c.v_offset + c.v_dim), entry = head_entry * c.kv_heads;
    KvCache cache({tokens, 40, 7, {{1, 0}, {entry, c.ratio}}, 0});
    const std::vector<int32_t> positions{0, 9, 38}, sequences{2, 0, 1};
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t s = sequences[t];
      cache.reserve(s, positions[t] + 1);
      for (int64_t p = 0; p <= positions[t]; ++p)
        std::ranges::copy(random_floats(entry, static_cast<uint32_t>(1000 * s + p)), cache.token(1, s, p));
      for (int64_t j = 0; c.ratio > 0 && j < (positions[t] + 1) / c.ratio; ++j)
        std::ranges::copy(random_floats(entry, static_cast<uint32_t>(5000 * s + 500 + j)),
                          cache.compressed(1, s, j));
    }
    const auto q = random_floats(tokens * heads * head_dim, 1), sink = random_floats(heads, 2);
    auto o = poisoned(tokens * heads * c.v_dim);
    attention(cache, 1, {q.data(), tokens, heads * head_dim}, positions, c.sink ? sink.data() : nullptr,
              {heads, c.kv_heads, head_dim, c.v_dim, c.v_offset, c.window, 0.4},
              {o.data(), tokens, heads * c.v_dim}, sequences);
    std::vector<double> expected;
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<const float *> keys;
      for (int64_t p = 0; p <= positions[t]; ++p)
        if (c.window == 0 || p > positions[t] - c.window)
          keys.push_back(cache.token(1, sequences[t], p));
      for (int64_t j = 0; c.ratio > 0 && (j + 1) * c.ratio <= positions[t] + 1; ++j)
        keys.push_back(cache.compressed(1, sequences[t], j));
      for (int64_t h = 0; h < heads; ++h) {
        double total = c.sink ? std::exp(static_cast<double>(sink[h])) : 0;
        std::vector<double> out(c.v_dim, 0.0);
        for (const float *key : keys) {
          const float *mine = key + h * c.kv_heads / heads * head_entry;
          double score = 0;
          for (int64_t d = 0; d < head_dim; ++d)
            score += 0.4 * q[(t * heads + h) * head_dim + d] * mine[d];
          total += std::exp(score);
          for (int64_t d = 0; d < c.v_dim; ++d)
            out[d] += std::exp(score) * mine[c.v_offset + d];
        }
        for (double value : out)
          expected.push_back(value / total);
      }
    }
    EXPECT_LT(error_of(o, expected), rounding) << c.kv_heads << " " << c.window << " " << c.ratio;
  }
}

TEST(Attention, AnEntryNobodyStoredDoesNotPass) {
  KvCache cache({1, 8, 4, {{2, 0}}, 0});
  const std::vector<float> kv{1, 2}, q{1, 1};
  std::vector<float> o(2);
  kv_append(cache, 0, {kv.data(), 1, 2}, std::vector<int32_t>{1}); // position 0 was never stored
  attention(cache, 0, {q.data(), 1, 2}, std::vector<int32_t>{1}, nullptr, {1, 1, 2, 2, 0, 0, 1},
            {o.data(), 1, 2});
  EXPECT_TRUE(std::isnan(o[0]));
  attention(cache, 0, {q.data(), 1, 2}, std::vector<int32_t>{1}, nullptr, {1, 1, 2, 2, 0, 1, 1},
            {o.data(), 1, 2});
  EXPECT_EQ(o, kv);
}

TEST(Attention, PaddingSeesNoKeyAndGivesZero) {
  KvCache cache({1, 8, 4, {{2, 0}}, 0});
  const std::vector<float> kv{1, 2}, q{1, 1, NAN, NAN};
  std::vector<float> o(4, NAN);
  kv_append(cache, 0, {kv.data(), 1, 2}, std::vector<int32_t>{0});
  attention(cache, 0, {q.data(), 2, 2}, std::vector<int32_t>{0, 0}, nullptr, {1, 1, 2, 2, 0, 0, 1},
            {o.data(), 2, 2}, std::vector<int32_t>{0, -1});
  EXPECT_EQ(o, (std::vector<float>{1, 2, 0, 0}));
}

TEST(Attention, RefusesShapesAndPlacesThatDoNotFit) {
  KvCache cache({2, 8, 4, {{4, 0}}, 0});
  std::vector<float> d(16);
  auto call = [&](AttentionOptions options, int32_t position) {
    return message_of([&] {
      attention(cache, 0, {d.data(), 1, 8}, std::vector<int32_t>{position}, nullptr, options,
                {d.data(), 1, 8});
    });
  };
  EXPECT_EQ(call({2, 1, 4, 4, 0, 0, 1}, 3),
            "kv cache: a token of layer 0, sequence 0 needs position 0, expected 0 to -1 (reserved)");
  EXPECT_EQ(call({2, 1, 4, 4, 1, 0, 1}, 3),
            "attention: got head_dim 4, v_dim 4 at 1, window 0, expected parts of a kv "
            "head's 4 floats and a window of 0 or more");
  EXPECT_EQ(call({3, 2, 4, 4, 0, 0, 1}, 3),
            "attention: got 3 heads and an entry of 4 for 2 kv_heads, expected multiples");
  EXPECT_EQ(call({3, 1, 4, 4, 0, 0, 1}, 3), "attention: got row size of q 8, expected 12");
  EXPECT_EQ(message_of([&] { kv_append(cache, 0, {d.data(), 1, 3}, std::vector<int32_t>{0}); }),
            "kv_append: got row size of kv 3, expected 4");
  EXPECT_EQ(message_of([&] { kv_append(cache, 1, {d.data(), 1, 4}, std::vector<int32_t>{0}); }),
            "kv_append: got layer 1 in row 0, expected 0 to 0");
  EXPECT_EQ(message_of([&] { kv_append(cache, 0, {d.data(), 1, 4}, std::vector<int32_t>{8}); }),
            "kv cache: got 9 tokens in sequence 0, expected at most 8");
  EXPECT_EQ(message_of([&] {
              compress_append(cache, 0, {d.data(), 1, 4}, {}, std::vector<int32_t>{0}, d.data(), {2, 1e4, 0});
            }),
            "compress_append: got ratio of the layer 0, expected 1 or more");
}

TEST(HeadLinear, OneMatrixAHeadFromAPartOfIt) {
  const int64_t t = 3, heads = 2, k = 3, n = 5;
  const HeadPart part{7, 2, k};
  const auto x = random_floats(t * heads * part.head, 1), w = random_floats(heads * n * k, 2);
  auto y = poisoned(t * heads * n);
  head_linear({x.data(), t, heads * part.head}, heads, part, w.data(), {y.data(), t, heads * n});
  std::vector<double> expected;
  for (int64_t i = 0; i < t; ++i)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t j = 0; j < n; ++j) {
        expected.push_back(0);
        for (int64_t c = 0; c < k; ++c)
          expected.back() +=
              static_cast<double>(x[(i * heads + h) * part.head + part.offset + c]) * w[(h * n + j) * k + c];
      }
  EXPECT_LT(error_of(y, expected), rounding);
  EXPECT_EQ(
      message_of([&] { head_linear({x.data(), t, 14}, heads, {7, 5, 3}, w.data(), {y.data(), t, 10}); }),
      "head_linear: got 3 dims from 5, expected a part of a head of 7");
}

TEST(HeadConcat, PutsPartsSideBySideAHead) {
  const std::vector<float> a{1, 2, 3, 4}, b{10, 11, 12, 13, 14, 15};
  std::vector<float> y = poisoned(8);
  head_concat({a.data(), 1, 4}, {b.data(), 1, 6}, 2, {3, 1, 2}, {y.data(), 1, 8});
  EXPECT_EQ(y, (std::vector<float>{1, 2, 11, 12, 3, 4, 14, 15}));
  EXPECT_EQ(
      message_of([&] { head_concat({a.data(), 1, 4}, {b.data(), 1, 6}, 2, {3, 1, 2}, {y.data(), 1, 7}); }),
      "head_concat: got row size of y 7, expected 8");
  EXPECT_EQ(
      message_of([&] { head_concat({a.data(), 1, 4}, {b.data(), 1, 6}, 2, {3, 2, 2}, {y.data(), 1, 8}); }),
      "head_concat: got 2 dims from 2, expected a part of a head of 3");
}

TEST(OGroupProj, IsOneMatrixAGroup) {
  const auto o = random_floats(2 * 6, 1), w = random_floats(3 * 4 * 2, 2);
  auto r = poisoned(2 * 12), expected = poisoned(2 * 12);
  o_group_proj({o.data(), 2, 6}, 3, w.data(), {r.data(), 2, 12});
  head_linear({o.data(), 2, 6}, 3, {2, 0, 2}, w.data(), {expected.data(), 2, 12});
  EXPECT_EQ(r, expected);
  EXPECT_NEAR(r[0], o[0] * w[0] + o[1] * w[1], 1e-6);
  EXPECT_NEAR(r[11], o[4] * w[22] + o[5] * w[23], 1e-6);
  EXPECT_EQ(message_of([&] { o_group_proj({o.data(), 2, 6}, 4, w.data(), {r.data(), 2, 12}); }),
            "o_group_proj: got row size of o modulo groups 2, expected 0");
}

} // namespace
} // namespace paratope
