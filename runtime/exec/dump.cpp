// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/dump.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "runtime/comm/error.h"
#include "runtime/plan/plan_json.h"
#include "runtime/weights/model_weights.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/shard.h"
#include "runtime/weights/state.h"

namespace paratope {
namespace {

constexpr const char *readme = R"(# A dumped run

What a run of the plan beside this file was given and computed. Tensors are safetensors, in float32 where nothing
else is said; linear weights are [out, in]. Tokens and sequences are numbered over all engines in order; S counts
steps and L layers, from 0.

topology.toml         what was compiled, whole (where the run was of a topology and not of a plan)
plan.json             the plan; its "model" and "workload" are all that the mathematics needs
weights/weights.safetensors   every weight of the model, whole, by name: [model] weights = "safetensors:…/weights" runs
                      on them
inputs.safetensors
  sequence            [tokens] i32           the sequence of each token
  last_token          [sequences] i64        the token whose logits count
  history             [sequences] i64        tokens a sequence had in its cache before step 0
  steps.S.ids         [tokens] i32           what was fed
  steps.S.positions   [tokens] i32
  kv.L                [entries, D]           cache entries of the history, those a window can still see
  kv.L.sequence, kv.L.position   [entries] i64
  kv_compressed.L     [entries, D]           compressed entries of the history (layers with a ratio)
  kv_compressed.L.sequence, kv_compressed.L.entry   [entries] i64
  kv_open.L, kv_open_gate.L      [entries, D]   candidates and gate logits of a block that is not complete (ratio > 1)
  kv_open.L.sequence, kv_open.L.position   [entries] i64
  context_ids         [sequences, ngram - 1] i32   ids before step 0, the last one last; 0 before the start (Engram)
  engram.multipliers  [engram layers, ngram] i64
layers.safetensors
  steps.S.layers.L    [tokens, streams * H]  the residual after a layer
result.safetensors
  steps.S.hidden      [tokens, H]            after the final norm
  steps.S.logits      [sequences, V]
  steps.S.next_ids    [sequences] i32        the largest logit's
  steps.S.layers.L.experts           [tokens, top_k] i32   logical experts, in the gate's order
  steps.S.layers.L.expert_weights    [tokens, top_k]

What lies in a cache before step 0 is drawn, not computed: entries are taken as normalised and rotated. Which of it
a layer needs is in the plan's model: window, compress_ratios. `tests/oracle/model.py DIR` computes all of this again.
)";

constexpr int32_t no_id = std::numeric_limits<int32_t>::min();
const float no_value = std::numeric_limits<float>::quiet_NaN();

// Owns the arrays of a file until they are written.
class Tensors {
public:
  template <class T> void add(std::string name, std::vector<int64_t> shape, std::vector<T> values) {
    auto kept = std::make_shared<std::vector<T>>(std::move(values));
    TensorToWrite tensor = tensor_to_write(std::move(name), std::move(shape), std::span<const T>(*kept));
    tensor.fill = [kept, fill = tensor.fill](int64_t first, int64_t count, void *dst) {
      fill(first, count, dst);
    };
    list.push_back(std::move(tensor));
  }
  std::vector<TensorToWrite> list;
};

int64_t size_of(const auto &list) { return static_cast<int64_t>(list.size()); }

// Rows of a state tensor, with the sequence and place of each.
struct StateRows {
  StateTensor tensor;
  std::vector<int64_t> sequences = {}, places = {};

  void add_to(Tensors &tensors, const plan::Model &model, int64_t layer, const char *name) const {
    const int64_t dims = whole_entry(model);
    const PhiloxKey key = state_key(model.seed, tensor, layer);
    std::vector<float> rows(static_cast<size_t>(size_of(places) * dims));
    for (size_t i = 0; i < places.size(); ++i)
      fill_state_row(key, sequences[i], places[i], dims, 0, dims,
                     rows.data() + static_cast<int64_t>(i) * dims);
    tensors.add(fmt::format("{}.{}", name, layer), {size_of(places), dims}, std::move(rows));
  }
};

[[noreturn]] void missing(int64_t step, const std::string &what, size_t at) {
  throw RuntimeError(
      fmt::format("dump: step {}: got no {} for entry {}, expected one from some rank", step, what, at));
}

} // namespace

