// SPDX-License-Identifier: Apache-2.0
//
// The compiled, executable form of a step, as plain values. The compiler writes it, the runtime walks it, and
// neither knows the other. One program serves every rank: what differs follows from the rank's number through
// the digit sums below, so a plan's size does not depend on the world's.
//
// What each instruction means is in instructions.md beside this file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace paratope::plan {

inline constexpr int64_t plan_version = 1;

// Σ ((rank / div) % mod) · mul: the closed form of a communicator's color and key, and of an axis coordinate.
struct Digit {
  int64_t div = 1, mod = 1, mul = 1;
  bool operator==(const Digit &) const = default;
};
struct DigitSum {
  std::vector<Digit> digits;
  std::vector<int64_t> table; // instead of digits, where no closed form exists (rank_map): one value a rank
  int64_t operator()(int64_t rank) const;
  bool operator==(const DigitSum &) const = default;
};

// An axis tensors are split over: `size` blocks, and which one a rank holds.
struct Axis {
  std::string name;
  int64_t size = 1;
  DigitSum block;
  bool operator==(const Axis &) const = default;
};

struct Communicator {
  int64_t id = 0;                  // also the order of creation
  std::vector<std::string> groups; // every group of the topology that shares it: ["ep", "ep_in_dp"]
  std::string isolation;           // data | control | prefetch: never in one communicator
  std::string backend;             // host | nccl | gloo, as the topology's control_plane and the target say
  int64_t size = 1;                // ranks of one group
  int64_t count = 1;               // groups
  DigitSum color;                  // which group a rank is in
  DigitSum key;                    // its number inside it
  bool operator==(const Communicator &) const = default;
};

// Arrays that several instructions read are buffers; a buffer's first dim counts rows, of which an
// instruction uses as many as its rank has (never more than `rows`).
struct Buffer {
  int64_t id = 0;
  std::string name;     // "layers.3.attn.q"
  std::string dtype;    // f32 | i32 | i64
  int64_t rows = 0;     // the plan's maximum
  int64_t row_size = 0; // elements of one row
  std::string arena;    // activation | exchange
  int64_t offset = 0;   // bytes from the arena's start
  int64_t bytes = 0;    // aligned
  bool operator==(const Buffer &) const = default;
};

// A dim of a weight that is split: into `axis.size` equal blocks, or, for routed experts, by the slot table.
struct WeightSplit {
  int64_t dim = 0;
  std::string axis;
  bool by_slots = false; // dim 0 counts logical experts; a rank holds those of its slots
  bool operator==(const WeightSplit &) const = default;
};

struct Weight {
  int64_t id = 0;
  std::string name;           // its identity in the model: "layers.3.attn.wq_a"
  std::vector<int64_t> shape; // global
  std::string init;           // normal | gain | bias | hc_scale (runtime/weights)
  int64_t fan_in = 1;
  std::vector<WeightSplit> splits;
  bool operator==(const Weight &) const = default;
};

struct Instruction {
  int64_t id = 0;
  std::string op;   // instructions.md
  std::string name; // where in the model: "layers.3.attn"
  int64_t layer = -1;
  std::vector<int64_t> inputs;  // buffers
  std::vector<int64_t> outputs; // buffers
  std::vector<int64_t> weights;
  std::map<std::string, double> numbers; // integers are exact up to 2⁵³
  std::map<std::string, std::string> words;
  int64_t comm = -1;          // a communicator, for collectives
  std::string stream;         // compute | exchange | prefetch | control
  std::vector<int64_t> waits; // instructions of other streams that must have finished first
  int64_t awaits = -1;        // op "await": the collective it completes
  std::string where;          // file:line:column that caused it
  bool operator==(const Instruction &) const = default;
};

// Consecutive instructions that are one kernel on a device; the host runs it by its parts.
struct Kernel {
  std::string fusion; // "gemm-swiglu"; "qkv+norm-linear" where one joined another
  int64_t first = 0;  // instruction
  int64_t count = 0;  // instructions
  bool operator==(const Kernel &) const = default;
};

// What the compiler says will be sent, and the runtime compares with what was.
struct LedgerEntry {
  std::string op; // as instructions have it: the runtime counts what it issues by (op, comm)
  std::string group;
  int64_t comm = -1; // −1: not issued by the plan's instructions
  int64_t ranks = 1;
  int64_t bytes_per_rank = 0; // sent, each time
  int64_t times = 1;          // a step; of category load: once, before the first
  bool blocking = true;
  std::string where;        // "MoE dispatch", "liveness"
  std::string category;     // dense | exchange | control | fetch | context | load
  double predicted_us = -1; // < 0: not priced
  bool operator==(const LedgerEntry &) const = default;
};

