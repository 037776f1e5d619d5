// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every machine: splitmix64 (Steele, Lea, Flood 2014), one generator a
// case, so that case K of seed S is the same topology whatever ran before it.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace paratope::random {

class Rng {
public:
  Rng(uint64_t seed, uint64_t case_idx) : state(seed * 0x9E3779B97F4A7C15u + case_idx) {
    next();
    state ^= next();
  }

  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // least … most, both included.
  int64_t between(int64_t least, int64_t most) {
    assert(least <= most);
    return least + static_cast<int64_t>(next() % static_cast<uint64_t>(most - least + 1));
  }

  bool percent(int64_t chance) { return between(1, 100) <= chance; }

  template <class T> const T &of(const std::vector<T> &choices) {
    assert(!choices.empty());
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }
  int64_t one_of(const std::vector<int64_t> &choices) { return of(choices); }

  template <class T> void shuffle(std::vector<T> &list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[static_cast<size_t>(next() % i)]);
  }

private:
  uint64_t state;
};

} // namespace paratope::random