Dump::Dump(const plan::Plan &the_plan, std::string the_directory, int64_t num_steps)
    : plan(the_plan), directory(std::move(the_directory)) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed)
    throw RuntimeError(fmt::format("cannot make the directory {}: {}", directory, failed.message()));
  write_whole_file(directory + "/README", readme);
  write_whole_file(directory + "/plan.json", plan::write_json(plan));

  wanted.resize(plan.instructions.size());
  layer_of.assign(plan.instructions.size(), -1);
  std::vector<int64_t> last(static_cast<size_t>(plan.model.layers), -1);
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const plan::Instruction &instruction = plan.instructions[i];
    if (instruction.op == "batch")
      wanted[i] = What::batch;
    else if (instruction.op == "gate")
      wanted[i] = What::gate;
    else if ((instruction.op == "hc_post" || instruction.op == "add") &&
             instruction.name.starts_with("layers.")) {
      const int64_t layer = std::atoll(instruction.name.c_str() + 7);
      if (layer >= 0 && layer < plan.model.layers)
        last[static_cast<size_t>(layer)] = static_cast<int64_t>(i);
    }
  }
  for (size_t layer = 0; layer < last.size(); ++layer)
    if (last[layer] >= 0) {
      wanted[static_cast<size_t>(last[layer])] = What::layer;
      layer_of[static_cast<size_t>(last[layer])] = static_cast<int64_t>(layer);
    }
  tokens = plan::batch_of(plan.workload, plan::num_engines(plan)).tokens;
  steps.resize(static_cast<size_t>(num_steps));
  for (Step &step : steps) {
    step.layers.resize(static_cast<size_t>(plan.model.layers));
    step.experts.resize(static_cast<size_t>(plan.model.layers));
    step.expert_weight.resize(static_cast<size_t>(plan.model.layers));
  }
}

template <class T>
void Dump::take(const Rank &rank, int64_t buffer, int64_t row_size, std::vector<T> &into, T none) {
  const BufferState &state = rank.buffers[static_cast<size_t>(buffer)];
  if (into.empty())
    into.assign(static_cast<size_t>(tokens * row_size), none);
  for (size_t row = 0; row < state.tokens.size(); ++row) {
    const int64_t token = state.tokens[row];
    if (token >= 0 && token < tokens) // neither padding nor a placeholder
      std::memcpy(into.data() + token * row_size,
                  state.data + row * static_cast<size_t>(row_size) * sizeof(T),
                  static_cast<size_t>(row_size) * sizeof(T));
  }
}

void Dump::observe(const Rank &rank, const plan::Instruction &instruction, int64_t step) {
  const auto id = static_cast<size_t>(instruction.id);
  if (step < 0 || wanted[id] == What::nothing)
    return;
  std::lock_guard lock(mutex);
  Step &into = steps[static_cast<size_t>(step)];
  auto row_size = [&](size_t output) {
    return plan.buffers[static_cast<size_t>(instruction.outputs[output])].row_size;
  };
  if (wanted[id] == What::batch) {
    take(rank, instruction.outputs[0], 1, into.ids, no_id);
    take(rank, instruction.outputs[1], 1, into.positions, no_id);
  } else if (wanted[id] == What::layer) {
    take(rank, instruction.outputs[0], row_size(0), into.layers[static_cast<size_t>(layer_of[id])], no_value);
  } else {
    const auto layer = static_cast<size_t>(instruction.layer);
    take(rank, instruction.outputs[0], row_size(0), into.experts[layer], no_id);
    take(rank, instruction.outputs[1], row_size(1), into.expert_weight[layer], no_value);
  }
}

