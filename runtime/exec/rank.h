// SPDX-License-Identifier: Apache-2.0
//
// One rank while a plan runs: its memory, its caches, what it knows about the rows in every buffer, and the
// exchanges in flight. Everything here outlives the rank's thread.
//
//     arena "activation" [ ids | positions | x | q | … ]   a buffer is a place in an arena, taken once
//     buffer 7           rows 8, tokens [40 41 … 47]       what it holds now: how many rows, of which tokens
#pragma once

#include "kernels/attention/kv_cache.h"
#include "kernels/engram/op.h"
#include "kernels/moe/dispatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/batch.h"
#include "runtime/plan/plan.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <vector>

namespace paratope {

// Bytes of one arena, zero; the system gives a page when it is first touched, so that room which a step never
// uses costs nothing.
class Arena {
public:
  Arena() = default;
  explicit Arena(size_t bytes)
      : memory(static_cast<std::byte *>(std::calloc(bytes ? bytes : 1, 1))), num_bytes(bytes) {
    if (!memory)
      throw std::bad_alloc();
  }
  std::byte *data() const { return memory.get(); }
  size_t size() const { return num_bytes; }

private:
  struct Free {
    void operator()(std::byte *bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> memory;
  size_t num_bytes = 0;
};

// What a buffer holds at the moment. `tokens` names each row's token by its number among all engines'
// (runtime/plan/batch.h); engine e's placeholder has number (all tokens) + e, padding of a mirrored cut has
// −1. Rows of an expert (after dispatch) have no token of their own.
inline constexpr int64_t padding = -1;
struct BufferState {
  std::byte *data = nullptr;
  int64_t rows = 0;
  std::vector<int64_t> tokens;
};

// A dispatch and the combine that answers it (or a fetch's request and reply), as one side sees them. Taken
// from a pool and given back when the answer is there.
struct Exchange {
  std::vector<DispatchList> lists;    // what this rank sent each member
  std::vector<int64_t> tokens;        // of the rows it dispatched
  std::vector<DispatchList> received; // what each member sent here
  ExpertRows order;
  std::vector<std::byte> send, arrived;
  std::vector<int64_t> send_bytes, arrived_bytes; // [size]
  int64_t flow = 0;                               // arrow of the trace
};

// A collective between issue and await.
struct Pending {
  bool active = false;
  comm::Communicator *communicator = nullptr;
  comm::Ticket ticket;
  Exchange *exchange = nullptr;  // dispatch, combine, fetch
  std::vector<int64_t> rows_of;  // all_gather, all_to_all: rows of each member; what undoes it reads them
  std::vector<int64_t> tokens;   // of this rank's own rows
  std::vector<int64_t> gathered; // all_gather: tokens of all rows
  std::vector<comm::GatherPart> parts;
  std::vector<float> mine;           // gather_scales: this rank's part
  int64_t word = 0, word_result = 0; // of a vote, or another reduction of one integer
  int64_t bytes = 0;                 // this rank sends
};

struct Rank {
  int64_t rank = 0;
  bool serving = true; // false: holds table rows and answers fetches, and nothing below
  int64_t engine = 0;
  bool placeholder = false;                    // the engine has no work
  int64_t first_sequence = 0, first_token = 0; // numbers of the engine's first
  int64_t num_tokens = 0;                      // of its flat batch; 1 for a placeholder
  std::vector<plan::Sequence> sequences;       // of the engine; one of one token for a placeholder
  std::vector<int32_t> sequence_of;            // [num_tokens] of each token, counted in the engine
  std::map<std::string, int64_t> blocks;       // of every axis

  std::map<std::string, Arena> arenas;
  std::vector<BufferState> buffers;        // by id
  std::vector<const float *> weights;      // by id
  std::vector<comm::Communicator *> comms; // by id; nullptr where the rank is in no group
  KvCache cache;
  TokenHistory history;
  std::vector<int32_t> ids;               // decode: of the next batch
  std::vector<std::vector<float>> scales; // of each Engram table, all its rows, once gathered

  std::map<int64_t, Exchange *> tables; // by the buffer id of a dispatch's `table`
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<Exchange *> free_exchanges;
  std::vector<Pending> pending; // by instruction id of a collective; else unused
  std::vector<int64_t> scratch_tokens;
  std::vector<int32_t> scratch_sequences;
  std::vector<int32_t> drawn; // routing that is not the gate's

  // Kept for the result.
  using Counts = std::map<std::pair<std::string, int64_t>, int64_t>; // (op, comm) → times
  Counts issued, issued_at_load;
  int64_t kv_blocks = -1; // what kv_blocks agreed on
  double load_end_us = 0;
  std::vector<double> instruction_us; // by id, over all steps
  std::vector<double> step_end_us;
  int64_t rows_sent = 0, rows_received = 0;
  struct Choice {
    int64_t step, layer, top_k;
    std::vector<int64_t> tokens;
    std::vector<int32_t> experts; // [tokens · top_k]
  };
  std::vector<Choice> choices;
  struct Output {
    int64_t step;
    std::vector<int64_t> tokens, last; // rows of hidden, and of logits and ids
    std::vector<float> hidden, logits; // [tokens, H], [last, V]; kept for verification only
    std::vector<int32_t> ids;          // argmax
  };
  std::vector<Output> outputs; // one a step
  std::string failure;
};

} // namespace paratope
