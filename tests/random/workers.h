// SPDX-License-Identifier: Apache-2.0
//
// Tasks in child processes, so that one that crashes or hangs is a result like any other.
//
//     parent ── fork ──▶ child 0: task 0, 2, 4 …  ─┐ pipe: "starts 4", "done 4: text"
//            ── fork ──▶ child 1: task 1, 3, 5 …  ─┤
//     a child that dies at task 4 is followed by one that goes on with task 6
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace paratope::random {

struct Finished {
  size_t task = 0;
  std::string text; // what the task returned
  int signal = 0;   // that ended the child, or
  int exit = 0;     // its exit code, when it ended by itself in the middle of the task
  bool hung = false;
  bool good() const { return signal == 0 && exit == 0 && !hung; }
};

// Runs task(0) … task(count − 1), `jobs` at the same time; each may take `seconds`. `done` is called in this
// process; when it answers false the rest is left out.
void run_forked(size_t count, int jobs, double seconds, const std::function<std::string(size_t)> &task,
                const std::function<bool(const Finished &)> &done);

} // namespace paratope::random
