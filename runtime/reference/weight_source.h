// SPDX-License-Identifier: Apache-2.0
//
// Weights by name, drawn or read whole when asked for.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/reference/math.h"
#include "runtime/weights/store.h"

#include <map>
#include <string>

namespace paratope::reference {

class WeightSource {
public:
  // A relative directory of model.weights is below base_dir. Throws WeightError as open_weights.
  explicit WeightSource(const plan::Model &model, const std::string &base_dir = "");
  // Its elements. get_if_any: empty when the model has no such weight.
  Weights get(const std::string &name) const;
  Weights get_if_any(const std::string &name) const;

  const WeightStore store; // for what is read in parts

private:
  std::map<std::string, plan::Weight> weights;
};

} // namespace paratope::reference
