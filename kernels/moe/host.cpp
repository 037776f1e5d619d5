// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe/op.h"

#include "kernels/dot.h"
#include "kernels/error.h"
#include "kernels/exp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace paratope {
namespace {

void check_gate(ConstRows x, const GateOptions &options, std::span<const int32_t> drawn,
                std::span<const int32_t> idx, ConstRows w) {
  const int64_t experts = options.experts, k = options.top_k;
  check_positive("gate", "experts", experts);
  if (k < 1 || k > experts)
    throw KernelError(fmt::format("gate: got top_k {}, expected 1 to {}", k, experts));
  if (options.groups < 1 || experts % options.groups != 0)
    throw KernelError(
        fmt::format("gate: got {} groups, expected a divisor of {} experts", options.groups, experts));
  if (options.top_groups < 1 || options.top_groups > options.groups)
    throw KernelError(
        fmt::format("gate: got top_groups {}, expected 1 to {}", options.top_groups, options.groups));
  if (options.groups > 1 && k > experts / options.groups * options.top_groups)
    throw KernelError(fmt::format("gate: got top_k {}, expected at most {}, the experts of {} of {} groups",
                                  k, experts / options.groups * options.top_groups, options.top_groups,
                                  options.groups));
  check_equal("gate", "idx", static_cast<int64_t>(idx.size()), x.rows * k);
  check_equal("gate", "rows of w", w.rows, x.rows);
  check_equal("gate", "row size of w", w.row_size, k);
  if (!drawn.empty())
    check_equal("gate", "drawn experts", static_cast<int64_t>(drawn.size()), x.rows * k);
}

void score_logits(std::vector<double> &s, Score score) {
  switch (score) {
  case Score::softmax: {
    const double largest = *std::max_element(s.begin(), s.end());
    double total = 0;
    for (double &value : s)
      value -= largest;
    exp_each(s.data(), static_cast<int64_t>(s.size()));
    for (double value : s)
      total += value;
    for (double &value : s)
      value /= total;
    break;
  }
  case Score::sigmoid:
    for (double &value : s)
      value = -value;
    exp_each(s.data(), static_cast<int64_t>(s.size()));
    for (double &value : s)
      value = 1.0 / (1.0 + value);
    break;
  case Score::sqrtsoftplus: // softplus as max(x, 0) + log1p(e^−|x|), which cannot overflow
    for (double &value : s)
      value = std::sqrt(std::max(value, 0.0) + std::log1p(std::exp(-std::abs(value))));
    break;
  }
}

// Indices of the `count` largest of values[i], i in candidates, descending, lowest index on ties.
void largest_of(const std::vector<double> &values, std::vector<int64_t> &candidates, int64_t count) {
  std::partial_sort(
      candidates.begin(), candidates.begin() + count, candidates.end(),
      [&](int64_t a, int64_t b) { return values[a] > values[b] || (values[a] == values[b] && a < b); });
  candidates.resize(static_cast<size_t>(count));
}

// The experts of the best groups: a group is as good as its two largest values' sum.
void candidates_of(const std::vector<double> &values, const GateOptions &options,
                   std::vector<int64_t> &candidates) {
  candidates.resize(static_cast<size_t>(options.experts));
  std::iota(candidates.begin(), candidates.end(), 0);
  if (options.groups == 1)
    return;
  const int64_t size = options.experts / options.groups;
  std::vector<double> group_value(static_cast<size_t>(options.groups));
  for (int64_t g = 0; g < options.groups; ++g) {
    double first = -INFINITY, second = -INFINITY;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, values[e]));
      first = std::max(first, values[e]);
    }
    group_value[g] = size > 1 ? first + second : first;
  }
  std::vector<int64_t> groups(static_cast<size_t>(options.groups));
  std::iota(groups.begin(), groups.end(), 0);
  largest_of(group_value, groups, options.top_groups);
  candidates.clear();
  for (int64_t g : groups)
    for (int64_t e = g * size; e < (g + 1) * size; ++e)
      candidates.push_back(e);
}

// Rows of x by slot: a slot's rows meet its matrix [outputs, inputs] of w.
void product_by_slots(const char *op, ConstRows x, std::span<const int64_t> offsets, const float *w, Rows y) {
  check_equal(op, "rows of the output", y.rows, x.rows);
  check_positive(op, "offsets", static_cast<int64_t>(offsets.size()));
  check_equal(op, "first offset", offsets.front(), 0);
  check_equal(op, "last offset", offsets.back(), x.rows);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t first = offsets[s], rows = offsets[s + 1] - first;
    if (rows < 0 || first + rows > x.rows)
      throw KernelError(fmt::format("{}: got rows {} to {} for slot {}, expected ascending offsets", op,
                                    first, offsets[s + 1], s));
    const float *expert = w + static_cast<int64_t>(s) * y.row_size * x.row_size;
    if (rows > 0)
      dot_block(x.row(first), x.row_size, rows, expert, x.row_size, y.row_size, x.row_size, y.row(first),
                y.row_size);
  }
}

// h holds a gate and an up of equal widths.
void check_gate_up(const char *op, ConstRows h) {
  check_positive(op, "row size of h", h.row_size);
  check_equal(op, "row size of h modulo 2", h.row_size % 2, 0);
}

} // namespace

Score score_named(const std::string &name) {
  if (name == "softmax")
    return Score::softmax;
  if (name == "sigmoid")
    return Score::sigmoid;
  if (name == "sqrtsoftplus")
    return Score::sqrtsoftplus;
  throw KernelError(fmt::format("gate: got score '{}', expected softmax, sigmoid or sqrtsoftplus", name));
}

