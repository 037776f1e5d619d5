// SPDX-License-Identifier: Apache-2.0
//
// What a rank needs from its group, whatever carries the bytes: six collectives that are issued, run on their
// own, and are completed later. The interface is small on purpose, so that a new backend is one class.
//
//     issue ──▶ Ticket ┄┄┄┄ the rank computes ┄┄┄┄ complete(Ticket)
//
// Members of a group issue the same collectives in the same order. Between issue and complete everything an
// options struct points to belongs to the collective: inputs are not changed, outputs not read. When complete
// returns, outputs are written and inputs are free again. Sums run in ascending group order: same bits,
// always.
//
// Every wait has a deadline. A collective that cannot complete (a member missing, or issuing something else)
// throws RuntimeError on every rank, with one report that says who is where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace paratope::comm {

// Which instruction asks, for reports. The texts must outlive the communicator (they are the plan's).
struct Site {
  std::string_view op;    // "dispatch"
  std::string_view name;  // "layers.3.moe"
  std::string_view where; // "topology.toml:12:3"
  int64_t instruction = -1;
  int64_t step = -1; // −1: at load
};

enum class Reduce { sum_f32, max_i64, min_i64 };

// output = Σ, max or min over members; `count` elements, equal on every member. May be in place.
struct AllReduceOptions {
  Site site;
  const void *input = nullptr;
  void *output = nullptr;
  int64_t count = 0;
  Reduce reduce = Reduce::sum_f32;
};

// One of the arrays a gather moves together.
struct GatherPart {
  const void *input = nullptr; // [rows] of row_bytes
  void *output = nullptr;      // [Σ rows], members in group order
  int64_t row_bytes = 0;       // equal on every member
};

// Rows of every member; a member may have any number of rows, 0 included. Not in place.
struct AllGatherOptions {
  Site site;
  std::span<const GatherPart> parts;
  int64_t rows = 0;           // of this member
  int64_t max_rows = 0;       // what the outputs can hold; more is an error
  std::span<int64_t> rows_of; // [size] out: rows of each member
};

// output = this member's rows of the sum. Not in place.
struct ReduceScatterOptions {
  Site site;
  const float *input = nullptr; // [Σ rows_of, row_size]
  float *output = nullptr;      // [rows_of[rank], row_size]
  int64_t row_size = 0;
  std::span<const int64_t> rows_of; // [size], equal on every member
};

// Bytes for every member. What arrives lies in `output` by source rank, ascending; its counts ride along.
struct AllToAllOptions {
  Site site;
  const std::byte *input = nullptr;         // what goes to member 0, then 1, …
  std::span<const int64_t> send_bytes;      // [size]
  std::vector<std::byte> *output = nullptr; // grown when it is too small, never shrunk
  std::span<int64_t> received_bytes;        // [size] out
};

struct BarrierOptions {
  Site site;
};

// The collective of this group a rank issued as its `instance`-th.
struct Ticket {
  int64_t instance = -1;
};

class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0; // inside the group
  virtual int64_t size() const = 0;
  virtual int64_t global_rank(int64_t member) const = 0;

  // Each throws RuntimeError on counts that cannot be right, or that do not match another member's.
  virtual Ticket all_reduce(const AllReduceOptions &options) = 0;
  virtual Ticket all_gather(const AllGatherOptions &options) = 0;
  virtual Ticket reduce_scatter(const ReduceScatterOptions &options) = 0;
  virtual Ticket all_to_all(const AllToAllOptions &options) = 0;
  virtual Ticket barrier(const BarrierOptions &options) = 0;

  // Waits until the collective is complete for this rank, each ticket once. Throws RuntimeError with the
  // report.
  virtual void complete(Ticket ticket) = 0;
};

} // namespace paratope::comm
