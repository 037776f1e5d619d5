// SPDX-License-Identifier: Apache-2.0
//
// The small compiler behind test_plan.h: one struct that emits instructions, in two files.
#pragma once

#include <map>
#include <string>

#include "runtime/exec/test_plan.h"

namespace paratope::test {

struct Builder {
  const plan::Model &model;
  const TestTopology &topology;
  plan::Plan plan;
  std::map<std::string, plan::Weight> known; // of the whole model
  std::map<std::string, int64_t> weight_ids;
  int64_t max_tokens = 0; // rows of a buffer that is not told otherwise
  int64_t serving = 0, layer = -1;
  int64_t data_comm = -1, tp_comm = -1, cp_comm = -1, og_comm = -1, table_comm = -1;
  int64_t ids = -1, positions = -1, flat_positions = -1; // of this rank's rows; of the whole batch

  // test_plan.cpp
  int64_t buffer(const std::string &name, int64_t row_size, const char *dtype = "f32", int64_t rows = 0);
  int64_t row_size(int64_t id) const { return plan.buffers[static_cast<size_t>(id)].row_size; }
  int64_t axis_size(const std::string &axis) const;
  int64_t weight(const std::string &name, std::vector<plan::WeightSplit> splits = {});
  plan::Instruction &emit(const char *op, std::vector<int64_t> inputs, std::vector<int64_t> outputs,
                          std::vector<int64_t> weights = {});
  // Issues a collective; `await` completes it. One that is not asynchronous needs no await.
  int64_t collective(const char *op, int64_t comm, std::vector<int64_t> inputs, std::vector<int64_t> outputs,
                     std::map<std::string, double> numbers = {});
  void await(int64_t collective_id);
  void enter_ledger(const char *op, int64_t comm, const char *category);
  bool mirrored() const { return topology.cp > 1 || topology.mirror; }
  // Rows of every rank of the engine, flat again; as they are where nothing is mirrored.
  std::vector<int64_t> restore(const std::vector<int64_t> &rows);
  void axes();
  void communicators();
  void size_buffers();
  void load_program();
  void begin_step(std::map<int64_t, std::pair<int64_t, int64_t>> &fetches);
  void build();

  // test_plan_layers.cpp
  int64_t norm(const std::string &name, int64_t x, const std::string &gain);
  int64_t linear(const std::string &name, int64_t x, const std::string &w, int64_t width,
                 std::vector<plan::WeightSplit> splits = {});
  int64_t rope(const std::string &name, int64_t x, int64_t heads, bool normalise, bool inverse);
  int64_t ratio() const;
  int64_t attention(int64_t x);
  void append_latents(int64_t x);
  int64_t latent_attention(int64_t x);
  int64_t grouped_query_attention(int64_t x);
  int64_t attend(int64_t q, int64_t kv_heads, int64_t v_offset);
  int64_t output_groups(int64_t o);
  int64_t reduced(const std::string &name, int64_t partial);
  int64_t feed_forward(const std::string &name, int64_t x, const std::string &w, int64_t width, bool split);
  int64_t experts(int64_t x);
  int64_t two_stage_experts(int64_t x, int64_t idx, int64_t w);
  int64_t all_gather_experts(int64_t x, int64_t idx, int64_t w);
  int64_t sublayer(int64_t wide, const std::string &name, int64_t (Builder::*body)(int64_t));
  int64_t engram(int64_t wide, int64_t fetched);
};

} // namespace paratope::test
