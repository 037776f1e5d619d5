// SPDX-License-Identifier: Apache-2.0
//
// Measured loads of experts as a JSON file: a list of numbers for one layer, or a list of such lists, one a
// layer. Everything wrong with it is found at its line and column.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsl/diagnostic/diagnostic.h"

namespace paratope {

struct LayerLoads {
  std::vector<std::vector<double>> layers; // at least one; all of the same, positive, number of experts
  bool nested = false;                     // written as a list of lists, if only of one
};

// Reads the file; every load is finite and at least 0, and a layer's sum is finite. Returns nothing exactly
// when an error was added.
std::optional<LayerLoads> read_layer_loads(const std::string &file, Diagnostics &diagnostics);

} // namespace paratope
