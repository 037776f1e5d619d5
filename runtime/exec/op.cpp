// SPDX-License-Identifier: Apache-2.0
//
// Operands, attributes and the table of ops (op.h). What a plan's own checks cannot see is checked here: how
// many rows there really are, and whether a weight's part has the shape that the operands call for.
#include "runtime/exec/op.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/comm/error.h"
#include "runtime/plan/check.h"

namespace paratope {

void Call::fail(const std::string &message) const { throw RuntimeError(message); }

const plan::Buffer &Call::input_buffer(size_t i) const {
  return program.plan->buffers[static_cast<size_t>(instruction.inputs[i])];
}
const plan::Buffer &Call::output_buffer(size_t i) const {
  return program.plan->buffers[static_cast<size_t>(instruction.outputs[i])];
}

int64_t Call::rows(size_t i) const { return rank.buffers[static_cast<size_t>(instruction.inputs[i])].rows; }

const std::vector<int64_t> &Call::tokens(size_t i) const {
  return rank.buffers[static_cast<size_t>(instruction.inputs[i])].tokens;
}

ConstRows Call::input(size_t i) const {
  const BufferState &state = rank.buffers[static_cast<size_t>(instruction.inputs[i])];
  return {reinterpret_cast<const float *>(state.data), state.rows, input_buffer(i).row_size};
}

std::span<const int32_t> Call::input_i32(size_t i) const {
  const BufferState &state = rank.buffers[static_cast<size_t>(instruction.inputs[i])];
  return {reinterpret_cast<const int32_t *>(state.data),
          static_cast<size_t>(state.rows * input_buffer(i).row_size)};
}

std::span<const int64_t> Call::input_i64(size_t i) const {
  const BufferState &state = rank.buffers[static_cast<size_t>(instruction.inputs[i])];
  return {reinterpret_cast<const int64_t *>(state.data),
          static_cast<size_t>(state.rows * input_buffer(i).row_size)};
}

std::span<const int32_t> Call::sequences(size_t i) const {
  std::vector<int32_t> &found = rank.scratch_sequences;
  found.clear();
  if (static_cast<int64_t>(tokens(i).size()) != rows(i))
    fail(fmt::format("got rows of {} without tokens, expected rows of tokens", input_buffer(i).name));
  for (int64_t token : tokens(i)) {
    int64_t place = token - rank.first_token;
    if (token != padding && (place < 0 || place >= rank.num_tokens))
      fail(fmt::format("got token {} in {}, expected one of the engine's: {} to {}", token,
                       input_buffer(i).name, rank.first_token, rank.first_token + rank.num_tokens - 1));
    found.push_back(token == padding ? -1 : rank.sequence_of[static_cast<size_t>(place)]);
  }
  return found;
}

void Call::check_whole_batch(size_t i) const {
  if (rows(i) != rank.num_tokens)
    fail(fmt::format("got {} rows of {}, expected one for each of the engine's {} tokens", rows(i),
                     input_buffer(i).name, rank.num_tokens));
  for (int64_t t = 0; t < rank.num_tokens; ++t)
    if (tokens(i).size() != static_cast<size_t>(rank.num_tokens) ||
        tokens(i)[static_cast<size_t>(t)] != rank.first_token + t)
      fail(fmt::format("got rows of {} in another order, expected the engine's tokens from {} on",
                       input_buffer(i).name, rank.first_token));
}

int64_t Call::axis_size(const std::string &axis) const {
  for (const plan::Axis &each : program.plan->axes)
    if (each.name == axis)
      return each.size;
  fail(fmt::format("got axis {}, which the plan does not have", axis));
}

std::byte *Call::output_bytes(size_t i, int64_t num_rows, std::span<const int64_t> of) {
  const plan::Buffer &buffer = output_buffer(i);
  if (num_rows > buffer.rows)
    fail(fmt::format("got {} rows for buffer {}, expected at most {} (the plan's maximum)", num_rows,
                     buffer.name, buffer.rows));
  BufferState &state = rank.buffers[static_cast<size_t>(buffer.id)];
  state.rows = num_rows;
  if (state.tokens.data() != of.data()) // in place: the same tokens
    state.tokens.assign(of.begin(), of.end());
  return state.data;
}

Rows Call::output(size_t i, int64_t num_rows, std::span<const int64_t> of) {
  auto *data = reinterpret_cast<float *>(output_bytes(i, num_rows, of));
  return {data, num_rows, output_buffer(i).row_size};
}

Rows Call::output(size_t i, int64_t num_rows) { return output(i, num_rows, tokens(0)); }

std::span<int32_t> Call::output_i32(size_t i, int64_t num_rows) {
  auto *data = reinterpret_cast<int32_t *>(output_bytes(i, num_rows, tokens(0)));
  return {data, static_cast<size_t>(num_rows * output_buffer(i).row_size)};
}

std::span<int64_t> Call::output_i64(size_t i, int64_t num_rows) {
  auto *data = reinterpret_cast<int64_t *>(output_bytes(i, num_rows, tokens(0)));
  return {data, static_cast<size_t>(num_rows * output_buffer(i).row_size)};
}

const std::vector<int64_t> &Call::weight_shape(size_t i) const {
  return program.weight_shapes[static_cast<size_t>(instruction.weights[i])];
}

const float *Call::weight(size_t i, std::initializer_list<int64_t> shape) const {
  const std::vector<int64_t> &actual = weight_shape(i);
  if (!std::equal(actual.begin(), actual.end(), shape.begin(), shape.end()))
    fail(fmt::format("got weight {} of shape [{}] on this rank, expected [{}]",
                     program.plan->weights[static_cast<size_t>(instruction.weights[i])].name,
                     fmt::join(actual, ", "), fmt::join(shape, ", ")));
  return rank.weights[static_cast<size_t>(instruction.weights[i])];
}

const float *Call::optional_weight(size_t i, std::initializer_list<int64_t> shape) const {
  return i < instruction.weights.size() ? weight(i, shape) : nullptr;
}

double Call::number(const char *name) const { return instruction.numbers.at(name); }

double Call::number(const char *name, double otherwise) const {
  auto it = instruction.numbers.find(name);
  return it == instruction.numbers.end() ? otherwise : it->second;
}

int64_t Call::integer(const char *name) const {
  double value = number(name);
  auto whole = static_cast<int64_t>(value);
  if (static_cast<double>(whole) != value)
    fail(fmt::format("got {} = {}, expected an integer", name, value));
  return whole;
}

int64_t Call::integer(const char *name, int64_t otherwise) const {
  return instruction.numbers.count(name) ? integer(name) : otherwise;
}

const std::string &Call::word(const char *name) const { return instruction.words.at(name); }

const OpEntry *find_op(const std::string &name) {
  for (std::span<const OpEntry> ops : {token_ops(), attention_ops(), moe_ops(), engram_ops(),
                                       collective_ops(), exchange_ops(), context_ops(), load_ops()})
    for (const OpEntry &op : ops)
      if (op.name == name)
        return &op;
  return nullptr;
}

comm::Communicator &communicator_of(Call &call) {
  comm::Communicator *communicator = call.rank.comms[static_cast<size_t>(call.instruction.comm)];
  if (!communicator)
    call.fail(
        fmt::format("rank {} is in no group of communicator {}", call.rank.rank, call.instruction.comm));
  Rank::Counts &counts = call.step < 0 ? call.rank.issued_at_load : call.rank.issued;
  ++counts[{call.instruction.op, call.instruction.comm}];
  return *communicator;
}

comm::Site site_of(const Call &call) {
  return {call.instruction.op, call.instruction.name, call.instruction.where, call.instruction.id, call.step};
}

Pending &pending_of(Call &call) { return call.rank.pending[static_cast<size_t>(call.instruction.id)]; }

} // namespace paratope
