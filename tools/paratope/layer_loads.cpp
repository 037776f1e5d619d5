// SPDX-License-Identifier: Apache-2.0
#include "tools/paratope/layer_loads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

#include "dsl/toml/document.h"

namespace paratope {

namespace {

// Takes the parser's events and stops at the first that cannot be part of loads. Each event is one token of
// the text, so counting events is knowing the place of each.
struct Reader : nlohmann::json::json_sax_t {
  LayerLoads loads;
  std::vector<size_t> layer_tokens; // of each layer's '['
  size_t tokens = 0;                // seen so far
  int depth = 0;
  std::string message;        // what is wrong, at the last token …
  std::optional<size_t> byte; // … or here

  bool fail(std::string what) {
    message = std::move(what);
    return false;
  }
  bool unexpected(const char *what) {
    ++tokens;
    return fail(depth == 0 ? fmt::format("expected a list of loads, or a list of such lists, got {}", what)
                           : fmt::format("expected a number, the load of an expert, got {}", what));
  }
  bool load(double value, const std::string &as_written) {
    if (depth == 0)
      return unexpected("a number");
    ++tokens;
    if (depth == 1 && loads.nested)
      return fail("expected a list, the loads of a layer, got a number beside lists");
    if (value < 0 || !std::isfinite(value))
      return fail(fmt::format("load of an expert is a finite number of at least 0, got {}", as_written));
    loads.layers.back().push_back(value);
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return load(static_cast<double>(value), std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return load(static_cast<double>(value), std::to_string(value));
  }
  bool number_float(number_float_t value, const string_t &text) override { return load(value, text); }
  bool string(string_t &) override { return unexpected("a string"); }
  bool binary(binary_t &) override { return unexpected("bytes"); }
  bool start_object(size_t) override { return unexpected("an object"); }
  bool key(string_t &) override { return false; }
  bool end_object() override { return false; }
  bool start_array(size_t) override {
    ++tokens;
    if (++depth == 1) {
      add_layer();
      return true;
    }
    if (depth > 2)
      return fail("expected a number, the load of an expert, got a list in the list of a layer");
    if (!loads.nested && !loads.layers.back().empty())
      return fail("expected a number, the load of an expert, got a list beside numbers");
    if (!loads.nested) { // the outer list's bracket was no layer's
      loads = {}, layer_tokens.clear();
      loads.nested = true;
    }
    add_layer();
    return true;
  }
  bool end_array() override {
    ++tokens;
    --depth;
    return true;
  }
  bool parse_error(size_t position, const std::string &, const nlohmann::json::exception &error) override {
    byte = position == 0 ? 0 : position - 1;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …"
    std::string what = error.what();
    const size_t column = what.find("column "), colon = what.find(": ", column);
    what = column != std::string::npos && colon != std::string::npos ? what.substr(colon + 2)
                                                                     : what.substr(what.find("] ") + 2);
    return fail(fmt::format("not JSON: {}", what));
  }

private:
  void add_layer() {
    loads.layers.emplace_back();
    layer_tokens.push_back(tokens - 1);
  }
};

bool is_between(char c) { return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

SourceRange place_of(const std::string &file, std::string_view text, size_t begin, size_t end) {
  begin = std::min(begin, text.size());
  const auto before = text.substr(0, begin);
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto line = static_cast<int64_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const auto column = static_cast<int64_t>(begin - line_start) + 1;
  return {file, line, column, column + static_cast<int64_t>(std::max(end, begin) - begin)};
}

// The place of a token: a bracket, or what stands between brackets, commas and blanks.
SourceRange token_place(const std::string &file, std::string_view text, size_t token) {
  size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0; // the parser skips a byte order mark, too
  for (;; --token) {
    while (at < text.size() && is_between(text[at]))
      ++at;
    size_t end = at;
    if (end < text.size() && (text[end] == '[' || text[end] == ']'))
      ++end;
    else
      while (end < text.size() && !is_between(text[end]) && text[end] != '[' && text[end] != ']')
        ++end;
    if (token == 0 || end == text.size())
      return place_of(file, text, at, end);
    at = end;
  }
}

} // namespace

std::optional<LayerLoads> read_layer_loads(const std::string &file, Diagnostics &diagnostics) {
  std::optional<std::string> text = read_text(file, {}, diagnostics);
  if (!text)
    return std::nullopt;
  auto wrong = [&](const SourceRange &where,
                   std::string message) { // one is enough, and nothing after it counts
    diagnostics.error("bad-loads", where, std::move(message));
    return std::nullopt;
  };
  Reader reader;
  if (!nlohmann::json::sax_parse(*text, &reader))
    return wrong(reader.byte ? place_of(file, *text, *reader.byte, *reader.byte + 1)
                             : token_place(file, *text, reader.tokens - 1),
                 reader.message);
  const std::vector<std::vector<double>> &layers = reader.loads.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::string message;
    if (layers[i].empty())
      message = "expected the load of each expert, got an empty list";
    else if (layers[i].size() != layers[0].size())
      message = fmt::format("layers have as many experts each: expected {} loads as in layer 0, got {}",
                            layers[0].size(), layers[i].size());
    else if (!std::isfinite(std::accumulate(layers[i].begin(), layers[i].end(), 0.0)))
      message = fmt::format("expected loads whose sum is finite, got more than {:.3g}",
                            std::numeric_limits<double>::max());
    else
      continue;
    return wrong(token_place(file, *text, reader.layer_tokens[i]), message);
  }
  return std::move(reader.loads);
}

} // namespace paratope
