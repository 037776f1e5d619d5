// SPDX-License-Identifier: Apache-2.0
//
// What each key of a configuration means here, as data: one table an architecture (a `model_type`), one row a
// key. A key that no row knows is an error, because it may change the mathematics.
//
//     copy      hidden_size        → [model] hidden
//     require   hidden_act         must be "silu": nothing else is computed
//     leave_out rope_scaling       changes the model, and is not computed: a warning says so, unless it is
//     null ignore    torch_dtype        does not touch the mathematics, for the reason in the row derive
//     compress_ratios    needs more than one key: architecture.cpp's `derive_…` reads it
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/hf/json.h"

namespace paratope::hf {

enum class Treat { copy, require, leave_out, ignore, derive };

struct KeyRule {
  const char *key; // dots lead into objects: "rope_parameters.rope_theta"
  Treat treat = Treat::ignore;
  const char *to = ""; // copy: the key of [model], "attention.heads"
  // As JSON. copy: what stands in for an absent or null key, as transformers has it; "" is required, "null"
  // is left to the language's default. require: what it must be. leave_out: what changes nothing.
  const char *usual = "";
  const char *why = ""; // require: what is computed instead; leave_out: what is not; ignore: why it may be
};

// A key of [model] that the architecture fixes, as JSON.
struct Constant {
  const char *to;
  const char *value;
};

// A value for a key of [model], and the key of the configuration that it is from.
struct Assigned {
  std::string to;
  std::string key;
  JsonValue value;
};

// The object whose keys are the model's, and the findings that go with it.
struct Config {
  const JsonValue &keys;
  std::string prefix; // "text_config." where the keys are in an object of that name
  Diagnostics &diagnostics;

  // Nothing where the key is absent or null.
  const JsonValue *find(std::string_view key) const;
  // An integer; `otherwise` where it is absent or is none (which its row reports).
  int64_t integer(std::string_view key, int64_t otherwise) const;
};

struct Architecture {
  const char *model_type;
  const char *wrapper; // "text_config": the object the model's keys are in; "": they are the file's own
  std::span<const KeyRule> rules;
  std::span<const Constant> constants;
  // What such a model computes that no key speaks of and that is not computed here.
  std::span<const char *const> left_out;
  void (*derive)(const Config &config, std::vector<Assigned> &assigned) = nullptr;
};

std::span<const Architecture> architectures();

// Rows that every architecture has.
std::span<const KeyRule> common_rules();

} // namespace paratope::hf
