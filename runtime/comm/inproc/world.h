// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process. A collective is a small shared record, its instance: each member posts
// pointers and goes on; when the last has posted, whoever is waiting does the work, slice by slice, and the
// others find it done.
//
//     rank 0 ─post┐                            ┌ slice 0 ┐
//     rank 1 ─post┼─▶ instance 7 of group "ep" ┼ slice 1 ┼─▶ all slices done: every buffer is free
//     rank 2 ─post┘   posted 3 of 3            └ slice 2 ┘
//
// Slice j writes what belongs to member j (of an all-reduce: part j of everyone's result), reading members in
// ascending order, so bits depend neither on the number of threads nor on who ran the slice. Nobody spins: a
// rank that must wait sleeps on the instance's condition variable until its deadline.
//
// When one rank fails, all do: the world is poisoned with the first report, and every wait ends with it.
// Memory that was posted must outlive every rank's thread, since a slice of it may still be running on
// another.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/error.h"

namespace paratope::comm {

// All groups of one communicator of the plan. Groups do not overlap; a rank may be in none.
struct CommunicatorSpec {
  std::string name;                         // "ep+ep_in_dp"
  std::vector<std::vector<int64_t>> groups; // members, in the order of their keys
};

struct InprocOptions {
  int64_t ranks = 1;
  std::chrono::milliseconds timeout{60000}; // of every wait
  int64_t max_running = 0;                  // ranks that may compute at the same time; 0: all
};

namespace inproc {
struct Group;
struct RankState;
class Turnstile;
} // namespace inproc

class InprocWorld {
public:
  InprocWorld(InprocOptions options, std::vector<CommunicatorSpec> specs);
  ~InprocWorld();
  InprocWorld(const InprocWorld &) = delete;
  InprocWorld &operator=(const InprocWorld &) = delete;

  // The end of communicator `comm` at `rank`, or nullptr when the rank is in none of its groups. Lives as
  // long as the world.
  Communicator *communicator(int64_t comm, int64_t rank);

  // A rank's thread calls enter() first and leave() last. With max_running, enter waits for its turn.
  void enter(int64_t rank);
  // `failure` is why it stopped early, or empty: then a collective that still needs the rank fails at once.
  void leave(int64_t rank, const std::string &failure);

  // Ends every wait with this report. The first report stays.
  void poison(const std::string &report);
  bool poisoned() const { return is_poisoned.load(std::memory_order_acquire); }
  std::string report() const;

  // What all-to-alls of all ranks moved so far, bytes.
  int64_t sent_bytes() const { return sent.load(std::memory_order_relaxed); }
  int64_t received_bytes() const { return received.load(std::memory_order_relaxed); }

private:
  friend struct inproc::Group;
  class End;

  std::string deadline_report(const inproc::Group &group, int64_t rank, int64_t instance,
                              const std::vector<int64_t> &missing, bool ended) const;
  std::string failure_report(int64_t rank, const std::string &failure) const;
  std::string states_text(const std::vector<int64_t> &first) const;

  InprocOptions options;
  std::vector<std::unique_ptr<inproc::Group>> groups;
  std::vector<std::vector<std::unique_ptr<End>>> ends; // [comm][rank]
  std::vector<std::unique_ptr<inproc::RankState>> states;
  std::unique_ptr<inproc::Turnstile> turnstile;
  mutable std::mutex report_mutex;
  std::string first_report;
  std::atomic<bool> is_poisoned{false};
  std::atomic<int64_t> num_left{0};
  std::atomic<int64_t> sent{0}, received{0};
};

} // namespace paratope::comm
