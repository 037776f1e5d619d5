// SPDX-License-Identifier: Apache-2.0
//
// The table behind instruction_set.h, written as compactly as instructions.md: an operand is `name`,
// `name:dtype` (f32 when not said), with `?` after it when it may be left out and `*` when there may be many.
#include "runtime/plan/instruction_set.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace paratope::plan {
namespace {

struct Row {
  const char *name, *inputs, *outputs, *weights;
  const char *numbers; // `?` after those that may be left out
  const char *words;
  const char *flags; // "c" a collective, "l" needs a layer
};

// clang-format off
constexpr Row rows[] = {
    // name              inputs                     outputs                   weights             numbers                                        words        flags
    {"batch",            "",                        "ids:i32 positions:i32",  "",                 "",                                            "",          ""},
    {"embed",            "ids:i32",                 "x",                      "embedding",        "",                                            "",          ""},
    {"hc_expand",        "x",                       "X",                      "",                 "streams",                                     "",          ""},
    {"hc_pre",           "X",                       "x mix",                  "fn scale base",    "streams",                                     "",          ""},
    {"hc_post",          "X F mix",                 "X",                      "",                 "streams",                                     "",          ""},
    {"hc_sum",           "X",                       "x",                      "",                 "streams",                                     "",          ""},
    {"add",              "a b c?",                  "y",                      "",                 "",                                            "",          ""},
    {"rms_norm",         "x",                       "y",                      "gain",             "eps dims?",                                   "",          ""},
    {"linear",           "x",                       "y",                      "W",                "",                                            "",          ""},
    {"rope",             "x positions:i32",         "y",                      "",                 "heads head_dim rope_dim theta normalise? eps? inverse?", "", ""},
    {"kv_append",        "kv positions:i32",        "",                       "",                 "",                                            "",          "l"},
    {"compress_append",  "c g? positions:i32",      "",                       "gain",             "ratio rope_dim theta eps",                    "",          "l"},
    {"attention",        "q positions:i32",         "o",                      "sink?",            "heads kv_heads? head_dim v_dim v_offset? scale window ratio?", "", "l"},
    {"head_linear",      "x",                       "y",                      "W",                "x_offset? x_head?",                           "",          ""},
    {"head_concat",      "a b",                     "y",                      "",                 "heads x_offset x_head",                       "",          ""},
    {"o_group_proj",     "o",                       "r",                      "Wo_a",             "",                                            "",          ""},
    {"gate_up",          "x",                       "h",                      "W13",              "",                                            "",          ""},
    {"swiglu",           "h",                       "a",                      "",                 "limit?",                                      "",          ""},
    {"gate",             "x",                       "idx:i32 w",              "Wg bias?",         "top_k groups? top_groups? normalise? scaling?", "score",   "l"},
    {"slice_rows",       "x:any",                   "y:any",                  "",                 "",                                            "axis",      ""},
    {"mirror_pick",      "a:any*",                  "a:any*",                 "",                 "",                                            "axis",      ""},
    {"mirror_restore",   "x:any",                   "y:any",                  "",                 "",                                            "axis",      ""},
    {"last_token",       "x",                       "y",                      "",                 "",                                            "",          ""},
    {"lm_head",          "x",                       "logits",                 "W",                "",                                            "",          ""},
    {"argmax",           "logits",                  "ids:i32",                "",                 "",                                            "",          ""},
    {"vote",             "",                        "",                       "",                 "value? async?",                               "",          "c"},
    {"all_reduce",       "x",                       "y",                      "",                 "async?",                                      "",          "c"},
    {"all_gather",       "a:any*",                  "a:any*",                 "",                 "async?",                                      "",          "c"},
    {"reduce_scatter",   "x",                       "y",                      "",                 "of async?",                                   "",          "c"},
    {"all_to_all",       "x",                       "y",                      "",                 "of? async?",                                  "split",     "c"},
    {"dispatch",         "x idx:i32 w",             "rows table:any",         "",                 "async?",                                      "",          "c"},
    {"combine",          "rows table:any shared?",  "y",                      "",                 "async?",                                      "",          "c"},
    {"fetch",            "rows:i64",                "x",                      "",                 "table rows_per_part async?",                  "storage?",  "c"},
    {"await",            "",                        "any:any?*",              "",                 "",                                            "",          ""},
    {"expert_gate_up",   "rows table:any",          "h",                      "W13",              "",                                            "",          ""},
    {"expert_down",      "a table:any",             "rows",                   "W2",               "",                                            "",          ""},
    {"local_experts",    "x idx:i32 w",             "y",                      "W13 W2",           "limit?",                                      "",          ""},
    {"engram_hash",      "ids:i32 positions:i32",   "rows:i64",               "",                 "",                                            "",          "l"},
    {"engram_gate",      "X feats",                 "X",                      "wkv h_norm key_norm", "eps streams",                                "",          ""},
    {"kv_blocks",        "",                        "",                       "",                 "async?",                                      "",          "c"},
    {"warm_up",          "",                        "",                       "",                 "async?",                                      "",          "c"},
    {"gather_scales",    "",                        "",                       "",                 "table rows_per_part async?",                  "",          "cl"},
};
// clang-format on

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    size_t end = text.find(' ');
    if (end != 0)
      words.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return words;
}

