// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/weight_source.h"

#include "runtime/weights/model_weights.h"
#include "runtime/weights/shard.h"

namespace paratope::reference {

WeightSource::WeightSource(const plan::Model &model, const std::string &base_dir)
    : store(open_weights(model, base_dir)) {
  for (plan::Weight &weight : model_weights(model))
    weights.emplace(weight.name, std::move(weight));
}

Weights WeightSource::get(const std::string &name) const {
  const plan::Weight &weight = weights.at(name);
  Weights elements(static_cast<size_t>(num_elements(weight.shape)));
  store.fill(name, init_named(weight.init, weight.fan_in), 0, static_cast<int64_t>(elements.size()),
             elements.data());
  return elements;
}

Weights WeightSource::get_if_any(const std::string &name) const {
  return weights.count(name) ? get(name) : Weights{};
}

} // namespace paratope::reference
