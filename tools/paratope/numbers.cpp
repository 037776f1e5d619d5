// SPDX-License-Identifier: Apache-2.0
#include "tools/paratope/numbers.h"

#include <algorithm>
#include <charconv>

#include "fmt/format.h"

#include "tools/paratope/session.h"

namespace paratope {

static std::errc parse(std::string_view text, int64_t &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return end == text.data() + text.size() ? error : std::errc::invalid_argument;
}

bool parse_number(std::string_view text, int64_t &value) { return parse(text, value) == std::errc(); }

std::optional<std::vector<int64_t>> parse_numbers(std::string_view text, std::string_view option,
                                                  std::string &message) {
  std::vector<int64_t> numbers;
  if (!text.empty() && text.back() == ',') {
    message = fmt::format("{} ends in a comma", option);
    return std::nullopt;
  }
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    while (!item.empty() && item.front() == ' ')
      item.remove_prefix(1);
    const std::errc error = parse(item, numbers.emplace_back());
    if (error == std::errc::result_out_of_range) {
      message = fmt::format("got {} in {}, expected a number of 64 bits", item, option);
      return std::nullopt;
    }
    if (error != std::errc()) {
      message = fmt::format("got '{}' in {}, expected whole numbers such as 2,3,4", item, option);
      return std::nullopt;
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return numbers;
}

CLI::Validator from_one() {
  return CLI::Validator(
      [](std::string &text) {
        int64_t value = 0;
        if (!parse_number(text, value) || value < 1)
          return fmt::format("got {}, expected a whole number of at least 1", text);
        text = std::to_string(value); // CLI11 would read 010 as octal
        return std::string();
      },
      "1 or more");
}

int refuse_arguments(bool json, const std::string &message) {
  const std::string text = "error: " + message;
  fmt::print(stderr, "{}\n", text);
  if (json)
    print(nlohmann::ordered_json{{"error", text}});
  return exit_wrong_input;
}

} // namespace paratope
