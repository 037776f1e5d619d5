// SPDX-License-Identifier: Apache-2.0
//
// The token side of a step: from ids to the residual, and from the residual to the next ids. Rows are a
// rank's own tokens throughout.
#include "kernels/linear/op.h"
#include "kernels/moe/op.h"
#include "kernels/norm/op.h"
#include "runtime/exec/op.h"
#include "runtime/weights/state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "runtime/plan/check.h"

namespace paratope {
namespace {

// In decode the ids are the last step's; a prompt's are drawn, as those of the history before it.
int32_t id_at(const Call &call, size_t sequence, size_t token, int64_t position) {
  const Rank &rank = call.rank;
  const plan::Plan &plan = *call.program.plan;
  if (rank.placeholder)
    return 0;
  if (plan.workload.phase == "decode")
    return rank.ids[token];
  return context_token_id(plan.model.seed, rank.first_sequence + static_cast<int64_t>(sequence), position,
                          plan.model.vocab);
}

void run_batch(Call &call) {
  Rank &rank = call.rank;
  std::vector<int64_t> &tokens = rank.scratch_tokens;
  tokens.resize(static_cast<size_t>(rank.num_tokens));
  std::iota(tokens.begin(), tokens.end(), rank.first_token);
  auto *ids = reinterpret_cast<int32_t *>(call.output_bytes(0, rank.num_tokens, tokens));
  auto *positions = reinterpret_cast<int32_t *>(call.output_bytes(1, rank.num_tokens, tokens));
  for (size_t s = 0, t = 0; s < rank.sequences.size(); ++s)
    for (int64_t place = 0; place < rank.sequences[s].length; ++place, ++t) {
      int64_t position = rank.placeholder ? 0 : rank.sequences[s].position(call.step, place);
      ids[t] = id_at(call, s, t, position);
      positions[t] = static_cast<int32_t>(position);
    }
}

void run_embed(Call &call) {
  Rows x = call.output(0, call.rows(0));
  int64_t vocab = call.program.plan->model.vocab;
  embed(call.input_i32(0), call.weight(0, {vocab, x.row_size}), vocab, x);
}

void run_hc_expand(Call &call) {
  hc_expand(call.input(0), call.integer("streams"), call.output(0, call.rows(0)));
}

void run_hc_pre(Call &call) {
  int64_t n = call.integer("streams"), mixes = n * n + 2 * n;
  ConstRows wide = call.input(0);
  hc_pre(wide, n, call.weight(0, {mixes, wide.row_size}), call.weight(1, {3}), call.weight(2, {mixes}),
         call.output(0, wide.rows), call.output(1, wide.rows));
}

void run_hc_post(Call &call) {
  hc_post(call.input(0), call.input(1), call.input(2), call.integer("streams"), call.output(0, call.rows(0)));
}

void run_hc_sum(Call &call) {
  ConstRows wide = call.input(0);
  hc_sum(wide, call.integer("streams"), call.output(0, wide.rows));
}

void run_add(Call &call) {
  std::array<ConstRows, 3> operands;
  size_t count = call.instruction.inputs.size();
  for (size_t i = 0; i < count; ++i)
    operands[i] = call.input(i);
  add(std::span(operands).first(count), call.output(0, call.rows(0)));
}

void run_rms_norm(Call &call) {
  ConstRows x = call.input(0);
  int64_t dims = call.integer("dims", 0);
  const float *gain = call.weight(0, {dims ? dims : x.row_size});
  rms_norm(x, gain, call.number("eps"), call.output(0, x.rows), dims);
}

void run_linear(Call &call) {
  ConstRows x = call.input(0);
  Rows y = call.output(0, x.rows);
  linear(x, call.weight(0, {y.row_size, x.row_size}), y);
}

void run_gate_up(Call &call) {
  ConstRows x = call.input(0);
  Rows h = call.output(0, x.rows);
  gate_up(x, call.weight(0, {2, h.row_size / 2, x.row_size}), h);
}

void run_swiglu(Call &call) {
  ConstRows h = call.input(0);
  swiglu(h, call.number("limit", 0), call.output(0, h.rows));
}

void run_slice_rows(Call &call) {
  const plan::Buffer &from = call.input_buffer(0), &to = call.output_buffer(0);
  const std::string &axis = call.word("axis");
  RowRange range = slice_range(call.rows(0), call.rank.blocks.at(axis), call.axis_size(axis));
  if (from.row_size != to.row_size || from.dtype != to.dtype)
    call.fail(fmt::format("got rows of {} {} for rows of {} {}, expected equal rows", to.row_size, to.dtype,
                          from.row_size, from.dtype));
  int64_t row_bytes = from.row_size * plan::dtype_bytes(from.dtype);
  std::span<const int64_t> tokens(call.tokens(0));
  if (!tokens.empty())
    tokens = tokens.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
  const std::byte *source = call.rank.buffers[static_cast<size_t>(from.id)].data + range.begin * row_bytes;
  std::byte *target = call.output_bytes(0, range.size(), tokens);
  if (range.size() > 0)
    std::memmove(target, source, static_cast<size_t>(range.size() * row_bytes));
}

// The ends of the model, which is also where a run's results are taken.
Rank::Output &output_of(Call &call) {
  auto &outputs = call.rank.outputs;
  if (outputs.empty() || outputs.back().step != call.step)
    outputs.push_back({call.step, {}, {}, {}, {}, {}});
  return outputs.back();
}

void keep_hidden(Call &call, Rank::Output &output) {
  ConstRows x = call.input(0);
  output.tokens = call.tokens(0);
  output.hidden.assign(x.data, x.data + x.rows * x.row_size);
}

void run_last_token(Call &call) {
  call.check_whole_batch(0);
  const Rank &rank = call.rank;
  std::vector<int64_t> &tokens = call.rank.scratch_tokens;
  tokens.clear();
  for (const plan::Sequence &sequence : rank.sequences)
    tokens.push_back(sequence.first_token + sequence.length - 1);
  ConstRows x = call.input(0);
  Rows y = call.output(0, static_cast<int64_t>(tokens.size()), tokens);
  check_equal("last_token", "row size of y", y.row_size, x.row_size);
  for (int64_t s = 0; s < y.rows; ++s)
    std::copy_n(x.row(tokens[static_cast<size_t>(s)] - rank.first_token), x.row_size, y.row(s));
  if (call.program.keep_outputs)
    keep_hidden(call, output_of(call));
}

void run_lm_head(Call &call) {
  run_linear(call);
  if (!call.program.keep_outputs)
    return;
  const BufferState &logits = call.rank.buffers[static_cast<size_t>(call.instruction.outputs[0])];
  const auto *values = reinterpret_cast<const float *>(logits.data);
  Rank::Output &output = output_of(call);
  if (output.tokens.empty()) // without a last_token before it, every token has logits
    keep_hidden(call, output);
  output.last = call.tokens(0);
  output.logits.assign(values, values + logits.rows * call.output_buffer(0).row_size);
}

void run_argmax(Call &call) {
  ConstRows logits = call.input(0);
  std::span<int32_t> ids = call.output_i32(0, logits.rows);
  argmax(logits, ids);
  Rank &rank = call.rank;
  if (ids.size() != rank.sequences.size())
    call.fail(fmt::format("got {} ids, expected one for each of the engine's {} sequences", ids.size(),
                          rank.sequences.size()));
  rank.ids.assign(ids.begin(), ids.end());
  if (call.program.keep_outputs) {
    Rank::Output &output = output_of(call);
    output.last = call.tokens(0);
    output.ids = rank.ids;
  }
}

constexpr OpEntry ops[] = {
    {"batch", run_batch},
    {"embed", run_embed},
    {"hc_expand", run_hc_expand},
    {"hc_pre", run_hc_pre},
    {"hc_post", run_hc_post},
    {"hc_sum", run_hc_sum},
    {"add", run_add},
    {"rms_norm", run_rms_norm},
    {"linear", run_linear},
    {"gate_up", run_gate_up},
    {"swiglu", run_swiglu},
    {"slice_rows", run_slice_rows},
    {"last_token", run_last_token},
    {"lm_head", run_lm_head},
    {"argmax", run_argmax},
};

} // namespace

std::span<const OpEntry> token_ops() { return ops; }

} // namespace paratope
