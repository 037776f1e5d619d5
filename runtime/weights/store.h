// SPDX-License-Identifier: Apache-2.0
//
// Where a model's weights come from, as one thing: whoever needs a run of a tensor asks for it by name, and
// does not know whether it is drawn or read.
//
//     weights = "synthetic"          element i of a name, by Philox (random_tensor.h)
//     weights = "safetensors:DIR"    DIR/*.safetensors, our names (runtime/plan/instructions.md), whole
//     tensors;
//                                    ranks read the parts they hold, run by run
//
// A store is a value; copies share the mapped files.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/weights/random_tensor.h"

#include <memory>
#include <string_view>

namespace paratope {

class WeightStore {
public:
  explicit WeightStore(int64_t seed) : seed(seed) {} // synthetic

  // dst[j] = element first + j of tensor `name`; `init` is how a synthetic one is made. Elements behind a
  // stored tensor's end, which are the padding of a table, are 0. Throws WeightError on a name no file has.
  void fill(std::string_view name, Init init, int64_t first, int64_t count, float *dst) const;

private:
  friend WeightStore open_weights(const plan::Model &model, const std::string &base_dir);
  struct Files;
  int64_t seed = 0;
  std::shared_ptr<const Files> files; // null: synthetic
};

// The store that model.weights names. A relative DIR is below base_dir. Throws WeightError, which lists all
// there is to say, when weights is of neither form, DIR has no such file, one cannot be read, two have the
// same tensor, or the tensors are not those of model_weights(model): missing, more, of another shape, or no
// floats.
WeightStore open_weights(const plan::Model &model, const std::string &base_dir);

} // namespace paratope
