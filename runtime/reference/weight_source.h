// SPDX-License-Identifier: Apache-2.0
//
// Weights by name, made whole when asked for.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/reference/math.h"

#include <map>
#include <string>

namespace paratope::reference {

class WeightSource {
public:
  explicit WeightSource(const plan::Model &model);
  // Its elements. get_if_any: empty when the model has no such weight.
  Weights get(const std::string &name) const;
  Weights get_if_any(const std::string &name) const;

private:
  int64_t seed = 0;
  std::map<std::string, plan::Weight> weights;
};

} // namespace paratope::reference
