// SPDX-License-Identifier: Apache-2.0
//
// Runs a plan on this machine: every rank is a thread that executes the plan's instructions in their order,
// on memory taken once, and joins the others in its collectives.
//
//     set up     check what a plan alone cannot show, arenas, weights (equal parts shared), caches
//     run        rank 0 ─ ids ─ embed ─ … ─ dispatch ┄┄ shared ┄┄ await ─ … ─ argmax ┐ N steps, ids fed back
//                rank 1 ─ …                                                        ┘
//     finish     collectives issued = ledger, rows sent = received, outputs = reference
//
// Same plan, same bits, for any number of ranks computing at the same time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "runtime/exec/result.h"
#include "runtime/plan/plan.h"

namespace paratope {

class TraceWriter;

struct RunOptions {
  int64_t steps = 1;
  bool verify = false;
  std::chrono::milliseconds timeout{60000}; // of every wait for another rank
  int64_t threads = 0;                      // ranks that compute at the same time; 0: one a processor
  std::string base_dir;                     // of a relative path: a routing trace's, the weights'
  TraceWriter *trace = nullptr;
  std::string dump; // a directory for everything that was fed and computed (dump.h); empty: none
  const std::atomic<bool> *stop = nullptr; // when set, ranks stop after the step they are in
  std::function<void(const std::string &)>
      progress; // one line on what is going on, from one thread at a time
};

// Never throws for what a plan or a rank did wrong: RunResult::failures says it. A result has the steps that
// were completed when it failed or was interrupted.
RunResult run_plan(const plan::Plan &plan, const RunOptions &options);

} // namespace paratope
