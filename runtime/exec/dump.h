// SPDX-License-Identifier: Apache-2.0
//
// A run as files that anybody's code can read, to compute the same step again: all weights whole and by name,
// what was fed, what the caches held, and what came out, down to the residual after each layer. Arrays are in
// the order of the batch's tokens (runtime/plan/batch.h), whatever rank computed them.
//
//     rank 0  layers.7.moe hc_post ─ rows of tokens 0 1 2 ┐
//     rank 1  layers.7.moe hc_post ─ rows of tokens 3 4   ┴─▶ layers.safetensors: steps.0.layers.7 [tokens,
//     n·H]
//
// The residual after layer l is what the last `hc_post` or `add` named layers.l.… writes: there is nothing
// after it in its layer, on any path.
#pragma once

#include "runtime/exec/setup.h"

#include <mutex>
#include <string>
#include <vector>

namespace paratope {

class Dump {
public:
  // Makes the directory where it is not there, and writes its README, so that a place that cannot be written
  // is known before the run. Throws RuntimeError or WeightError.
  Dump(const plan::Plan &plan, std::string directory, int64_t steps);

  // From the ranks' threads, once an instruction is complete.
  void observe(const Rank &rank, const plan::Instruction &instruction, int64_t step);

  // After the run: the files, of the steps that were completed. Throws RuntimeError when no rank gave a value
  // that should be there, and WeightError where the system does not let a file be written.
  void write(const WorldState &state, int64_t steps);

private:
  enum class What : uint8_t { nothing, batch, layer, gate };
  struct Step {
    std::vector<int32_t> ids, positions;           // [tokens]
    std::vector<std::vector<float>> layers;        // [layer][tokens, n·H]
    std::vector<std::vector<int32_t>> experts;     // [layer][tokens, k]; empty without a gate
    std::vector<std::vector<float>> expert_weight; // the same
  };
  template <class T>
  void take(const Rank &rank, int64_t buffer, int64_t row_size, std::vector<T> &into, T missing);
  void write_inputs(const WorldState &state, int64_t steps) const;
  void write_weights(const WorldState &state) const;
  void write_results(const WorldState &state, int64_t steps) const;

  const plan::Plan &plan;
  std::string directory;
  int64_t tokens = 0;
  std::vector<What> wanted;      // of each instruction
  std::vector<int64_t> layer_of; // of each instruction that ends a layer
  std::mutex mutex;
  std::vector<Step> steps;
};

} // namespace paratope
