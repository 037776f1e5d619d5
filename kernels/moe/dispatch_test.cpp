// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe/dispatch.h"

#include "kernels/testing.h"

#include <map>
#include <set>

namespace paratope {
namespace {

using namespace testing_support;

// k distinct experts a token, drawn.
std::vector<int32_t> draw(int64_t tokens, int64_t k, int64_t experts, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> idx;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> all(static_cast<size_t>(experts));
    for (int64_t e = 0; e < experts; ++e)
      all[e] = static_cast<int32_t>(e);
    std::shuffle(all.begin(), all.end(), generator);
    idx.insert(idx.end(), all.begin(), all.begin() + k);
  }
  return idx;
}

std::vector<int64_t> numbers_from(int64_t first, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(first + i);
  return numbers;
}

TEST(SlotTable, ListsSlotsOfEachExpertAscending) {
  const SlotTable table = slot_table(std::vector<int64_t>{2, 0, 1, 0, 2, 2}, 3, 2);
  EXPECT_EQ(table.local, 3);
  EXPECT_EQ(table.blocks(), 2);
  EXPECT_EQ(table.first, (std::vector<int64_t>{0, 2, 3, 6}));
  EXPECT_EQ(table.slots, (std::vector<int64_t>{1, 3, 2, 0, 4, 5}));
}

TEST(SlotTable, RefusesTablesThatDoNotFit) {
  auto call = [](std::vector<int64_t> experts, int64_t logical, int64_t ep) {
    return message_of([&] { slot_table(experts, logical, ep); });
  };
  EXPECT_EQ(call({0, 1, 0}, 2, 2), "slot table: got 3 slots, expected a multiple of ep 2");
  EXPECT_EQ(call({}, 2, 2), "slot table: got 0 slots, expected a multiple of ep 2");
  EXPECT_EQ(call({0, 2}, 2, 2), "slot table: got expert 2 in row 1, expected 0 to 1");
  EXPECT_EQ(call({0, 0}, 2, 2), "slot table: got no slot for expert 1, expected 1 or more");
  EXPECT_EQ(call({0, 0}, 1, 0), "slot table: got ep 0, expected 1 or more");
}

TEST(SlotOf, SpreadsTokensOverReplicasTheSameWayEveryTime) {
  const SlotTable table = slot_table(std::vector<int64_t>{0, 1, 0, 0}, 2, 2);
  std::map<int64_t, int> uses;
  for (int64_t t = 0; t < 3000; ++t) {
    EXPECT_EQ(slot_of(table, t, 1), 1);
    EXPECT_EQ(slot_of(table, t, 0), slot_of(table, t, 0));
    ++uses[slot_of(table, t, 0)];
  }
  EXPECT_EQ(uses.size(), 3U);
  for (const auto &[slot, count] : uses)
    EXPECT_NEAR(count, 1000, 100) << slot; // 3.9 standard deviations
  EXPECT_EQ(message_of([&] { slot_of(table, 7, 2); }), "slot table: got expert 2 in row 7, expected 0 to 1");
}

// Whole exchanges over a simulated group: sources of unequal sizes, one of them empty.
class Exchange : public testing::TestWithParam<int64_t> {}; // ep

TEST_P(Exchange, ConservesTokensOrdersRowsAndCombines) {
  const int64_t ep = GetParam(), logical = 10, k = 3, hidden = 5, physical = (logical + 2 + ep - 1) / ep * ep;
  std::vector<int64_t> expert_of;
  for (int64_t p = 0; p < physical; ++p)
    expert_of.push_back(p * 7 % logical);
  const SlotTable table = slot_table(expert_of, logical, ep);
  const int64_t local = table.local;

  std::vector<std::vector<DispatchList>> lists(static_cast<size_t>(ep)); // [source][destination]
  std::vector<std::vector<float>> x, w;
  std::vector<std::vector<int32_t>> idx;
  std::vector<int64_t> tokens, first_token;
  int64_t total = 0;
  for (int64_t s = 0; s < ep; ++s) {
    tokens.push_back(s == 1 ? 0 : 2 + s);
    first_token.push_back(total);
    total += tokens[s];
    idx.push_back(draw(tokens[s], k, logical, static_cast<uint32_t>(s)));
    x.push_back(random_floats(tokens[s] * hidden, static_cast<uint32_t>(10 + s)));
    w.push_back(random_floats(tokens[s] * k, static_cast<uint32_t>(20 + s)));
    pack_dispatch(idx[s], {w[s].data(), tokens[s], k}, numbers_from(first_token[s], tokens[s]), table,
                  lists[s]);
    int64_t entries = 0;
    for (const DispatchList &list : lists[s]) {
      EXPECT_TRUE(std::is_sorted(list.tokens.begin(), list.tokens.end()));
      EXPECT_EQ(std::set<int32_t>(list.tokens.begin(), list.tokens.end()).size(), list.tokens.size());
      entries += static_cast<int64_t>(list.entries.size());
    }
    EXPECT_EQ(entries, tokens[s] * k);
  }

  // Each destination: order, expand, an "expert" that scales by its logical number + 1, combine.
  std::vector<std::vector<std::vector<float>>> returned(static_cast<size_t>(ep)); // [source][destination]
  int64_t rows_received = 0;
  for (int64_t d = 0; d < ep; ++d) {
    std::vector<const DispatchList *> received;
    std::vector<std::vector<float>> sent;
    std::vector<ConstRows> sent_rows;
    for (int64_t s = 0; s < ep; ++s) {
      const DispatchList &list = lists[s][d];
      const auto count = static_cast<int64_t>(list.tokens.size());
      received.push_back(&list);
      sent.push_back(poisoned(count * hidden));
      pack_rows({x[s].data(), tokens[s], hidden}, list, {sent.back().data(), count, hidden});
    }
    for (int64_t s = 0; s < ep; ++s)
      sent_rows.push_back({sent[s].data(), static_cast<int64_t>(lists[s][d].tokens.size()), hidden});
    ExpertRows order;
    order_rows(received, local, order);
    rows_received += order.rows();
    EXPECT_EQ(order.offsets.front(), 0);
    EXPECT_EQ(order.offsets.back(), order.rows());
    auto rows = poisoned(order.rows() * hidden);
    expand_rows(sent_rows, order, {rows.data(), order.rows(), hidden});
    for (int64_t slot = 0; slot < local; ++slot)
      for (int64_t r = order.offsets[slot]; r < order.offsets[slot + 1]; ++r) {
        if (r > order.offsets[slot]) {
          const RowOrigin &a = order.origins[r - 1], &b = order.origins[r];
          EXPECT_TRUE(a.source < b.source || (a.source == b.source && a.token < b.token));
        }
        for (int64_t h = 0; h < hidden; ++h)
          rows[r * hidden + h] *= static_cast<float>(expert_of[d * local + slot] + 1);
      }
    for (int64_t s = 0; s < ep; ++s) {
      const auto count = static_cast<int64_t>(lists[s][d].tokens.size());
      returned[s].push_back(poisoned(count * hidden));
      combine_rows({rows.data(), order.rows(), hidden}, order, s, {returned[s].back().data(), count, hidden});
    }
  }
  EXPECT_EQ(rows_received, total * k);

  for (int64_t s = 0; s < ep; ++s) {
    const auto shared = random_floats(tokens[s] * hidden, 99);
    auto y = shared; // in place
    std::vector<ConstRows> parts;
    for (int64_t d = 0; d < ep; ++d)
      parts.push_back({returned[s][d].data(), static_cast<int64_t>(lists[s][d].tokens.size()), hidden});
    combine_accumulate(lists[s], parts, {y.data(), tokens[s], hidden}, {y.data(), tokens[s], hidden});
    std::vector<double> expected(shared.begin(), shared.end());
    for (int64_t t = 0; t < tokens[s]; ++t)
      for (int64_t i = 0; i < k; ++i)
        for (int64_t h = 0; h < hidden; ++h)
          expected[t * hidden + h] +=
              static_cast<double>(w[s][t * k + i]) * (idx[s][t * k + i] + 1) * x[s][t * hidden + h];
    EXPECT_LT(error_of(y, expected), 3 * rounding);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Exchange, testing::Values(1, 2, 3, 4, 8));

TEST(Dispatch, PaddingGoesNowhereAndGetsItsSharedRowBack) {
  const SlotTable table = slot_table(std::vector<int64_t>{0, 1}, 2, 2);
  const std::vector<int32_t> idx{0, -5, 1}; // what a padding row chose means nothing
  const std::vector<float> w{1, NAN, 1}, x{1, NAN, 3}, shared{10, 20, 30};
  std::vector<DispatchList> lists;
  pack_dispatch(idx, {w.data(), 3, 1}, std::vector<int64_t>{5, -1, 6}, table, lists);
  EXPECT_EQ(lists[0].tokens, std::vector<int32_t>{0});
  EXPECT_EQ(lists[1].tokens, std::vector<int32_t>{2});
  const ConstRows returned[] = {{x.data(), 1, 1}, {x.data() + 2, 1, 1}};
  std::vector<float> y(3, NAN);
  combine_accumulate(lists, returned, {shared.data(), 3, 1}, {y.data(), 3, 1});
  EXPECT_EQ(y, (std::vector<float>{11, 20, 33}));
  combine_accumulate(lists, returned, {}, {y.data(), 3, 1});
  EXPECT_EQ(y, (std::vector<float>{1, 0, 3}));
}

TEST(Dispatch, RefusesExpertsThatCannotBe) {
  const SlotTable table = slot_table(std::vector<int64_t>{0, 1, 2, 3}, 4, 2);
  const std::vector<float> w(4, 0.5F);
  std::vector<DispatchList> lists;
  auto call = [&](std::vector<int32_t> idx) {
    return message_of([&] { pack_dispatch(idx, {w.data(), 2, 2}, numbers_from(0, 2), table, lists); });
  };
  EXPECT_EQ(call({0, 1, 2, 4}), "dispatch: got expert 4 in row 1, expected 0 to 3");
  EXPECT_EQ(call({0, -1, 2, 3}), "dispatch: got expert -1 in row 0, expected 0 to 3");
  EXPECT_EQ(call({0, 1, 3, 3}), "dispatch: got expert 3 twice in row 1, expected distinct experts");
  EXPECT_EQ(call({0, 1}), "dispatch: got chosen experts 2, expected 4");
}

TEST(Dispatch, RefusesListsThatCannotBe) {
  const DispatchList wrong_slot{{0}, {{0, 2, 1}}}, wrong_token{{0}, {{1, 0, 1}}},
      right{{0, 1}, {{0, 1, 1}, {1, 1, 1}}};
  ExpertRows order;
  auto call = [&](const DispatchList &list, int64_t max_rows) {
    const DispatchList *const received[] = {&list};
    return message_of([&] { order_rows(received, 2, order, max_rows); });
  };
  EXPECT_EQ(call(wrong_slot, -1), "dispatch: got local slot 2 in row 0, expected 0 to 1");
  EXPECT_EQ(call(wrong_token, -1), "dispatch: got token of a list 1 in row 0, expected 0 to 0");
  EXPECT_EQ(call(right, 1), "dispatch: got 2 rows for the local experts, expected at most 1");
  EXPECT_EQ(call(right, 2), "no error");
  std::vector<float> x(8);
  EXPECT_EQ(message_of([&] { combine_rows({x.data(), 2, 2}, order, 1, {x.data(), 2, 2}); }),
            "combine: got source 1 in row 0, expected 0 to 0");
  EXPECT_EQ(message_of([&] { pack_rows({x.data(), 1, 2}, right, {x.data(), 2, 2}); }),
            "dispatch: got token 1 in row 1, expected 0 to 0");
  const ConstRows returned[] = {{x.data(), 1, 2}};
  EXPECT_EQ(message_of([&] { combine_accumulate({&right, 1}, returned, {}, {x.data(), 2, 2}); }),
            "combine: got returned rows 1, expected 2");
}

} // namespace
} // namespace paratope
