// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10, the counter-based generator under every synthetic tensor: ten rounds of two 32 × 32 → 64-bit
// products turn a 128-bit counter and a 64-bit key into four independent words. There is no state, so element
// i of a tensor can be made anywhere, in any order. J. Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011), with the constants and known answers published there.
#pragma once

#include <array>
#include <cstdint>

namespace paratope {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

} // namespace paratope
