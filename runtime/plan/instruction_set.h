// SPDX-License-Identifier: Apache-2.0
//
// instructions.md as a table: what each op takes, gives and must be told. Reading a plan checks every
// instruction against it, and the compiler may check what it emits before anybody reads it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paratope::plan {

// One operand of an op: a buffer or a weight.
struct Operand {
  std::string_view name;
  std::string_view dtype; // f32 | i32 | i64 | any
  bool optional = false;  // may be left out
  bool repeated = false;  // one or more; only ever the last
};

struct Operation {
  std::string_view name;
  std::vector<Operand> inputs, outputs, weights;
  std::vector<std::string_view> required_numbers, optional_numbers;
  std::vector<std::string_view> required_words, optional_words;
  bool collective = false; // needs `comm`
  bool layered = false;    // needs `layer`

  // How many inputs it may have, as text: "2", "1 or 2", "at least 1".
  static std::string count_text(std::span<const Operand> operands);
  static bool accepts(std::span<const Operand> operands, size_t count);
};

// Every op, in the order of instructions.md.
std::span<const Operation> instruction_set();

// The op of this name, or nullptr.
const Operation *find_operation(std::string_view name);

// The operand that number `idx` of `count` present ones is: optional ones are left out when `count` is the
// least an op takes (`compress_append c, positions` against `c, g, positions`). Needs accepts(operands,
// count).
const Operand &operand_at(std::span<const Operand> operands, size_t count, size_t idx);

} // namespace paratope::plan
