// SPDX-License-Identifier: Apache-2.0
//
// How an instruction meets a kernel. An op is a small function that takes operands from its instruction by
// position, checks what the kernel cannot know (a weight's shape), calls the kernel, and says how many rows
// it wrote. Instructions carry their op's function, looked up once.
//
//     void run_linear(Call &call) { linear(call.input(0), call.weight(0, {…}), call.output(0, call.rows(0)));
//     }
#pragma once

#include <initializer_list>
#include <span>

#include "kernels/tensor.h"
#include "runtime/exec/rank.h"
#include "runtime/plan/plan.h"
#include "runtime/weights/store.h"

namespace paratope {

class TraceWriter;

// What all ranks share, unchanging during a run.
struct Program {
  const plan::Plan *plan = nullptr;
  std::vector<std::vector<int64_t>> weight_shapes; // local, by id
  SlotTable slots;
  std::vector<EngramHash> hashes; // in the order of model.engram_layers
  plan::Batch batch;              // of all engines, placeholders not counted
  const struct ExpertDraw *draw = nullptr;
  WeightStore store{0};      // of model.weights
  bool keep_outputs = false; // for verification or a dump
};

struct Call {
  const Program &program;
  const plan::Instruction &instruction;
  Rank &rank;
  int64_t step = 0; // −1 at load

  // ---- operands ----
  const plan::Buffer &input_buffer(size_t i) const;
  const plan::Buffer &output_buffer(size_t i) const;
  int64_t rows(size_t i) const;                       // rows of input i
  ConstRows input(size_t i) const;                    // f32
  std::span<const int32_t> input_i32(size_t i) const; // rows · row_size of them
  std::span<const int64_t> input_i64(size_t i) const;
  const std::vector<int64_t> &tokens(size_t i) const;

  // The sequence of each row of input i, counted in this rank's engine; −1 for padding. Throws RuntimeError
  // on a row of another engine. Valid until the next call.
  std::span<const int32_t> sequences(size_t i) const;
  // Throws RuntimeError when input i is not the engine's flat batch: all its tokens in order.
  void check_whole_batch(size_t i) const;
  int64_t axis_size(const std::string &axis) const;

  // Makes output i `num_rows` rows long, of the same tokens as input 0 (or of `of`). Throws RuntimeError when
  // the plan's buffer is smaller. Valid before and after the op has written it.
  Rows output(size_t i, int64_t num_rows);
  Rows output(size_t i, int64_t num_rows, std::span<const int64_t> of);
  std::span<int32_t> output_i32(size_t i, int64_t num_rows);
  std::span<int64_t> output_i64(size_t i, int64_t num_rows);
  std::byte *output_bytes(size_t i, int64_t num_rows, std::span<const int64_t> of);

  // Weight i, which must have this local shape, or nullptr where the instruction has fewer.
  const float *weight(size_t i, std::initializer_list<int64_t> shape) const;
  const float *optional_weight(size_t i, std::initializer_list<int64_t> shape) const;
  const std::vector<int64_t> &weight_shape(size_t i) const;

  // ---- attributes ----
  double number(const char *name) const;
  double number(const char *name, double otherwise) const;
  int64_t integer(const char *name) const;
  int64_t integer(const char *name, int64_t otherwise) const;
  const std::string &word(const char *name) const;

  [[noreturn]] void fail(const std::string &message) const;
};

using OpFunction = void (*)(Call &);

// The functions of an op; `await` calls the `finish` of the collective it completes.
struct OpEntry {
  const char *name;
  OpFunction run;
  OpFunction finish = nullptr;
};

// One list a file; `find_op` looks through all.
std::span<const OpEntry> token_ops();
std::span<const OpEntry> attention_ops();
std::span<const OpEntry> moe_ops();
std::span<const OpEntry> engram_ops();
std::span<const OpEntry> collective_ops();
std::span<const OpEntry> exchange_ops();
std::span<const OpEntry> context_ops();
std::span<const OpEntry> load_ops();
const OpEntry *find_op(const std::string &name);

// A member of the instruction's communicator counts what it issues.
comm::Communicator &communicator_of(Call &call);
comm::Site site_of(const Call &call);
Pending &pending_of(Call &call);

} // namespace paratope
