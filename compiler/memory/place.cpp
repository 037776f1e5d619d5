// SPDX-License-Identifier: Apache-2.0
//
// Stage "place".
//
//     time ─▶        op0    op1    op2    op3
//     offset 0      [x──────────]  [out────────
//     offset 4096          [rows──────────]
#include "compiler/memory/place.h"

#include <algorithm>

#include "mlir/IR/Builders.h"

#include "compiler/passes.h"
#include "dsl/topo/bridge.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPPLACE
#include "Passes.h.inc"

using namespace step;

// Gathered keys have room of their own, sized by what a rank may hold at most.
const char *arena_of(Operation *collective) {
  bool keys = isa<AllGatherOp>(collective) && group_of(collective) == "cp" &&
              name_of(collective).find(".attn") != std::string::npos;
  return keys ? "gather" : "exchange";
}

int64_t device_element_bytes(Type element) {
  return std::max<int64_t>(1, element.getIntOrFloatBitWidth() / 8);
}

int64_t host_element_bytes(Type element) { return element.isInteger(64) ? 8 : 4; }

namespace {

// Free stretches of an arena, by offset.
struct Arena {
  std::map<int64_t, int64_t> free; // offset → bytes, neighbours merged
  int64_t end = 0;                 // bytes the arena needs

  int64_t take(int64_t bytes) {
    for (auto it = free.begin(); it != free.end(); ++it)
      if (it->second >= bytes) {
        auto [offset, room] = *it;
        free.erase(it);
        if (room > bytes)
          free[offset + bytes] = room - bytes;
        return offset;
      }
    int64_t offset = end;
    if (!free.empty() && free.rbegin()->first + free.rbegin()->second == end) { // grow the last stretch
      offset = free.rbegin()->first;
      free.erase(offset);
    }
    end = offset + bytes;
    return offset;
  }

  void give_back(int64_t offset, int64_t bytes) {
    auto next = free.lower_bound(offset);
    if (next != free.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free.erase(next);
    }
    if (next != free.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free[offset] = bytes;
  }
};

// The last op that needs a value, with collectives holding what they read until their await.
Operation *last_use(Value value, Operation *made_by) {
  Operation *last = made_by;
  for (Operation *user : value.getUsers()) {
    Operation *until = user;
    if (is_collective(user))
      for (Operation *waiter : user->getResult(0).getUsers())
        if (isa<AwaitOp>(waiter))
          until = waiter;
    if (last->isBeforeInBlock(until))
      last = until;
  }
  return last;
}

} // namespace

FailureOr<Placement> place_buffers(ProgramOp program, const MeshView &mesh,
                                   const std::function<int64_t(Type)> &element_bytes, bool kernels) {
  Placement placement;
  llvm::DenseMap<Operation *, SmallVector<size_t>> starts, ends;
  for (Operation &op : program.getBody().front()) {
    if (isa<WeightOp>(op))
      continue;
    for (Value value : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (!type || (kernels && is_internal(value)))
        continue;
      PlacedBuffer buffer;
      buffer.value = value;
      Operation *start = &op;
      if (auto await = dyn_cast<AwaitOp>(op)) {
        start = await.getPending().getDefiningOp();
        buffer.arena = arena_of(start);
      } else {
        buffer.arena = "activation";
      }
      SmallVector<int64_t> shape = local_shape(type, mesh);
      buffer.rows = std::max<int64_t>(1, shape[0]);
      buffer.row_size = 1;
      for (size_t dim = 1; dim < shape.size(); ++dim)
        if (__builtin_mul_overflow(buffer.row_size, shape[dim], &buffer.row_size))
          return topo::error(op.getLoc(), "overflow")
                 << "a buffer of this op is larger than 64 bits can count";
      int64_t bytes = 0;
      if (__builtin_mul_overflow(buffer.rows, buffer.row_size, &bytes) ||
          __builtin_mul_overflow(bytes, element_bytes(type.getElementType()), &bytes) ||
          bytes > (int64_t{1} << 60))
        return topo::error(op.getLoc(), "overflow")
               << "a buffer of " << buffer.rows << " rows is larger than 64 bits can count";
      buffer.bytes =
          (std::max<int64_t>(bytes, 1) + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
      starts[start].push_back(placement.buffers.size());
      ends[last_use(value, &op)].push_back(placement.buffers.size());
      placement.buffers.push_back(std::move(buffer));
    }
  }
  std::map<std::string, Arena> arenas;
  for (Operation &op : program.getBody().front()) {
    for (size_t idx : starts.lookup(&op))
      placement.buffers[idx].offset = arenas[placement.buffers[idx].arena].take(placement.buffers[idx].bytes);
    for (size_t idx : ends.lookup(&op))
      arenas[placement.buffers[idx].arena].give_back(placement.buffers[idx].offset,
                                                     placement.buffers[idx].bytes);
  }
  for (const auto &[name, arena] : arenas)
    placement.arena_bytes[name] = arena.end;
  return placement;
}

namespace {

// Writes the host target's placement into the IR: `offsets` on each op that makes buffers, `arena_bytes` on
// the program.
class Place : public impl::StepPlaceBase<Place> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<MeshView> mesh = view_mesh(module);
    if (failed(mesh))
      return signalPassFailure();
    Builder builder(&getContext());
    for (ProgramOp program : module.getOps<ProgramOp>()) {
      FailureOr<Placement> placement = place_buffers(program, *mesh, host_element_bytes, false);
      if (failed(placement))
        return signalPassFailure();
      llvm::MapVector<Operation *, SmallVector<int64_t>> offsets;
      for (const PlacedBuffer &buffer : placement->buffers)
        offsets[buffer.value.getDefiningOp()].push_back(buffer.offset);
      for (auto &[op, list] : offsets)
        op->setAttr("offsets", builder.getDenseI64ArrayAttr(list));
      NamedAttrList arenas;
      for (const auto &[name, bytes] : placement->arena_bytes)
        arenas.set(name, builder.getI64IntegerAttr(bytes));
      program->setAttr("arena_bytes", arenas.getDictionary(&getContext()));
    }
  }
};

} // namespace
} // namespace paratope
