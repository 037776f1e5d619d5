// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe/dispatch.h"

#include "kernels/error.h"

#include <algorithm>

#include <fmt/format.h>

namespace paratope {
namespace {

// splitmix64's finaliser: every output bit depends on every input bit.
uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

} // namespace

SlotTable slot_table(std::span<const int64_t> expert_of, int64_t logical, int64_t ep) {
  const auto physical = static_cast<int64_t>(expert_of.size());
  check_positive("slot table", "ep", ep);
  check_positive("slot table", "experts", logical);
  if (physical == 0 || physical % ep != 0)
    throw KernelError(fmt::format("slot table: got {} slots, expected a multiple of ep {}", physical, ep));
  SlotTable table{logical, physical, physical / ep, {expert_of.begin(), expert_of.end()}, {}, {}};
  table.first.assign(static_cast<size_t>(logical + 1), 0);
  for (int64_t p = 0; p < physical; ++p) {
    check_index("slot table", "expert", expert_of[p], logical, p);
    ++table.first[expert_of[p] + 1];
  }
  for (int64_t e = 0; e < logical; ++e) {
    if (table.first[e + 1] == 0)
      throw KernelError(fmt::format("slot table: got no slot for expert {}, expected 1 or more", e));
    table.first[e + 1] += table.first[e];
  }
  std::vector<int64_t> next(table.first.begin(), table.first.end() - 1);
  table.slots.resize(static_cast<size_t>(physical));
  for (int64_t p = 0; p < physical; ++p)
    table.slots[next[expert_of[p]]++] = p;
  return table;
}

int64_t slot_of(const SlotTable &table, int64_t token_number, int64_t expert) {
  check_index("slot table", "expert", expert, table.logical, token_number);
  const int64_t first = table.first[expert], replicas = table.first[expert + 1] - first;
  if (replicas == 1)
    return table.slots[first];
  const uint64_t hash =
      mix64(mix64(static_cast<uint64_t>(token_number) + 0x9E3779B97F4A7C15) ^ static_cast<uint64_t>(expert));
  return table.slots[first + static_cast<int64_t>(hash % static_cast<uint64_t>(replicas))];
}

void pack_dispatch(std::span<const int32_t> idx, ConstRows w, std::span<const int64_t> token_numbers,
                   const SlotTable &table, std::vector<DispatchList> &lists) {
  const int64_t k = w.row_size;
  check_equal("dispatch", "chosen experts", static_cast<int64_t>(idx.size()), w.rows * k);
  check_equal("dispatch", "token numbers", static_cast<int64_t>(token_numbers.size()), w.rows);
  lists.resize(static_cast<size_t>(table.blocks()));
  for (DispatchList &list : lists) {
    list.tokens.clear();
    list.entries.clear();
  }
  std::vector<std::pair<int64_t, float>> slots(
      static_cast<size_t>(k)); // of one token, by slot: by rank, then slot
  for (int64_t t = 0; t < w.rows; ++t) {
    if (token_numbers[t] < 0)
      continue; // padding
    for (int64_t i = 0; i < k; ++i) {
      check_index("dispatch", "expert", idx[t * k + i], table.logical, t);
      slots[i] = {slot_of(table, token_numbers[t], idx[t * k + i]), w.row(t)[i]};
    }
    std::sort(slots.begin(), slots.end(), [](auto &a, auto &b) { return a.first < b.first; });
    for (int64_t i = 0; i < k; ++i) {
      const auto [slot, weight] = slots[i];
      if (i > 0 && slot == slots[i - 1].first)
        throw KernelError(fmt::format("dispatch: got expert {} twice in row {}, expected distinct experts",
                                      table.expert_of[slot], t));
      DispatchList &list = lists[slot / table.local];
      if (list.tokens.empty() || list.tokens.back() != t)
        list.tokens.push_back(static_cast<int32_t>(t));
      list.entries.push_back(
          {static_cast<int32_t>(list.tokens.size() - 1), static_cast<int32_t>(slot % table.local), weight});
    }
  }
}

void pack_rows(ConstRows x, const DispatchList &list, Rows out) {
  check_equal("dispatch", "rows to send", out.rows, static_cast<int64_t>(list.tokens.size()));
  check_equal("dispatch", "row size", out.row_size, x.row_size);
  for (int64_t i = 0; i < out.rows; ++i) {
    check_index("dispatch", "token", list.tokens[i], x.rows, i);
    std::copy_n(x.row(list.tokens[i]), x.row_size, out.row(i));
  }
}

void order_rows(std::span<const DispatchList *const> received, int64_t local, ExpertRows &order,
                int64_t max_rows) {
  order.source_first.assign(1, 0);
  order.offsets.assign(static_cast<size_t>(local + 1), 0);
  int64_t total = 0;
  for (size_t source = 0; source < received.size(); ++source) {
    const DispatchList &list = *received[source];
    const auto tokens = static_cast<int64_t>(list.tokens.size());
    for (const SlotEntry &entry : list.entries) {
      check_index("dispatch", "local slot", entry.slot, local, static_cast<int64_t>(source));
      check_index("dispatch", "token of a list", entry.token, tokens, static_cast<int64_t>(source));
      ++order.offsets[entry.slot + 1];
      ++total;
    }
    order.source_first.push_back(order.source_first.back() + tokens);
  }
  if (max_rows >= 0 && total > max_rows)
    throw KernelError(
        fmt::format("dispatch: got {} rows for the local experts, expected at most {}", total, max_rows));
  for (int64_t s = 0; s < local; ++s)
    order.offsets[s + 1] += order.offsets[s];

  // A stable pass over sources and their entries (by token) fills each slot's rows in (source, token) order.
  std::vector<int64_t> next(order.offsets.begin(), order.offsets.end() - 1);
  order.origins.resize(static_cast<size_t>(total));
  for (size_t source = 0; source < received.size(); ++source)
    for (const SlotEntry &entry : received[source]->entries)
      order.origins[next[entry.slot]++] = {static_cast<int32_t>(source), entry.token, entry.weight};

  order.rows_first.assign(static_cast<size_t>(order.source_first.back() + 1), 0);
  for (const RowOrigin &origin : order.origins)
    ++order.rows_first[order.source_first[origin.source] + origin.token + 1];
  for (size_t i = 1; i < order.rows_first.size(); ++i)
    order.rows_first[i] += order.rows_first[i - 1];
  next.assign(order.rows_first.begin(), order.rows_first.end() - 1);
  order.rows_of.resize(static_cast<size_t>(total));
  for (int64_t r = 0; r < total; ++r) {
    const RowOrigin &origin = order.origins[r];
    order.rows_of[next[order.source_first[origin.source] + origin.token]++] = r;
  }
}

void expand_rows(std::span<const ConstRows> received, const ExpertRows &order, Rows out) {
  check_equal("dispatch", "sources", static_cast<int64_t>(received.size()),
              static_cast<int64_t>(order.source_first.size()) - 1);
  check_equal("dispatch", "rows", out.rows, order.rows());
  for (size_t s = 0; s < received.size(); ++s) {
    check_equal("dispatch", "rows of a source", received[s].rows,
                order.source_first[s + 1] - order.source_first[s]);
    if (received[s].rows > 0)
      check_equal("dispatch", "row size of a source", received[s].row_size, out.row_size);
  }
  for (int64_t r = 0; r < out.rows; ++r) {
    const RowOrigin &origin = order.origins[r];
    std::copy_n(received[origin.source].row(origin.token), out.row_size, out.row(r));
  }
}

void combine_rows(ConstRows rows, const ExpertRows &order, int64_t source, Rows sums) {
  check_equal("combine", "rows", rows.rows, order.rows());
  check_index("combine", "source", source, static_cast<int64_t>(order.source_first.size()) - 1, 0);
  const int64_t first = order.source_first[source];
  check_equal("combine", "tokens of the source", sums.rows, order.source_first[source + 1] - first);
  check_equal("combine", "row size", sums.row_size, rows.row_size);
  std::vector<double> total(static_cast<size_t>(rows.row_size));
  for (int64_t i = 0; i < sums.rows; ++i) {
    std::fill(total.begin(), total.end(), 0.0);
    for (int64_t j = order.rows_first[first + i]; j < order.rows_first[first + i + 1]; ++j) {
      const int64_t r = order.rows_of[j];
      const double weight = order.origins[r].weight;
      for (int64_t h = 0; h < rows.row_size; ++h)
        total[h] += weight * rows.row(r)[h];
    }
    for (int64_t h = 0; h < rows.row_size; ++h)
      sums.row(i)[h] = static_cast<float>(total[h]);
  }
}

void combine_accumulate(std::span<const DispatchList> lists, std::span<const ConstRows> returned,
                        ConstRows shared, Rows y) {
  check_equal("combine", "destinations", static_cast<int64_t>(returned.size()),
              static_cast<int64_t>(lists.size()));
  for (size_t d = 0; d < lists.size(); ++d) {
    check_equal("combine", "returned rows", returned[d].rows, static_cast<int64_t>(lists[d].tokens.size()));
    if (returned[d].rows > 0)
      check_equal("combine", "row size", returned[d].row_size, y.row_size);
    for (int32_t token : lists[d].tokens)
      check_index("combine", "token", token, y.rows, static_cast<int64_t>(d));
  }
  if (shared.data) {
    check_equal("combine", "rows of shared", shared.rows, y.rows);
    check_equal("combine", "row size of shared", shared.row_size, y.row_size);
  }
  // A token's place in each list, walked in step: lists are ascending by token.
  std::vector<size_t> next(lists.size(), 0);
  std::vector<double> total(static_cast<size_t>(y.row_size));
  for (int64_t t = 0; t < y.rows; ++t) {
    std::fill(total.begin(), total.end(), 0.0);
    for (size_t d = 0; d < lists.size(); ++d) {
      if (next[d] == lists[d].tokens.size() || lists[d].tokens[next[d]] != t)
        continue;
      const float *row = returned[d].row(static_cast<int64_t>(next[d]++));
      for (int64_t h = 0; h < y.row_size; ++h)
        total[h] += row[h];
    }
    for (int64_t h = 0; h < y.row_size; ++h)
      y.row(t)[h] = static_cast<float>(total[h] + (shared.data ? shared.row(t)[h] : 0.0F));
  }
}

} // namespace paratope
