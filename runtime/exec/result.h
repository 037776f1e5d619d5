// SPDX-License-Identifier: Apache-2.0
//
// What a run says about itself: one struct, as the JSON document of `paratope run --json` and as a short
// table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paratope {

struct OpTime {
  std::string op;
  double count = 0; // executions a rank and step
  double us = 0;    // microseconds a rank spends in them a step, waiting included
};

struct VerifyResult {
  bool done = false;
  bool ok = false;
  double max_rel_error = 0; // over ranks, steps and tokens: max|out − ref| / max|ref| of hidden and of logits
  int64_t tokens = 0;       // outputs compared: a token counts once a rank that holds it and a step
  int64_t ties = 0;         // choices that differ from the reference's own by no more than rounding
  int64_t mismatches = 0;   // choices that differ by more
  std::vector<std::string> problems; // what makes it not ok
};

struct RunResult {
  std::string backend = "host";
  std::string topology;
  std::vector<std::string> notes; // the plan's
  int64_t world = 0;
  int64_t steps = 0;           // completed by every rank
  int64_t tokens_per_step = 0; // placeholders not counted
  int64_t placeholders = 0;    // engines that ran a placeholder each step
  std::vector<double> step_times_us;
  double setup_s = 0;
  VerifyResult verify;
  int64_t collectives_issued = 0;             // a rank, the largest of all ranks
  int64_t collectives_expected = 0;           // by the plan's ledger, same rank
  int64_t load_issued = 0, load_expected = 0; // the same, of what happens once before the first step
  int64_t kv_blocks = -1;         // KV pages that every rank has, as agreed at load; −1: not asked
  int64_t sent = 0, received = 0; // rows (token, expert slot) of all dispatches of all ranks
  int64_t sent_bytes = 0, received_bytes = 0;              // of all exchanges of all ranks
  int64_t weight_bytes = 0, arena_bytes = 0, kv_bytes = 0; // of the whole process, shared weights once
  std::vector<OpTime> per_op;                              // largest first
  bool interrupted = false;
  bool refused = false;              // nothing ran: the plan asks for what cannot be set up here
  std::vector<std::string> failures; // empty: the run is good

  double median_us() const;
  double p90_us() const;
  double tokens_per_s() const; // by the median step
  bool ok() const { return failures.empty() && (!verify.done || verify.ok); }
};

// One JSON document, two-space indented, with a newline at its end.
std::string result_json(const RunResult &result);

// A table of at most 20 lines for a person.
std::string result_text(const RunResult &result);

} // namespace paratope
