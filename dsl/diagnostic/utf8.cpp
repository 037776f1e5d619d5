// SPDX-License-Identifier: Apache-2.0
#include "dsl/diagnostic/utf8.h"

#include <fmt/format.h>

namespace paratope {

CodePoint decode_utf8(std::string_view text, size_t offset) {
  const CodePoint invalid{0xFFFD, 1, false};
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80)
    return {lead, 1, true};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
  if (length == 0 || lead > 0xF4 || text.size() - offset < length)
    return invalid;
  char32_t code = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80)
      return invalid;
    code = (code << 6) | (byte(i) & 0x3F);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; // of each length; below it the form is overlong
  if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
    return invalid;
  return {code, length, true};
}

int terminal_width(char32_t code) {
  if ((code >= 0x0300 && code <= 0x036F) || (code >= 0x200B && code <= 0x200F) ||
      (code >= 0xFE00 && code <= 0xFE0F))
    return 0;
  const bool wide = (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
                    (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
                    (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
                    (code >= 0xFFE0 && code <= 0xFFE6) || (code >= 0x1F300 && code <= 0x1FAFF) ||
                    (code >= 0x20000 && code <= 0x3FFFD);
  return wide ? 2 : 1;
}

std::string valid_utf8(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.valid)
      result += text.substr(at, point.bytes);
    else
      result += "\xEF\xBF\xBD";
    at += point.bytes;
  }
  return result;
}

std::string printable(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    else if (point.code == '\n')
      result += "\\n";
    else if (point.code == '\t')
      result += "\\t";
    else if (point.code == '\r')
      result += "\\r";
    else if (point.code < 0x20 || (point.code >= 0x7F && point.code < 0xA0))
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(point.code));
    else
      result += text.substr(at, point.bytes);
    at += point.bytes;
  }
  return result;
}

} // namespace paratope
