// SPDX-License-Identifier: Apache-2.0
//
// Whether what every rank computed is what one rank would have: outputs of all ranks, in token order, against
// the reference on the same tokens.
//
//     rank 0  tokens 0 1 2  hidden, logits ┐
//     rank 1  tokens 3 4    hidden, logits ┼─▶ row by row ◀─ reference, given the experts and ids the run
//     rank 2  tokens 3 4  (tp: the same)   ┘                 chose
//
// Hidden rows are every token's, logits those of each sequence's last token in the step.
// A row's error is max|out − ref| / max|ref| over the row; the result's is the largest over ranks, steps,
// tokens, and hidden and logits. It is ok when that is at most 1e-5, nothing is NaN, every token was
// computed, ranks that hold the same token chose alike, and the reference agrees with every choice up to
// rounding (it counts ties).
#pragma once

#include "runtime/exec/result.h"
#include "runtime/exec/setup.h"

namespace paratope {

inline constexpr double max_relative_error = 1e-5;

VerifyResult verify_run(const plan::Plan &plan, const WorldState &state, int64_t steps, int64_t threads,
                        const std::string &base_dir);

} // namespace paratope
