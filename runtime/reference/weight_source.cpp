// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/weight_source.h"

#include "runtime/weights/model_weights.h"
#include "runtime/weights/shard.h"

namespace paratope::reference {

WeightSource::WeightSource(const plan::Model &model) : seed(model.seed) {
  for (plan::Weight &weight : model_weights(model))
    weights.emplace(weight.name, std::move(weight));
}

Weights WeightSource::get(const std::string &name) const {
  const plan::Weight &weight = weights.at(name);
  Weights elements(static_cast<size_t>(num_elements(weight.shape)));
  fill_tensor(seed, name, static_cast<int64_t>(elements.size()), init_named(weight.init, weight.fan_in),
              elements.data());
  return elements;
}

Weights WeightSource::get_if_any(const std::string &name) const {
  return weights.count(name) ? get(name) : Weights{};
}

} // namespace paratope::reference
