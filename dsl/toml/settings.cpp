// SPDX-License-Identifier: Apache-2.0
#include "dsl/toml/settings.h"

#include <cctype>

#include <fmt/format.h>

namespace paratope {
namespace {

// The '=' between key and value: the first outside quotes.
size_t find_equals(const std::string &setting) {
  char quote = 0;
  for (size_t at = 0; at < setting.size(); ++at) {
    const char c = setting[at];
    if (quote) {
      if (c == '\\' && quote == '"')
        ++at;
      else if (c == quote)
        quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '=') {
      return at;
    }
  }
  return std::string::npos;
}

bool is_bare_word(const std::string &value) {
  const auto first = static_cast<unsigned char>(value[0]);
  return (std::isalpha(first) || first == '_' || first == '.' || first == '/' || first == '~') &&
         value != "true" && value != "false" && value != "inf" && value != "nan";
}

} // namespace

std::optional<Value> parse_setting(const std::string &setting, int64_t number, Diagnostics &diagnostics) {
  const auto whole = static_cast<int64_t>(setting.size()) + 1;
  auto bad = [&](std::string message) {
    diagnostics.error("bad-setting", {settings_file, number, 1, whole}, std::move(message)).fix =
        "write dotted.key=value, as in workload.context=4096";
    return std::nullopt;
  };
  if (setting.find('\n') != std::string::npos)
    return bad("a setting is one line, got several");
  const size_t equals = find_equals(setting);
  if (equals == std::string::npos)
    return bad(fmt::format("expected dotted.key=value, got '{}'", setting));
  const size_t begin = setting.find_first_not_of(" \t", equals + 1);
  if (begin == std::string::npos)
    return bad(fmt::format("expected a value after '=', got '{}'", setting));
  const std::string value = setting.substr(begin, setting.find_last_not_of(" \t") + 1 - begin);
  if (!is_bare_word(value))
    return parse_document(setting, settings_file, diagnostics, number);

  std::optional<Value> document =
      parse_document(setting.substr(0, equals) + "= 0", settings_file, diagnostics, number);
  if (!document)
    return std::nullopt;
  Value *leaf = &*document;
  while (leaf->kind == Value::Kind::table && !leaf->entries.empty())
    leaf = &leaf->entries.front().value;
  leaf->kind = Value::Kind::string;
  leaf->text = value;
  const auto column = static_cast<int64_t>(begin) + 1;
  leaf->where = leaf->inside = {settings_file, number, column, column + static_cast<int64_t>(value.size())};
  return document;
}

} // namespace paratope
