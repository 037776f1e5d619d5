// SPDX-License-Identifier: Apache-2.0
//
// What one key's range cannot say: keys that must agree with each other. Both spellings of the language
// (TOML and MLIR) end here, so both reject the same files with the same words. Anything that needs the
// world's size (divisibility, coverage of ranks) is the compiler's.
#pragma once

#include "dsl/spec/topology.h"

namespace paratope {

// More axes than any mesh has; it keeps what a damaged file costs in proportion to its size.
inline constexpr size_t most_axes = 64;

// The parts that are worth checking: a section whose keys could not all be read would only be reported twice.
struct CheckParts {
  bool layout = true;
  bool machine = true;
  bool model = true;
  bool axes = true;
  bool mesh = true;
  bool workload = true;
};

// Adds an error for each disagreement and a warning for each written key that has no effect. Errors in a
// used file carry a note at the key that names the file.
void check(const TopologySpec &topology, Diagnostics &diagnostics, const CheckParts &parts = {});

void check(const LayoutSpec &layout, Diagnostics &diagnostics);
void check(const ModelSpec &model, Diagnostics &diagnostics);
void check(const MachineSpec &machine, Diagnostics &diagnostics);

// The axis and local names of a pattern, in order, each once: its words, whatever else it holds.
std::vector<std::string> names_in_pattern(const std::string &pattern);

// Where a file that a topology mentions (`loads`, routing's `file`, safetensors:DIR) lies: relative to the
// file that mentions it, or to the working directory when --set does.
std::string mentioned_path(const SourceRange &mention, const std::string &path);

// The same made absolute, for a plan, which is run from anywhere; "" stays "".
std::string placed_path(const SourceRange &mention, const std::string &path);

// model.weights for a plan: "synthetic", or safetensors: and DIR as placed_path has it.
std::string placed_weights(const ModelSpec &model);

} // namespace paratope