void gate(ConstRows x, const float *wg, const float *bias, const GateOptions &options,
          std::span<const int32_t> drawn, std::span<int32_t> idx, Rows w) {
  check_gate(x, options, drawn, idx, w);
  const int64_t experts = options.experts, k = options.top_k;
  std::vector<double> s(static_cast<size_t>(experts)), choosing(s.size());
  std::vector<int64_t> chosen;
  for (int64_t t = 0; t < x.rows; ++t) {
    dot_block(x.row(t), 0, 1, wg, x.row_size, experts, x.row_size, s.data(), experts);
    for (int64_t e = 0; e < experts; ++e)
      if (std::isnan(s[e]))
        throw KernelError(
            fmt::format("gate: got NaN as the score of expert {} in row {}, expected a number", e, t));
    score_logits(s, options.score);
    if (drawn.empty()) {
      for (int64_t e = 0; e < experts; ++e)
        choosing[e] = s[e] + (bias ? bias[e] : 0.0F);
      candidates_of(choosing, options, chosen);
      largest_of(choosing, chosen, k);
    } else {
      chosen.assign(drawn.begin() + t * k, drawn.begin() + (t + 1) * k);
      for (int64_t i = 0; i < k; ++i) {
        check_index("gate", "drawn expert", chosen[i], experts, t);
        if (std::find(chosen.begin(), chosen.begin() + i, chosen[i]) != chosen.begin() + i)
          throw KernelError(fmt::format(
              "gate: got expert {} drawn twice in row {}, expected distinct experts", chosen[i], t));
      }
    }
    double total = 0;
    for (int64_t e : chosen)
      total += s[e];
    const double factor = options.scaling / (options.normalise ? total + 1e-20 : 1.0);
    for (int64_t i = 0; i < k; ++i) {
      idx[t * k + i] = static_cast<int32_t>(chosen[i]);
      w.row(t)[i] = static_cast<float>(s[chosen[i]] * factor);
    }
  }
}

void gate_up(ConstRows x, const float *w13, Rows h) {
  check_gate_up("gate_up", h);
  check_equal("gate_up", "rows of h", h.rows, x.rows);
  dot_block(x.data, x.row_size, x.rows, w13, x.row_size, h.row_size, x.row_size, h.data, h.row_size);
}

void swiglu(ConstRows h, double limit, Rows a) {
  check_gate_up("swiglu", h);
  check_equal("swiglu", "row size of a", a.row_size, h.row_size / 2);
  check_equal("swiglu", "rows of a", a.rows, h.rows);
  const int64_t width = a.row_size;
  std::vector<double> g(static_cast<size_t>(width)), e(g.size());
  for (int64_t t = 0; t < h.rows; ++t) {
    const float *gate = h.row(t), *up = gate + width;
    for (int64_t i = 0; i < width; ++i)
      g[i] = limit > 0 ? static_cast<float>(std::min<double>(gate[i], limit)) : gate[i];
    for (int64_t i = 0; i < width; ++i)
      e[i] = -g[i];
    exp_each(e.data(), width);
    for (int64_t i = 0; i < width; ++i) {
      const float u = limit > 0 ? static_cast<float>(std::clamp<double>(up[i], -limit, limit)) : up[i];
      a.row(t)[i] = static_cast<float>(g[i] / (1.0 + e[i]) * u);
    }
  }
}

void expert_gate_up(ConstRows x, std::span<const int64_t> offsets, const float *w13, Rows h) {
  check_gate_up("expert_gate_up", h);
  product_by_slots("expert_gate_up", x, offsets, w13, h);
}

void expert_down(ConstRows a, std::span<const int64_t> offsets, const float *w2, Rows y) {
  check_positive("expert_down", "row size of y", y.row_size);
  product_by_slots("expert_down", a, offsets, w2, y);
}

void local_experts(ConstRows x, std::span<const int32_t> idx, ConstRows w,
                   std::span<const int64_t> token_numbers, const SlotTable &table, int64_t block,
                   const float *w13, const float *w2, int64_t width, double limit, Rows y) {
  check_positive("local_experts", "width", width);
  check_equal("local_experts", "rows of y", y.rows, x.rows);
  check_equal("local_experts", "row size of y", y.row_size, x.row_size);
  check_equal("local_experts", "rows of w", w.rows, x.rows);
  check_index("local_experts", "block", block, table.blocks(), 0);
  // The same path as an exchange with one source and one destination: pack, order, compute, combine.
  std::vector<DispatchList> lists;
  pack_dispatch(idx, w, token_numbers, table, lists);
  const DispatchList &mine = lists[block];
  const DispatchList *const received[] = {&mine};
  ExpertRows order;
  order_rows(received, table.local, order);

  const int64_t hidden = x.row_size;
  std::vector<float> sent(mine.tokens.size() * hidden), in(order.rows() * hidden), out(in.size());
  const Rows sent_rows{sent.data(), static_cast<int64_t>(mine.tokens.size()), hidden};
  pack_rows(x, mine, sent_rows);
  const ConstRows sources[] = {sent_rows};
  expand_rows(sources, order, {in.data(), order.rows(), hidden});
  std::vector<float> gate_ups(order.rows() * 2 * width), activated(order.rows() * width);
  const Rows h{gate_ups.data(), order.rows(), 2 * width}, a{activated.data(), order.rows(), width};
  expert_gate_up({in.data(), order.rows(), hidden}, order.offsets, w13, h);
  swiglu(h, limit, a);
  expert_down(a, order.offsets, w2, {out.data(), order.rows(), hidden});
  combine_rows({out.data(), order.rows(), hidden}, order, 0, sent_rows);
  combine_accumulate({&mine, 1}, sources, {}, y);
}

} // namespace paratope
