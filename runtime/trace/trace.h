// SPDX-License-Identifier: Apache-2.0
//
// A run as Chrome trace JSON (open it in ui.perfetto.dev or chrome://tracing): one process a rank, one track
// a stream, one complete event an instruction, arrows from dispatch to combine, and a counter of bytes in
// flight.
//
//     rank 0  compute   ▇ gate ▇▇▇▇▇▇▇ shared ▇▇ expert_down ▇▇▇
//             exchange         ▇▇ dispatch ╲___________╱ ▇▇ combine
//
// Events go to the file as they come. The file ends in its closing bracket at every moment between two
// writes: the bracket is overwritten by the next events, so an interrupted run leaves valid JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace paratope {

// One instruction on one rank. Times in microseconds since the run's start.
struct TraceSpan {
  int64_t rank = 0;
  std::string_view stream; // compute | exchange | prefetch | control
  std::string_view op, name, where;
  std::string_view fusion = {}; // of the kernel it is a part of on a device; empty: it is one of its own
  int64_t instruction = -1, step = -1;
  double start_us = 0, end_us = 0;
};

class TraceWriter {
public:
  TraceWriter() = default;
  ~TraceWriter();
  TraceWriter(const TraceWriter &) = delete;
  TraceWriter &operator=(const TraceWriter &) = delete;

  // Creates the file. Returns why it cannot, or an empty text.
  std::string open(const std::string &path);
  bool is_open() const { return file != nullptr; }

  // Names a rank's tracks. Safe to call from any thread, as are all below.
  void name_rank(int64_t rank, std::string_view topology);
  void span(const TraceSpan &span);
  // An arrow between two points in time on a rank's exchange track; `id` pairs the two ends.
  void flow(bool start, int64_t id, int64_t rank, double at_us);
  // Bytes of collectives that are issued and not yet complete, over all ranks.
  void bytes_in_flight(double at_us, int64_t bytes);

  void flush();
  // Flushes and closes. Returns why the file is not complete (a full disk), or an empty text.
  std::string close();

private:
  void add(std::string_view event);
  void flush_locked();

  std::mutex mutex;
  std::FILE *file = nullptr;
  std::string buffer;
  long tail = 0;       // where the closing bracket starts
  bool first = true;   // no event yet
  bool failed = false; // a write did not succeed
};

// The track a stream has inside its rank.
int64_t trace_track(std::string_view stream);

} // namespace paratope