void Dump::write_inputs(const WorldState &state, int64_t num_steps) const {
  const plan::Model &model = plan.model;
  const plan::Batch &batch = state.program.batch;
  Tensors tensors;
  std::vector<int32_t> sequence_of(static_cast<size_t>(tokens));
  std::vector<int64_t> last, history;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const plan::Sequence &sequence = batch.sequences[s];
    std::fill_n(sequence_of.begin() + sequence.first_token, sequence.length, static_cast<int32_t>(s));
    last.push_back(sequence.first_token + sequence.length - 1);
    history.push_back(sequence.history);
  }
  const int64_t sequences = size_of(batch.sequences);
  tensors.add("sequence", {tokens}, std::move(sequence_of));
  tensors.add("last_token", {sequences}, std::move(last));
  tensors.add("history", {sequences}, std::move(history));
  for (int64_t step = 0; step < num_steps; ++step) {
    const Step &from = steps[static_cast<size_t>(step)];
    for (const auto &[name, values] :
         {std::pair("ids", &from.ids), std::pair("positions", &from.positions)}) {
      if (auto hole = std::find(values->begin(), values->end(), no_id);
          hole != values->end() || values->empty())
        missing(step, name, static_cast<size_t>(hole - values->begin()));
      tensors.add(fmt::format("steps.{}.{}", step, name), {tokens}, *values);
    }
  }
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const int64_t window = model.window.empty() ? 0 : model.window[static_cast<size_t>(layer)];
    const int64_t ratio =
        model.compress_ratios.empty() ? 0 : model.compress_ratios[static_cast<size_t>(layer)];
    StateRows kv{StateTensor::kv}, compressed{StateTensor::kv_compressed}, open{StateTensor::kv_open};
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t past = batch.sequences[static_cast<size_t>(s)].history;
      for (int64_t p = window > 0 ? std::max<int64_t>(0, past - window) : 0; p < past; ++p)
        kv.sequences.push_back(s), kv.places.push_back(p);
      for (int64_t j = 0; ratio > 0 && j < past / ratio; ++j)
        compressed.sequences.push_back(s), compressed.places.push_back(j);
      for (int64_t p = ratio > 1 ? past - past % ratio : past; p < past; ++p)
        open.sequences.push_back(s), open.places.push_back(p);
    }
    auto places = [&](const char *name, const StateRows &rows, const char *place) {
      tensors.add(fmt::format("{}.{}.sequence", name, layer), {size_of(rows.places)}, rows.sequences);
      tensors.add(fmt::format("{}.{}.{}", name, layer, place), {size_of(rows.places)}, rows.places);
    };
    kv.add_to(tensors, model, layer, "kv");
    places("kv", kv, "position");
    if (ratio > 0) {
      compressed.add_to(tensors, model, layer, "kv_compressed");
      places("kv_compressed", compressed, "entry");
    }
    if (ratio > 1) {
      open.add_to(tensors, model, layer, "kv_open");
      places("kv_open", open, "position");
      open.tensor = StateTensor::kv_open_gate;
      open.add_to(tensors, model, layer, "kv_open_gate");
    }
  }
  if (!model.engram_layers.empty()) {
    std::vector<int32_t> context;
    for (int64_t s = 0; s < sequences; ++s)
      for (int64_t k = model.engram_ngram - 1; k > 0; --k) {
        const int64_t position = batch.sequences[static_cast<size_t>(s)].history - k;
        context.push_back(position < 0 ? 0 : context_token_id(model.seed, s, position, model.vocab));
      }
    tensors.add("context_ids", {sequences, model.engram_ngram - 1}, std::move(context));
    std::vector<int64_t> multipliers;
    for (const EngramHash &hash : state.program.hashes)
      multipliers.insert(multipliers.end(), hash.multipliers.begin(),
                         hash.multipliers.begin() + model.engram_ngram);
    tensors.add("engram.multipliers", {size_of(model.engram_layers), model.engram_ngram},
                std::move(multipliers));
  }
  write_safetensors(directory + "/inputs.safetensors", std::move(tensors.list));
}

