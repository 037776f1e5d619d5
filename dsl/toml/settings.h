// SPDX-License-Identifier: Apache-2.0
//
// `--set dotted.key=value` as a document of one value, so that it is laid over the file and checked like it.
#pragma once

#include "dsl/toml/document.h"

namespace paratope {

inline constexpr const char *settings_file = "--set";

// The document of one setting, or the error bad-setting or toml-syntax at line `number` of "--set". The value
// is TOML; one that begins with a letter, '_', '.', '/' or '~' and is no TOML word is a string as it stands.
std::optional<Value> parse_setting(const std::string &setting, int64_t number, Diagnostics &diagnostics);

} // namespace paratope
