// SPDX-License-Identifier: Apache-2.0
//
// Whether a plan can be executed at all: every reference refers to something, every size is positive and its
// products fit 64 bits, every instruction has the operands and attributes its op takes, nothing is read
// before it is written, every collective is awaited exactly once, and every rank is in the groups the plan
// claims. Reading a plan runs it; the compiler may run it on what it is about to write.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/plan_json.h"

namespace paratope::plan {

// Everything found, in the plan's order; empty when the plan is good.
std::vector<Problem> check(const Plan &plan);

// Bytes of one element of a buffer: f32 and i32 4, i64 8, anything else 0.
int64_t dtype_bytes(std::string_view dtype);

// True for collectives that are complete when their instruction is (`async` 0).
bool completes_at_issue(const Instruction &instruction);

} // namespace paratope::plan
