// SPDX-License-Identifier: Apache-2.0
//
// Diagnostics as people read them (the line, carets under the range, notes, the fix) and as tools read
// them (the JSON of `check --json`).
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "dsl/diagnostic/diagnostic.h"

namespace paratope {

struct RenderOptions {
  bool colour = false; // ANSI colours; the caller decides (terminal and NO_COLOR)
};

// Writes each diagnostic as
//   decode.toml:14:6: error: axis 'ep' = 60 does not divide world = 64 [not-divisible]
//      14 | ep = 60
//         |      ^~
//   decode.toml:13:6: note: …
//   fix: write one of 1, 2, 4, 8, 16, 32, 64
// The source line is read again from the file, unless Diagnostics::add_source gave its text; where neither is
// there it is left out. Tabs are shown as spaces, long lines as the stretch around the range, and control
// characters, in messages too, as escapes, so that a file cannot drive the terminal that shows it.
void render(std::ostream &out, const Diagnostics &diagnostics, const RenderOptions &options);

// [{"severity","code","message","file","line","column","end_column","notes":[{"message","file",…}],"fix"}]
// `line` and the columns are null where the place is not known; `fix` is null where there is none.
nlohmann::json to_json(const Diagnostics &diagnostics);

} // namespace paratope
