// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a pattern, in terms of the pattern alone. This folder knows neither files nor lines, so
// an error says which bytes of which pattern it means, and the caller, who knows where the quoted string
// starts, turns that into a caret:
//
//     ep = "(edp ep) -> edp pe"        SourceRange of the text + [begin, end) = where the caret goes
//                           ^~         begin 16, end 18
//
// Messages are lowercase, have no full stop and end in the offending values; codes are stable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paratope {

// Something else the reader should see: another place in a pattern, or the definition of a sized axis.
struct PatternNote {
  std::string message;
  std::string axis;         // the sized axis it is about ("world" for the world), or empty
  int64_t pattern_idx = -1; // −1: not in a pattern
  int64_t begin = 0, end = 0;
};

struct PatternError {
  std::string code;        // kebab-case: "pattern-missing-arrow", "not-divisible"
  std::string message;     // one line
  int64_t pattern_idx = 0; // which pattern of a list; −1: no pattern is at fault (rank_map, rank_offset)
  int64_t begin = 0;       // bytes of that pattern's text, half open; begin == end is a point
  int64_t end = 0;
  std::string axis;       // the sized axis to blame, or empty
  int64_t entry_idx = -1; // the entry of rank_map to blame
  std::vector<PatternNote> notes;
  std::string fix; // what to write instead, or empty
};

// Errors in the order they were found. Functions that can fail append here and return nothing; they report
// all they can see, not only the first.
using PatternErrors = std::vector<PatternError>;

// The error as text for a terminal that has no source file to show:
//     pattern-one-sided-axis: axis stands on one side only: ep (left), pe (right)
//       (edp ep) -> edp pe
//            ^~
//       note: and here: pe
//       (edp ep) -> edp pe
//                       ^~
//       fix: write 'ep' for 'pe'
// `patterns` is the list the error's pattern_idx counts in.
std::string to_string(const PatternError &error, std::span<const std::string> patterns);

} // namespace paratope