// The model's numbers as the reference needs them: the same keys as the topology's [model].
struct Model {
  std::string name;
  std::string weights = "synthetic"; // or safetensors:DIR; a relative DIR is below the plan's own folder
  int64_t hidden = 0, layers = 0, vocab = 0, hyper_connections = 1, seed = 0;
  double rms_eps = 0;
  // attention
  std::string attention; // latent | mla | gqa
  int64_t heads = 0, kv_heads = 1, head_dim = 0, rope_dim = 0, q_lora = 0, kv_lora = 0, nope_dim = 0,
          v_dim = 0;
  int64_t o_groups = 0, o_lora = 0;
  double rope_theta = 0, compress_rope_theta = 0;
  std::vector<int64_t> window;          // one a layer
  std::vector<int64_t> compress_ratios; // one a layer
  bool sink = false;
  // experts
  int64_t routed = 0, top_k = 0, shared = 0, expert_width = 0, gate_groups = 1, gate_top_groups = 1;
  int64_t dense_layers = 0, dense_width = 0;
  std::string score;
  bool normalise = true;
  double scaling = 1, swiglu_limit = 0;
  // engram
  std::vector<int64_t> engram_layers;
  int64_t engram_ngram = 0, engram_heads = 0, engram_dim = 0, engram_vocab_per_head = 0;
  std::vector<std::vector<int64_t>> engram_multipliers;
  bool operator==(const Model &) const = default;
};

struct Routing {
  std::string kind = "gate"; // gate | uniform | zipf | dirichlet | hot | trace
  double s = 1, alpha = 1;
  int64_t expert = 0, seed = 0;
  std::string file;
  bool operator==(const Routing &) const = default;
};

// Step s takes every sequence on by as many tokens as it has in a step: one in decode, its prompt's length in
// prefill (so further prefill steps are the next chunks of the same prompts).
struct Workload {
  std::string phase = "decode";       // decode | prefill
  std::vector<int64_t> engine_tokens; // decode: sequences of engine i, entry i mod size; 0: no work
  int64_t context = 0;                // decode: KV entries each sequence starts with
  std::vector<std::vector<int64_t>> engine_prompts; // prefill: prompt lengths of engine i, entry i mod size
  std::vector<int64_t> history; // prefill: KV entries before prompt j of an engine, entry j mod size; {}: 0
  Routing routing;
  bool operator==(const Workload &) const = default;
};

struct Experts {
  int64_t logical = 0, physical = 0, local = 0;
  std::vector<int64_t> slots; // logical expert of each physical slot; slot p is on block p / local of axis ep
  bool operator==(const Experts &) const = default;
};

struct Plan {
  int64_t version = plan_version;
  std::string tool, tool_version, topology, source, source_hash;
  int64_t world = 1;
  int64_t serving_ranks = 0; // ranks from here on hold Engram rows only, and answer fetches; 0: none
  std::map<std::string, int64_t> sizes; // every axis of the topology
  std::vector<Axis> axes;
  std::string engine_axis; // engines: the blocks of this axis; its ranks share one batch
  Model model;
  Workload workload;
  Experts experts;
  std::vector<Communicator> communicators;
  std::map<std::string, int64_t> arena_bytes;
  std::vector<Buffer> buffers;
  std::vector<Weight> weights;
  // The ways a rank may take through the instructions. All issue the same collectives: "real" with its
  // tokens, "placeholder" with one token that is thrown away, for an engine without work.
  std::vector<std::string> paths = {"real", "placeholder"};
  std::vector<Instruction> load;         // once, before the first step, in order: kv_blocks, warm_up, …
  std::vector<Instruction> instructions; // issue order; streams and waits say what may overlap
  std::vector<Kernel> kernels;           // by first instruction; all others are kernels of their own
  std::vector<LedgerEntry> ledger;
  int64_t kv_block_tokens = 64;   // tokens of one page of the KV cache
  std::vector<std::string> notes; // what a reader should know: what --tiny shrank, what is not executed
  bool operator==(const Plan &) const = default;
};

// The fusion whose kernel an instruction is a part of; empty when it is a kernel of its own.
std::string_view fusion_of(const Plan &plan, int64_t instruction);

} // namespace paratope::plan
