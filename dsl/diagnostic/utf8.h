// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 as diagnostics need it: a parser counts code points, an editor bytes, and a terminal columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paratope {

struct CodePoint {
  char32_t code = 0; // U+FFFD where the bytes are no UTF-8
  size_t bytes = 1;  // how many of them it took; 1 where they are no UTF-8
  bool valid = true;
};

// Reads the code point that begins at text[offset]; `offset` is below text.size(). Overlong forms, surrogates
// and values past U+10FFFF are invalid.
CodePoint decode_utf8(std::string_view text, size_t offset);

// Columns of a terminal: 0 for combining marks, 2 for East Asian wide characters and emoji, else 1.
int terminal_width(char32_t code);

// The text with every invalid byte replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// The text with control characters and invalid bytes spelled as escapes (\n, \x1b), fit for one line.
std::string printable(std::string_view text);

} // namespace paratope
