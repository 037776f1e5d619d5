// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the experts: who is chosen, and what the chosen compute. How rows reach them is
// ops_exchange.cpp.
#include "kernels/moe/op.h"
#include "runtime/exec/op.h"
#include "runtime/weights/routing.h"

#include <fmt/format.h>

namespace paratope {
namespace {

// A placeholder's tokens are numbered past all others, and stand at position 0.
int64_t position_of(const Call &call, int64_t token) {
  return token < call.program.total_tokens ? call.program.plan->workload.context + call.step : 0;
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
    for (size_t t = 0; t < tokens.size(); ++t)
      draw_experts(*call.program.draw, tokens[t], position_of(call, tokens[t]),
                   std::span(drawn).subspan(t * static_cast<size_t>(options.top_k),
                                            static_cast<size_t>(options.top_k)));
  }
  gate(x, call.weight(0, {options.experts, x.row_size}), call.optional_weight(1, {options.experts}), options,
       drawn, idx, w);
  if (call.program.keep_outputs)
    call.rank.choices.push_back(
        {call.step, call.instruction.layer, options.top_k, tokens, {idx.begin(), idx.end()}});
}

// The experts of this rank's slots.
struct LocalExperts {
  const float *w13 = nullptr, *w2 = nullptr;
  int64_t width = 0;
};

LocalExperts local_weights(Call &call, int64_t inputs, int64_t outputs) {
  const std::vector<int64_t> &shape = call.weight_shape(0);
  LocalExperts experts;
  experts.width = shape.size() == 4 ? shape[2] : call.program.plan->model.expert_width;
  int64_t local = call.program.plan->experts.local;
  experts.w13 = call.weight(0, {local, 2, experts.width, inputs});
  experts.w2 = call.weight(1, {local, outputs, experts.width});
  return experts;
}

void run_expert_ffn(Call &call) {
  ConstRows x = call.input(0);
  auto table = call.rank.tables.find(call.instruction.inputs[1]);
  if (table == call.rank.tables.end())
    call.fail("got a table that no dispatch has filled, or that its combine has used");
  Rows y = call.output(0, x.rows);
  LocalExperts experts = local_weights(call, x.row_size, y.row_size);
  expert_ffn(x, table->second->order.offsets, experts.w13, experts.w2, experts.width, call.number("limit", 0),
             y);
}

void run_local_experts(Call &call) {
  ConstRows x = call.input(0);
  Rows y = call.output(0, x.rows);
  LocalExperts experts = local_weights(call, x.row_size, y.row_size);
  auto block = call.rank.blocks.find("ep");
  local_experts(x, call.input_i32(1), call.input(2), call.tokens(0), call.program.slots,
                block == call.rank.blocks.end() ? 0 : block->second, experts.w13, experts.w2, experts.width,
                call.number("limit", 0), y);
}

constexpr OpEntry ops[] = {
    {"gate", run_gate}, {"expert_ffn", run_expert_ffn}, {"local_experts", run_local_experts}};

} // namespace

std::span<const OpEntry> moe_ops() { return ops; }

} // namespace paratope
