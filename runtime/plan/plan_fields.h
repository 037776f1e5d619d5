// SPDX-License-Identifier: Apache-2.0
//
// Each struct of plan.h as a list of (key, member, must it be present): the one description that the JSON
// writer, the JSON reader and its "unknown key" message share. An optional member is left out of the JSON
// when it has the value it has in a default-constructed struct.
//
// A visitor is called as visit(key, &Struct::member, required).
#pragma once

#include "runtime/plan/plan.h"

namespace paratope::plan {

inline constexpr bool must = true, may = false;

template <class Visit> void describe(const Digit *, Visit &&visit) {
  visit("div", &Digit::div, must);
  visit("mod", &Digit::mod, must);
  visit("mul", &Digit::mul, must);
}

template <class Visit> void describe(const DigitSum *, Visit &&visit) {
  visit("digits", &DigitSum::digits, may);
  visit("table", &DigitSum::table, may);
}

template <class Visit> void describe(const Axis *, Visit &&visit) {
  visit("name", &Axis::name, must);
  visit("size", &Axis::size, must);
  visit("block", &Axis::block, must);
}

template <class Visit> void describe(const Communicator *, Visit &&visit) {
  visit("id", &Communicator::id, must);
  visit("groups", &Communicator::groups, must);
  visit("isolation", &Communicator::isolation, must);
  visit("backend", &Communicator::backend, must);
  visit("size", &Communicator::size, must);
  visit("count", &Communicator::count, must);
  visit("color", &Communicator::color, must);
  visit("key", &Communicator::key, must);
}

template <class Visit> void describe(const Buffer *, Visit &&visit) {
  visit("id", &Buffer::id, must);
  visit("name", &Buffer::name, must);
  visit("dtype", &Buffer::dtype, must);
  visit("rows", &Buffer::rows, must);
  visit("row_size", &Buffer::row_size, must);
  visit("arena", &Buffer::arena, must);
  visit("offset", &Buffer::offset, must);
  visit("bytes", &Buffer::bytes, must);
}

template <class Visit> void describe(const WeightSplit *, Visit &&visit) {
  visit("dim", &WeightSplit::dim, must);
  visit("axis", &WeightSplit::axis, must);
  visit("by_slots", &WeightSplit::by_slots, may);
}

template <class Visit> void describe(const Weight *, Visit &&visit) {
  visit("id", &Weight::id, must);
  visit("name", &Weight::name, must);
  visit("shape", &Weight::shape, must);
  visit("init", &Weight::init, must);
  visit("fan_in", &Weight::fan_in, must);
  visit("splits", &Weight::splits, may);
}

template <class Visit> void describe(const Instruction *, Visit &&visit) {
  visit("id", &Instruction::id, must);
  visit("op", &Instruction::op, must);
  visit("name", &Instruction::name, may);
  visit("layer", &Instruction::layer, may);
  visit("inputs", &Instruction::inputs, may);
  visit("outputs", &Instruction::outputs, may);
  visit("weights", &Instruction::weights, may);
  visit("numbers", &Instruction::numbers, may);
  visit("words", &Instruction::words, may);
  visit("comm", &Instruction::comm, may);
  visit("stream", &Instruction::stream, must);
  visit("waits", &Instruction::waits, may);
  visit("awaits", &Instruction::awaits, may);
  visit("where", &Instruction::where, may);
}

template <class Visit> void describe(const Kernel *, Visit &&visit) {
  visit("fusion", &Kernel::fusion, must);
  visit("first", &Kernel::first, must);
  visit("count", &Kernel::count, must);
}

template <class Visit> void describe(const LedgerEntry *, Visit &&visit) {
  visit("op", &LedgerEntry::op, must);
  visit("group", &LedgerEntry::group, must);
  visit("comm", &LedgerEntry::comm, may);
  visit("ranks", &LedgerEntry::ranks, must);
  visit("bytes_per_rank", &LedgerEntry::bytes_per_rank, must);
  visit("times", &LedgerEntry::times, must);
  visit("blocking", &LedgerEntry::blocking, must);
  visit("where", &LedgerEntry::where, may);
  visit("category", &LedgerEntry::category, must);
  visit("predicted_us", &LedgerEntry::predicted_us, may);
}

template <class Visit> void describe(const Model *, Visit &&visit) {
  visit("name", &Model::name, must);
  visit("hidden", &Model::hidden, must);
  visit("layers", &Model::layers, must);
  visit("vocab", &Model::vocab, must);
  visit("hyper_connections", &Model::hyper_connections, may);
  visit("seed", &Model::seed, may);
  visit("weights", &Model::weights, may);
  visit("rms_eps", &Model::rms_eps, must);
  visit("attention", &Model::attention, must);
  visit("heads", &Model::heads, must);
  visit("kv_heads", &Model::kv_heads, may);
  visit("head_dim", &Model::head_dim, may);
  visit("rope_dim", &Model::rope_dim, may);
  visit("q_lora", &Model::q_lora, may);
  visit("kv_lora", &Model::kv_lora, may);
  visit("nope_dim", &Model::nope_dim, may);
  visit("v_dim", &Model::v_dim, may);
  visit("o_groups", &Model::o_groups, may);
  visit("o_lora", &Model::o_lora, may);
  visit("rope_theta", &Model::rope_theta, may);
  visit("compress_rope_theta", &Model::compress_rope_theta, may);
  visit("window", &Model::window, may);
  visit("compress_ratios", &Model::compress_ratios, may);
  visit("sink", &Model::sink, may);
  visit("routed", &Model::routed, may);
  visit("top_k", &Model::top_k, may);
  visit("shared", &Model::shared, may);
  visit("expert_width", &Model::expert_width, may);
  visit("gate_groups", &Model::gate_groups, may);
  visit("gate_top_groups", &Model::gate_top_groups, may);
  visit("dense_layers", &Model::dense_layers, may);
  visit("dense_width", &Model::dense_width, may);
  visit("score", &Model::score, may);
  visit("normalise", &Model::normalise, may);
  visit("scaling", &Model::scaling, may);
  visit("swiglu_limit", &Model::swiglu_limit, may);
  visit("engram_layers", &Model::engram_layers, may);
  visit("engram_ngram", &Model::engram_ngram, may);
  visit("engram_heads", &Model::engram_heads, may);
  visit("engram_dim", &Model::engram_dim, may);
  visit("engram_vocab_per_head", &Model::engram_vocab_per_head, may);
  visit("engram_multipliers", &Model::engram_multipliers, may);
}

template <class Visit> void describe(const Routing *, Visit &&visit) {
  visit("kind", &Routing::kind, must);
  visit("s", &Routing::s, may);
  visit("alpha", &Routing::alpha, may);
  visit("expert", &Routing::expert, may);
  visit("seed", &Routing::seed, may);
  visit("file", &Routing::file, may);
}

template <class Visit> void describe(const Workload *, Visit &&visit) {
  visit("phase", &Workload::phase, must);
  visit("engine_tokens", &Workload::engine_tokens, must);
  visit("context", &Workload::context, must);
  visit("engine_prompts", &Workload::engine_prompts, may);
  visit("history", &Workload::history, may);
  visit("routing", &Workload::routing, must);
}

template <class Visit> void describe(const Experts *, Visit &&visit) {
  visit("logical", &Experts::logical, must);
  visit("physical", &Experts::physical, must);
  visit("local", &Experts::local, must);
  visit("slots", &Experts::slots, must);
}

template <class Visit> void describe(const Plan *, Visit &&visit) {
  visit("version", &Plan::version, must);
  visit("tool", &Plan::tool, may);
  visit("tool_version", &Plan::tool_version, may);
  visit("topology", &Plan::topology, may);
  visit("source", &Plan::source, may);
  visit("source_hash", &Plan::source_hash, may);
  visit("world", &Plan::world, must);
  visit("serving_ranks", &Plan::serving_ranks, may);
  visit("sizes", &Plan::sizes, must);
  visit("axes", &Plan::axes, must);
  visit("engine_axis", &Plan::engine_axis, must);
  visit("model", &Plan::model, must);
  visit("workload", &Plan::workload, must);
  visit("experts", &Plan::experts, must);
  visit("communicators", &Plan::communicators, must);
  visit("arena_bytes", &Plan::arena_bytes, must);
  visit("buffers", &Plan::buffers, must);
  visit("weights", &Plan::weights, must);
  visit("paths", &Plan::paths, may);
  visit("load", &Plan::load, may);
  visit("instructions", &Plan::instructions, must);
  visit("kernels", &Plan::kernels, may);
  visit("ledger", &Plan::ledger, must);
  visit("kv_block_tokens", &Plan::kv_block_tokens, may);
  visit("notes", &Plan::notes, may);
}

} // namespace paratope::plan
