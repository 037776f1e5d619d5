// SPDX-License-Identifier: Apache-2.0
//
// Lists of whole numbers on the command line, as in --shape 2,3,4, and how commands that read no file answer
// arguments that cannot be right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace paratope {

bool parse_number(std::string_view text, int64_t &value);

// The numbers of "10,7"; spaces may stand before each, and an empty text is an empty list. On anything else
// nothing, and `message` says what is wrong with `option`.
std::optional<std::vector<int64_t>> parse_numbers(std::string_view text, std::string_view option,
                                                  std::string &message);

// For an option that counts something: refuses what is not a whole number of at least 1 as wrong usage.
CLI::Validator from_one();

// "error: " and the message on stderr, and with --json {"error": …} on stdout; answers exit_wrong_input.
int refuse_arguments(bool json, const std::string &message);

} // namespace paratope