void Dump::write_weights(const WorldState &state) const {
  const std::vector<plan::Weight> weights = model_weights(plan.model);
  double bytes = 0;
  for (const plan::Weight &weight : weights)
    bytes += 4 * static_cast<double>(num_elements(weight.shape));
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(directory, failed);
  if (!failed && bytes > static_cast<double>(space.available))
    throw RuntimeError(
        fmt::format("dump: got {:.3f} GB of weights, expected at most the {:.3f} GB that {} has room "
                    "for (--tiny makes them small)",
                    bytes / 1e9, static_cast<double>(space.available) / 1e9, directory));
  std::vector<TensorToWrite> list;
  for (const plan::Weight &weight : weights)
    list.push_back({weight.name, "F32", weight.shape, [&](int64_t first, int64_t count, void *dst) {
                      state.program.store.fill(weight.name, init_named(weight.init, weight.fan_in), first,
                                               count, static_cast<float *>(dst));
                    }});
  std::filesystem::create_directories(directory + "/weights",
                                      failed); // a file that cannot be written says so
  write_safetensors(directory + "/weights/weights.safetensors", std::move(list));
}

void Dump::write_results(const WorldState &state, int64_t num_steps) const {
  const plan::Model &model = plan.model;
  const int64_t width = model.hyper_connections * model.hidden,
                sequences = size_of(state.program.batch.sequences);
  auto check = [](int64_t step, const std::string &what, const std::vector<float> &values) {
    auto hole = std::find_if(values.begin(), values.end(), [](float value) { return std::isnan(value); });
    if (hole != values.end() || values.empty())
      missing(step, what, static_cast<size_t>(hole - values.begin()));
  };
  Tensors layers, result;
  for (int64_t step = 0; step < num_steps; ++step) {
    const Step &from = steps[static_cast<size_t>(step)];
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      const auto l = static_cast<size_t>(layer);
      const std::string name = fmt::format("steps.{}.layers.{}", step, layer);
      check(step, fmt::format("residual of layer {}", layer), from.layers[l]);
      layers.add(name, {tokens, width}, from.layers[l]);
      if (from.experts[l].empty())
        continue;
      check(step, fmt::format("expert weight of layer {}", layer), from.expert_weight[l]);
      const int64_t top_k = size_of(from.experts[l]) / tokens;
      result.add(name + ".experts", {tokens, top_k}, from.experts[l]);
      result.add(name + ".expert_weights", {tokens, top_k}, from.expert_weight[l]);
    }
    std::vector<float> hidden(static_cast<size_t>(tokens * model.hidden), no_value),
        logits(static_cast<size_t>(sequences * model.vocab), no_value);
    std::vector<int32_t> ids(static_cast<size_t>(sequences), no_id);
    for (const auto &rank : state.ranks)
      for (const Rank::Output &output : rank->outputs) {
        if (output.step != step)
          continue;
        for (size_t t = 0; t < output.tokens.size(); ++t)
          if (output.tokens[t] >= 0 && output.tokens[t] < tokens)
            std::copy_n(output.hidden.begin() + static_cast<int64_t>(t) * model.hidden, model.hidden,
                        hidden.begin() + output.tokens[t] * model.hidden);
        for (size_t t = 0; t < output.last.size(); ++t)
          if (output.last[t] >= 0 && output.last[t] < tokens) {
            const int64_t sequence = state.program.batch.sequence_of(output.last[t]);
            std::copy_n(output.logits.begin() + static_cast<int64_t>(t) * model.vocab, model.vocab,
                        logits.begin() + sequence * model.vocab);
            ids[static_cast<size_t>(sequence)] = output.ids[t];
          }
      }
    check(step, "hidden", hidden);
    check(step, "logit", logits);
    result.add(fmt::format("steps.{}.hidden", step), {tokens, model.hidden}, std::move(hidden));
    result.add(fmt::format("steps.{}.logits", step), {sequences, model.vocab}, std::move(logits));
    result.add(fmt::format("steps.{}.next_ids", step), {sequences}, std::move(ids));
  }
  write_safetensors(directory + "/layers.safetensors", std::move(layers.list));
  write_safetensors(directory + "/result.safetensors", std::move(result.list));
}

void Dump::write(const WorldState &state, int64_t num_steps) {
  if (tokens == 0 || num_steps == 0)
    throw RuntimeError(
        "dump: got no tokens that were computed, expected some (every engine ran a placeholder, or no "
        "step was finished)");
  write_inputs(state, num_steps);
  write_weights(state);
  write_results(state, num_steps);
}

} // namespace paratope
