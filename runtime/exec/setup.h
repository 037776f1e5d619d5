// SPDX-License-Identifier: Apache-2.0
//
// What stands before the first step: the program all ranks share, and each rank with its memory, weights and
// caches. Weights whose part is the same on several ranks are made once and shared, which is what lets 64
// ranks of a model live in one process.
#pragma once

#include <memory>

#include "runtime/comm/inproc/world.h"
#include "runtime/exec/op.h"
#include "runtime/exec/world.h"
#include "runtime/weights/routing.h"

namespace paratope {

struct WorldState {
  Program program;
  ExpertDraw draw;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::vector<float>> shards; // shared by the ranks that point to them
  std::unique_ptr<comm::InprocWorld> comms;
  int64_t placeholders = 0; // engines without tokens
  int64_t weight_bytes = 0, arena_bytes = 0, kv_bytes = 0;
};

// Floats a token has in the cache of a whole model, before any cut by heads.
int64_t whole_entry(const plan::Model &model);

// Throws RuntimeError (or a kernel's or weight's error) on what cannot be run.
void set_up(const plan::Plan &plan, const RunOptions &options, int64_t threads, WorldState &state);

} // namespace paratope
