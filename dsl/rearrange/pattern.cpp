// SPDX-License-Identifier: Apache-2.0
//
// The reader of patterns: cut the text into tokens, gather them into sides and dims, then hold the two sides
// against each other. Each stage reports all it finds; the last one runs only when the parts could be read,
// so that one slip does not show up as several errors.
#include "dsl/rearrange/pattern.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "dsl/diagnostic/nearest.h"
#include "dsl/diagnostic/utf8.h"

namespace paratope {
namespace {

struct Token {
  enum class Kind { word, dots, open, close, arrow };
  Kind kind;
  int64_t begin, end;
};

bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Reader {
public:
  Reader(std::string_view source, PatternErrors &found) : text(source), errors(found), first(found.size()) {}

  std::optional<Pattern> read() {
    if (static_cast<int64_t>(text.size()) > max_pattern_bytes) {
      error("pattern-too-long", max_pattern_bytes, static_cast<int64_t>(text.size()),
            fmt::format("a pattern has at most {} bytes, got {}", max_pattern_bytes, text.size()));
      return std::nullopt;
    }
    const std::vector<Token> tokens = cut();
    Pattern pattern;
    pattern.text = text;
    auto arrow = std::find_if(tokens.begin(), tokens.end(), is_arrow);
    if (arrow == tokens.end() && !arrow_misspelt)
      error("pattern-missing-arrow", 0, static_cast<int64_t>(text.size()), "pattern has no '->'",
            "write what the dims are, '->', and what they become: (a b) -> a b");
    // A second arrow ends the right side: what follows belongs to neither.
    auto last = tokens.end();
    if (arrow != tokens.end()) {
      last = std::find_if(arrow + 1, tokens.end(), is_arrow);
      if (last != tokens.end())
        error("pattern-repeated-arrow", last->begin, last->end, "pattern has more than one '->'",
              "apply two patterns in turn instead: a list of patterns");
    }
    pattern.left = side({tokens.begin(), arrow}, true);
    if (arrow != tokens.end())
      pattern.right = side({arrow + 1, last}, false);
    const bool comparable = errors.size() == first;
    if (arrow != tokens.end()) { // else all axes would seem to stand on one side
      repeated(pattern.left);
      repeated(pattern.right);
    }
    if (comparable)
      compare(pattern);
    if (errors.size() != first)
      return std::nullopt;
    return pattern;
  }

private:
  std::string_view text;
  PatternErrors &errors;
  const size_t first; // errors of others that were there before
  bool arrow_misspelt = false;

  static bool is_arrow(const Token &token) { return token.kind == Token::Kind::arrow; }

  PatternError &error(std::string code, int64_t begin, int64_t end, std::string message,
                      std::string fix = "") {
    PatternError &added = errors.emplace_back();
    added.code = std::move(code);
    added.message = std::move(message);
    added.begin = begin;
    added.end = end;
    added.fix = std::move(fix);
    return added;
  }

  std::string_view part(int64_t begin, int64_t end) const {
    return text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  std::vector<Token> cut() {
    std::vector<Token> tokens;
    const auto length = static_cast<int64_t>(text.size());
    auto run = [&](int64_t from, auto belongs) {
      while (from < length && belongs(text[static_cast<size_t>(from)]))
        ++from;
      return from;
    };
    for (int64_t at = 0; at < length;) {
      const char c = text[static_cast<size_t>(at)];
      int64_t end = at + 1;
      if (is_blank(c)) {
      } else if (is_word_byte(c)) {
        end = run(at, is_word_byte);
        tokens.push_back({Token::Kind::word, at, end});
      } else if (c == '.') {
        end = run(at, [](char d) { return d == '.'; });
        tokens.push_back({Token::Kind::dots, at, end});
      } else if (c == '(' || c == ')') {
        tokens.push_back({c == '(' ? Token::Kind::open : Token::Kind::close, at, end});
      } else if (c == '-' && end < length && text[static_cast<size_t>(end)] == '>') {
        ++end;
        tokens.push_back({Token::Kind::arrow, at, end});
      } else {
        end = bad_character(at);
      }
      at = end;
    }
    return tokens;
  }

  // Reports the character at `at` and returns where it ends.
  int64_t bad_character(int64_t at) {
    int64_t end = at + static_cast<int64_t>(decode_utf8(text, static_cast<size_t>(at)).bytes);
    std::string_view shown = part(at, end);
    std::string fix;
    if (shown == ",")
      fix = "axes are set apart by blanks, commas are not used";
    else if (shown == "-" || shown == ">" || shown == "=" || shown == "→") {
      if (shown == "=" && part(at, static_cast<int64_t>(text.size())).starts_with("=>"))
        shown = part(at, ++end);
      // "a-b" is a name gone wrong; anything else in this family was meant as the arrow.
      const bool inside_name = shown == "-" && at > 0 && is_word_byte(text[static_cast<size_t>(at - 1)]) &&
                               end < static_cast<int64_t>(text.size()) &&
                               is_word_byte(text[static_cast<size_t>(end)]);
      fix = inside_name ? "write an underscore, or a blank" : "the arrow is written '->'";
      arrow_misspelt = arrow_misspelt || !inside_name;
    } else if (shown == "[" || shown == "]" || shown == "{" || shown == "}")
      fix = "axes are composed with round parentheses";
    else if (shown == "*" || shown == "·" || shown == "×")
      fix = "axes are composed with parentheses and blanks: (a b)";
    error("pattern-bad-character", at, end, fmt::format("a pattern cannot contain '{}'", printable(shown)),
          fix);
    return end;
  }

  PatternSide side(std::span<const Token> tokens, bool is_left) {
    PatternSide side;
    if (!tokens.empty()) {
      side.begin = tokens.front().begin;
      side.end = tokens.back().end;
    }
    int64_t depth = 0, open_at = 0;
    bool has_ellipsis = false;
    for (const Token &token : tokens) {
      switch (token.kind) {
      case Token::Kind::open:
        if (depth++ == 0) {
          open_at = token.begin;
          side.dims.push_back({.axes = {}, .parenthesised = true, .begin = token.begin, .end = token.end});
        } else {
          error("pattern-nested-parentheses", token.begin, token.end,
                "parentheses cannot stand inside parentheses", "list the axes side by side: (a b c)");
        }
        break;
      case Token::Kind::close:
        if (depth == 0)
          error("pattern-unbalanced-parenthesis", token.begin, token.end, "')' without a '(' before it");
        else if (--depth == 0)
          side.dims.back().end = token.end;
        break;
      case Token::Kind::dots:
      case Token::Kind::word: {
        std::optional<PatternAxis> axis = token.kind == Token::Kind::word ? word(token) : dots(token);
        if (!axis)
          break;
        if (axis->kind == PatternAxis::Kind::ellipsis) {
          if (has_ellipsis)
            error("pattern-repeated-ellipsis", axis->begin, axis->end, "'...' can stand once on a side");
          if (is_left && depth > 0)
            error("pattern-ellipsis-in-parentheses", axis->begin, axis->end,
                  "'...' cannot stand inside parentheses on the left: nothing says how the dim factors");
          has_ellipsis = true;
        }
        if (depth == 0)
          side.dims.push_back(
              {.axes = {*axis}, .parenthesised = false, .begin = axis->begin, .end = axis->end});
        else
          side.dims.back().axes.push_back(*axis);
        break;
      }
      case Token::Kind::arrow:
        break; // sides are cut at arrows: none inside
      }
    }
    if (depth > 0)
      error("pattern-unbalanced-parenthesis", open_at, open_at + 1, "'(' is not closed", "add ')'");
    return side;
  }

  std::optional<PatternAxis> dots(const Token &token) {
    if (token.end - token.begin != 3) {
      error("pattern-bad-ellipsis", token.begin, token.end,
            fmt::format("an ellipsis is three dots, got {}", token.end - token.begin), "write '...'");
      return std::nullopt;
    }
    return PatternAxis{PatternAxis::Kind::ellipsis, "...", token.begin, token.end};
  }

  std::optional<PatternAxis> word(const Token &token) {
    const std::string name(part(token.begin, token.end));
    if (name == "1")
      return PatternAxis{PatternAxis::Kind::one, name, token.begin, token.end};
    if (std::all_of(name.begin(), name.end(), is_digit)) {
      error("pattern-number", token.begin, token.end,
            fmt::format("the only number a pattern can contain is 1, got {}", name),
            fmt::format("name the axis, and give the name the size {}", name));
      return std::nullopt;
    }
    if (is_digit(name[0])) {
      error("pattern-axis-name", token.begin, token.end,
            fmt::format("an axis name cannot start with a digit: {}", name));
      return std::nullopt;
    }
    if (name.front() == '_' || name.back() == '_') {
      const size_t from = name.find_first_not_of('_');
      const std::string bare =
          from == std::string::npos ? "" : name.substr(from, name.find_last_not_of('_') - from + 1);
      const bool usable = !bare.empty() && !is_digit(bare[0]);
      error("pattern-axis-name", token.begin, token.end,
            fmt::format("an axis name cannot start or end with an underscore: {}", name),
            usable ? fmt::format("write '{}'", bare) : "");
      return std::nullopt;
    }
    return PatternAxis{PatternAxis::Kind::named, name, token.begin, token.end};
  }

  void repeated(const PatternSide &side) {
    std::map<std::string, const PatternAxis *> seen;
    for (const PatternDim &dim : side.dims)
      for (const PatternAxis &axis : dim.axes) {
        if (axis.kind != PatternAxis::Kind::named)
          continue;
        auto [earlier, is_new] = seen.emplace(axis.name, &axis);
        if (is_new)
          continue;
        PatternError &added = error("pattern-repeated-axis", axis.begin, axis.end,
                                    fmt::format("axis stands twice on one side: {}", axis.name));
        added.notes.push_back({.message = "first here",
                               .axis = "",
                               .pattern_idx = 0,
                               .begin = earlier->second->begin,
                               .end = earlier->second->end});
      }
  }

  static std::map<std::string, const PatternAxis *> by_name(const PatternSide &side) {
    std::map<std::string, const PatternAxis *> axes;
    for (const PatternDim &dim : side.dims)
      for (const PatternAxis &axis : dim.axes)
        if (axis.kind != PatternAxis::Kind::one)
          axes.emplace(axis.name, &axis);
    return axes;
  }

  // Every axis must stand on both sides. One error for all names, the caret at the first of them in the text.
  void compare(const Pattern &pattern) {
    const auto left = by_name(pattern.left), right = by_name(pattern.right);
    std::vector<const PatternAxis *> lonely;
    std::vector<std::string> only_left, only_right, listed;
    auto gather = [&](const auto &these, const auto &those, const char *where,
                      std::vector<std::string> &names) {
      for (const auto &[name, axis] : these) {
        if (those.contains(name))
          continue;
        if (axis->kind == PatternAxis::Kind::ellipsis) {
          error("pattern-one-sided-ellipsis", axis->begin, axis->end,
                fmt::format("'...' stands on the {} side only", where),
                fmt::format("add '...' to the other side, or remove it"));
          continue;
        }
        names.push_back(name);
        lonely.push_back(axis);
        listed.push_back(fmt::format("{} ({})", name, where));
      }
    };
    gather(left, right, "left", only_left);
    gather(right, left, "right", only_right);
    if (lonely.empty())
      return;
    std::sort(listed.begin(), listed.end());
    std::sort(lonely.begin(), lonely.end(), [](auto *a, auto *b) { return a->begin < b->begin; });
    PatternError &added = error("pattern-one-sided-axis", lonely[0]->begin, lonely[0]->end,
                                fmt::format("axis stands on one side only: {}", fmt::join(listed, ", ")));
    for (size_t i = 1; i < lonely.size(); ++i)
      added.notes.push_back({.message = fmt::format("and here: {}", lonely[i]->name),
                             .axis = "",
                             .pattern_idx = 0,
                             .begin = lonely[i]->begin,
                             .end = lonely[i]->end});
    // A slip of the pen leaves one name alone on each side; suggest the spelling of the left.
    for (const std::string &name : only_right)
      if (auto meant = nearest(name, only_left)) {
        added.fix = fmt::format("write '{}' for '{}'", *meant, name);
        break;
      }
  }
};

std::string to_string(const PatternSide &side) {
  std::vector<std::string> dims;
  for (const PatternDim &dim : side.dims) {
    std::vector<std::string> names;
    names.reserve(dim.axes.size());
    for (const PatternAxis &axis : dim.axes)
      names.push_back(axis.name);
    if (names.empty())
      dims.emplace_back("1");
    else
      dims.push_back(dim.parenthesised ? fmt::format("({})", fmt::join(names, " ")) : names[0]);
  }
  return fmt::format("{}", fmt::join(dims, " "));
}

} // namespace

std::optional<Pattern> parse_pattern(std::string_view text, PatternErrors &errors) {
  return Reader(text, errors).read();
}

std::string to_string(const Pattern &pattern) {
  const std::string left = to_string(pattern.left), right = to_string(pattern.right);
  return fmt::format("{}{}->{}{}", left, left.empty() ? "" : " ", right.empty() ? "" : " ", right);
}

std::optional<Pattern> inverse(const Pattern &pattern) {
  Pattern exchanged;
  exchanged.left = pattern.right;
  exchanged.right = pattern.left;
  PatternErrors errors;
  return parse_pattern(to_string(exchanged), errors);
}

} // namespace paratope
