// SPDX-License-Identifier: Apache-2.0
//
// The bookkeeping of an expert exchange, as pure functions: what a rank packs for every destination, how a
// receiver orders what arrives, and how the owner adds what returns. Moving the bytes is a communicator's
// work.
//
//   owner (source rank)            expert rank (destination d)
//   pack_dispatch ── rows, list ─▶ order_rows       by local slot, then source rank, then token
//     each token once a            expand_rows      one row a (token, local slot)
//     destination                  the experts
//   combine_accumulate ◀─ sums ──  combine_rows     Σ w·row a token, back in the order it was sent
//     ranks ascending, then shared
#pragma once

#include "kernels/tensor.h"

#include <vector>

namespace paratope {

// Where the logical experts' replicas are. Slot p lies on block p div local of the ep axis.
struct SlotTable {
  int64_t logical = 0, physical = 0, local = 0;
  std::vector<int64_t> expert_of; // [physical] the logical expert of a slot
  std::vector<int64_t> first;     // [logical + 1] into `slots`
  std::vector<int64_t> slots;     // a logical expert's slots, ascending
  int64_t blocks() const { return local > 0 ? physical / local : 0; }
};

// From a plan's experts.slots. Throws KernelError when a slot names no logical expert, an expert has no slot,
// or ep does not divide the slots.
SlotTable slot_table(std::span<const int64_t> expert_of, int64_t logical, int64_t ep);

// The slot a token uses of an expert: slot hash(token number, expert) mod replicas of its slots in ascending
// order, so that it is the same in every topology with that table, and every run.
int64_t slot_of(const SlotTable &table, int64_t token_number, int64_t expert);

// One (token, local slot) of a destination. 12 bytes on the wire.
struct SlotEntry {
  int32_t token = 0; // index into the list's tokens
  int32_t slot = 0;  // local to the destination
  float weight = 0;
  bool operator==(const SlotEntry &) const = default;
};

// What one source sends one destination.
struct DispatchList {
  std::vector<int32_t> tokens;    // the source's rows, ascending, each once
  std::vector<SlotEntry> entries; // by token, then slot
  bool operator==(const DispatchList &) const = default;
};

// lists[d] for every destination d of the ep group. idx [T·k] logical experts, w [T, k]; token_numbers [T]:
// each row's number in the whole batch of all engines, or −1 for padding, which goes nowhere. Reuses the
// vectors' memory. Throws KernelError on an
// expert out of range or chosen twice by one token.
void pack_dispatch(std::span<const int32_t> idx, ConstRows w, std::span<const int64_t> token_numbers,
                   const SlotTable &table, std::vector<DispatchList> &lists);

// out[i] = x[list.tokens[i]]. x [T, H], out [list.tokens.size(), H].
void pack_rows(ConstRows x, const DispatchList &list, Rows out);

// Expert-major order of everything one rank received.
struct RowOrigin {
  int32_t source = 0; // rank of the group
  int32_t token = 0;  // index into that source's list
  float weight = 0;
};
struct ExpertRows {
  std::vector<int64_t> offsets;      // [local + 1]: rows of local slot s are offsets[s] … offsets[s+1]−1
  std::vector<RowOrigin> origins;    // [R]
  std::vector<int64_t> source_first; // [sources + 1]: received token (s, i) is number source_first[s] + i
  std::vector<int64_t> rows_first;   // [received tokens + 1] into `rows_of`
  std::vector<int64_t> rows_of;      // a received token's rows, ascending
  int64_t rows() const { return static_cast<int64_t>(origins.size()); }
};

// received[s]: the list source s sent this rank. Throws KernelError on a slot or token index out of range.
// max_rows >= 0: also when there are more rows than the plan's buffer holds.
void order_rows(std::span<const DispatchList *const> received, int64_t local, ExpertRows &order,
                int64_t max_rows = -1);

// out[r] = the row of its origin. received[s]: the rows source s sent, [tokens of s, H]; out [R, H].
void expand_rows(std::span<const ConstRows> received, const ExpertRows &order, Rows out);

// sums[i] = Σ over the token's rows here of weight·row, in row order, for the tokens of one source in the
// order it sent them. rows [R, H]; sums [tokens of that source, H].
void combine_rows(ConstRows rows, const ExpertRows &order, int64_t source, Rows sums);

// y[t] = Σ over destinations in ascending order of what each returned for t (lists[d], returned[d]), plus
// shared (data null: none). returned[d] [lists[d].tokens.size(), H]; y, shared [T, H]; y may be shared.
void combine_accumulate(std::span<const DispatchList> lists, std::span<const ConstRows> returned,
                        ConstRows shared, Rows y);

} // namespace paratope
