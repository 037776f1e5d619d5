// SPDX-License-Identifier: Apache-2.0
//
// The exponential under every softmax and SwiGLU. Our own for two reasons: the C library's picks its code by
// processor, so its last bit differs between machines; and a loop over plain arithmetic runs on every lane of
// a register, where heads·keys calls a token would take half of attention's time.
//
//     e^x = 2^k · e^r,  k = round(x/ln 2),  |r| <= ln 2 / 2:  Taylor's first 13 terms, remainder below
//     2·10⁻¹⁶
#pragma once

#include <cstdint>

namespace paratope {

// x[i] = e^x[i], within 4·10⁻¹⁶ relative. Arguments are clamped to ±708, where float64 is still normal; NaN
// stays.
void exp_each(double *x, int64_t n);

} // namespace paratope
