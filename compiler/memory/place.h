// SPDX-License-Identifier: Apache-2.0
//
// Where every buffer of a step lies: one arena a kind of memory, offsets from liveness. Sizes are the plan's
// maxima and never depend on a batch.
#pragma once

#include <functional>
#include <map>

#include "compiler/step/shardings.h"

namespace paratope {

struct PlacedBuffer {
  mlir::Value value;
  std::string arena; // activation | exchange (what collectives write) | gather (keys gathered over cp)
  int64_t rows = 0;  // the most a rank holds
  int64_t row_size = 0;
  int64_t offset = 0;
  int64_t bytes = 0; // aligned
};

struct Placement {
  std::vector<PlacedBuffer> buffers; // in order of definition
  std::map<std::string, int64_t> arena_bytes;
};

inline constexpr int64_t buffer_alignment = 256;

// The arena a collective's results lie in.
const char *arena_of(mlir::Operation *collective);

// Bytes of one element, by the target that holds it: `device` as the type says, `host` in 32-bit floats.
int64_t device_element_bytes(mlir::Type element);
int64_t host_element_bytes(mlir::Type element);

// First fit in program order. With `kernels`, values that never leave their kernel take no room: a device
// keeps them in registers and shared memory, the host, which runs kernels by their parts, does not. A value
// lives from the op that makes it (for a collective's result, from its issue) to its last use; what a
// collective reads lives until it is awaited. Fails on sizes beyond 64 bits.
mlir::FailureOr<Placement> place_buffers(step::ProgramOp program, const MeshView &mesh,
                                         const std::function<int64_t(mlir::Type)> &element_bytes,
                                         bool kernels);

} // namespace paratope