std::vector<Operand> operands_of(std::string_view text) {
  std::vector<Operand> operands;
  for (std::string_view word : split(text)) {
    Operand operand;
    if (word.ends_with('*')) {
      operand.repeated = true;
      word.remove_suffix(1);
    }
    if (word.ends_with('?')) {
      operand.optional = true;
      word.remove_suffix(1);
    }
    size_t colon = word.find(':');
    operand.name = word.substr(0, colon);
    operand.dtype = colon == word.npos ? "f32" : word.substr(colon + 1);
    operands.push_back(operand);
  }
  return operands;
}

void sort_attributes(std::string_view text, std::vector<std::string_view> &required,
                     std::vector<std::string_view> &optional) {
  for (std::string_view word : split(text)) {
    if (word.ends_with('?'))
      optional.push_back(word.substr(0, word.size() - 1));
    else
      required.push_back(word);
  }
}

std::vector<Operation> build() {
  std::vector<Operation> operations;
  for (const Row &row : rows) {
    Operation op;
    op.name = row.name;
    op.inputs = operands_of(row.inputs);
    op.outputs = operands_of(row.outputs);
    op.weights = operands_of(row.weights);
    sort_attributes(row.numbers, op.required_numbers, op.optional_numbers);
    sort_attributes(row.words, op.required_words, op.optional_words);
    op.collective = std::string_view(row.flags).find('c') != std::string_view::npos;
    op.layered = std::string_view(row.flags).find('l') != std::string_view::npos;
    operations.push_back(std::move(op));
  }
  return operations;
}

size_t least(std::span<const Operand> operands) {
  return static_cast<size_t>(
      std::count_if(operands.begin(), operands.end(), [](const Operand &o) { return !o.optional; }));
}

} // namespace

bool Operation::accepts(std::span<const Operand> operands, size_t count) {
  if (count < least(operands))
    return false;
  bool many = !operands.empty() && operands.back().repeated;
  return many || count <= operands.size();
}

std::string Operation::count_text(std::span<const Operand> operands) {
  size_t low = least(operands);
  if (!operands.empty() && operands.back().repeated)
    return fmt::format("at least {}", low);
  if (low == operands.size())
    return fmt::format("{}", low);
  return fmt::format("{} or {}", low, operands.size());
}

std::span<const Operation> instruction_set() {
  static const std::vector<Operation> operations = build();
  return operations;
}

const Operation *find_operation(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const Operation *> map;
    for (const Operation &op : instruction_set())
      map.emplace(op.name, &op);
    return map;
  }();
  auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

const Operand &operand_at(std::span<const Operand> operands, size_t count, size_t idx) {
  if (count >= operands.size())
    return operands[std::min(idx, operands.size() - 1)];
  for (const Operand &operand : operands) { // the optional ones are absent
    if (operand.optional && !operand.repeated)
      continue;
    if (idx == 0 || operand.repeated)
      return operand;
    --idx;
  }
  return operands.back();
}

} // namespace paratope::plan
