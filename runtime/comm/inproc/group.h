// SPDX-License-Identifier: Apache-2.0
//
// The records behind InprocWorld: what a member posts, the instance that collects the posts, and the group
// that numbers its instances. Private to this folder.
#pragma once

#include <deque>

#include "runtime/comm/inproc/world.h"

namespace paratope::comm::inproc {

enum class Kind { all_reduce, all_gather, reduce_scatter, all_to_all, barrier };

// What one member brought. Which fields mean something follows from the kind.
struct Post {
  bool present = false;
  Kind kind = Kind::barrier;
  Site site;
  const void *input = nullptr;
  void *output = nullptr;
  int64_t count = 0; // all_reduce: elements; all_gather: rows; reduce_scatter: row_size
  int64_t max_rows = 0;
  Reduce reduce = Reduce::sum_f32;
  std::vector<GatherPart> parts;
  std::span<const int64_t> counts; // reduce_scatter: rows_of; all_to_all: send_bytes
  std::span<int64_t> counts_out;   // all_gather: rows_of; all_to_all: received_bytes
  std::vector<std::byte> *output_bytes = nullptr;

  std::string text() const; // "all_reduce of 64 f32 (sum)", for reports
};

// The k-th collective of a group. Guarded by the group's mutex, except that slices run outside it: a slice
// only reads posts, which do not change once all are present.
struct Instance {
  std::vector<Post> posts;
  int64_t posted = 0, next_slice = 0, slices_done = 0, completed = 0;
  int64_t bytes_sent = 0, bytes_received = 0; // all_to_all
  std::condition_variable changed;
};

struct Group {
  std::string name;
  std::vector<int64_t> members;
  std::mutex mutex;
  std::vector<int64_t> next; // instances each member has issued
  int64_t first = 0;         // number of instances.front()
  std::deque<std::unique_ptr<Instance>> instances;
  std::vector<std::unique_ptr<Instance>> spare;

  int64_t size() const { return static_cast<int64_t>(members.size()); }
};

// Why `post` cannot be the same collective as `other`, or empty.
std::string mismatch(const Post &post, const Post &other);

// "(step 0, instruction 41 layers.3.moe, v4.toml:12:3)"
std::string place_text(const Site &site);

// Runs slice `slice` of size() slices. Returns the bytes an all-to-all delivered. Throws RuntimeError when an
// output is too small for what arrives.
int64_t run_slice(const std::vector<Post> &posts, int64_t slice);

// Lets at most `places` ranks compute at the same time; a rank gives its place back while it sleeps.
class Turnstile {
public:
  explicit Turnstile(int64_t places) : free_places(places) {}
  void enter();
  void leave();

private:
  std::mutex mutex;
  std::condition_variable freed;
  int64_t free_places;
};

// Where a rank is, for reports.
struct RankState {
  enum class Phase { starting, computing, waiting, finished, failed };
  mutable std::mutex mutex;
  Phase phase = Phase::starting;
  Site site; // of the collective it issued or waits for
  std::string_view group;
  int64_t instance = -1;
  std::string failure;
};

} // namespace paratope::comm::inproc
