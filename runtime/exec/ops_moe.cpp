// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the experts: who is chosen, and what the chosen compute. How rows reach them is
// ops_exchange.cpp.
#include "kernels/moe/op.h"
#include "runtime/exec/op.h"
#include "runtime/weights/routing.h"

#include <algorithm>

#include <fmt/format.h>

namespace paratope {
namespace {

// A placeholder's token is numbered past all others, and stands at position 0.
int64_t position_of(const Call &call, int64_t token) {
  const plan::Batch &batch = call.program.batch;
  if (token >= batch.tokens)
    return 0;
  const plan::Sequence &sequence = batch.sequences[static_cast<size_t>(batch.sequence_of(token))];
  return sequence.position(call.step, token - sequence.first_token);
}

// What a token chose, for the comparison with the reference; padding chose nothing.
void keep_choices(Call &call, int64_t top_k, std::span<const int32_t> idx) {
  Rank::Choice choice{call.step, call.instruction.layer, top_k, {}, {}};
  const std::vector<int64_t> &tokens = call.tokens(0);
  for (size_t t = 0; t < tokens.size(); ++t)
    if (tokens[t] != padding) {
      auto mine = idx.subspan(t * static_cast<size_t>(top_k), static_cast<size_t>(top_k));
      choice.tokens.push_back(tokens[t]);
      choice.experts.insert(choice.experts.end(), mine.begin(), mine.end());
    }
  call.rank.choices.push_back(std::move(choice));
}

void run_gate(Call &call) {
  ConstRows x = call.input(0);
  GateOptions options;
  options.experts = call.program.plan->experts.logical;
  options.top_k = call.integer("top_k");
  options.groups = call.integer("groups", 1);
  options.top_groups = call.integer("top_groups", 1);
  options.score = score_named(call.word("score"));
  options.normalise = call.integer("normalise", 0) != 0;
  options.scaling = call.number("scaling", 1);
  std::span<int32_t> idx = call.output_i32(0, x.rows);
  Rows w = call.output(1, x.rows);
  const std::vector<int64_t> &tokens = call.tokens(0);
  std::vector<int32_t> &drawn = call.rank.drawn;
  drawn.clear();
  if (call.program.draw) {
    drawn.resize(static_cast<size_t>(x.rows * options.top_k));
    for (size_t t = 0; t < tokens.size(); ++t) // padding: anyone's, since it is sent nowhere
      draw_experts(*call.program.draw, std::max<int64_t>(tokens[t], 0),
                   tokens[t] == padding ? 0 : position_of(call, tokens[t]),
                   std::span(drawn).subspan(t * static_cast<size_t>(options.top_k),
                                            static_cast<size_t>(options.top_k)));
  }
  gate(x, call.weight(0, {options.experts, x.row_size}), call.optional_weight(1, {options.experts}), options,
       drawn, idx, w);
  if (call.program.keep_outputs)
    keep_choices(call, options.top_k, idx);
}

const Exchange &table_of(const Call &call) {
  auto table = call.rank.tables.find(call.instruction.inputs[1]);
  if (table == call.rank.tables.end())
    call.fail("got a table that no dispatch has filled, or that its combine has used");
  return *table->second;
}

void run_expert_gate_up(Call &call) {
  ConstRows x = call.input(0);
  Rows h = call.output(0, x.rows);
  int64_t local = call.program.plan->experts.local;
  expert_gate_up(x, table_of(call).order.offsets, call.weight(0, {local, 2, h.row_size / 2, x.row_size}), h);
}

void run_expert_down(Call &call) {
  ConstRows a = call.input(0);
  Rows y = call.output(0, a.rows);
  int64_t local = call.program.plan->experts.local;
  expert_down(a, table_of(call).order.offsets, call.weight(0, {local, y.row_size, a.row_size}), y);
}

void run_local_experts(Call &call) {
  ConstRows x = call.input(0);
  Rows y = call.output(0, x.rows);
  const std::vector<int64_t> &shape = call.weight_shape(0);
  int64_t local = call.program.plan->experts.local,
          width = shape.size() == 4 ? shape[2] : call.program.plan->model.expert_width;
  const float *w13 = call.weight(0, {local, 2, width, x.row_size}),
              *w2 = call.weight(1, {local, y.row_size, width});
  auto block = call.rank.blocks.find("ep");
  local_experts(x, call.input_i32(1), call.input(2), call.tokens(0), call.program.slots,
                block == call.rank.blocks.end() ? 0 : block->second, w13, w2, width, call.number("limit", 0),
                y);
}

constexpr OpEntry ops[] = {{"gate", run_gate},
                           {"expert_gate_up", run_expert_gate_up},
                           {"expert_down", run_expert_down},
                           {"local_experts", run_local_experts}};

} // namespace

std::span<const OpEntry> moe_ops() { return ops; }

} // namespace paratope
