// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean": the legal spelling nearest to what was written, for every name a user can misspell.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace paratope {

// The candidate with the least edit distance (insert, delete, replace, swap of neighbours; a difference of
// case, of '-' for '_' or of a doubled letter counts half), or nothing when even that one is further than
// about a third of the word's length. Ties go to the candidate that stands first.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

// The file beside a missing one whose name is nearest to it, with its folder; nothing when none is near.
std::optional<std::string> nearest_file(const std::string &path);

} // namespace paratope
