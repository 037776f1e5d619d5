// SPDX-License-Identifier: Apache-2.0
//
// Every key of the language with its type, range and present value, as a list: what a random topology is
// written from, and what "every key, with a wrong type" walks. Read off `describe`, so a new key is in every
// such test the day it exists.
#pragma once

#include "document.h"
#include "dsl/spec/topology.h"

namespace paratope::random {

struct LanguageKey {
  enum class Type {
    integer,
    number,
    boolean,
    text,
    choice,
    integers,
    integer_or_list,
    integer_rows,
    texts,
    text_rows,
    auto_or_choices
  };
  std::string section; // "" at the top, "model.attention"
  std::string key;
  Type type = Type::integer;
  IntegerRange integers;            // of integers, each of a list
  NumberRange numbers;              // of numbers
  std::vector<std::string> choices; // of a choice
  bool required = false;
  Item value;
};

// All keys but those of [axes] and [group], whose names the user chooses.
std::vector<LanguageKey> language_keys(TopologySpec &topology);

// One key of them; nullptr when there is none.
const LanguageKey *find_key(const std::vector<LanguageKey> &keys, const std::string &section,
                            const std::string &key);

} // namespace paratope::random
