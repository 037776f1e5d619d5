// SPDX-License-Identifier: Apache-2.0
//
// What each collective sends, a rank of p:
//
//     all_reduce      2(p−1)/p · S            ring (Patarasuk & Yuan 2009); S the local tensor
//     all_gather      (p−1) · own part        reduce_scatter   (p−1)/p · S
//     dispatch        T · d · (p−1)/p · row   d = expected distinct ranks of a token's experts
//     combine         the same rows back      fetch            rows asked of others, and ids there
//     all_to_all      (p−1)/p · S
//     vote            8 bytes
//
// A row of dispatch: hidden values, one float scale for each 128 of them in fp8, and 16 bytes of routing.
#include "compiler/ledger/ledger.h"

#include <cmath>

#include "fmt/format.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/experts/expected_load.h"
#include "compiler/memory/place.h"
#include "compiler/mesh/domain.h"

using namespace mlir;

namespace paratope {

using namespace step;

namespace {

// Bytes of the part of a tensor that a rank holds.
int64_t local_bytes(Type type, const MeshView &mesh) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t bytes = device_element_bytes(tensor.getElementType());
  for (int64_t dim : local_shape(tensor, mesh))
    bytes *= dim;
  return bytes;
}

int64_t share(int64_t bytes, int64_t p) { return bytes / p * (p - 1) + bytes % p * (p - 1) / p; }

int64_t row_bytes(int64_t hidden, StringRef dtype) {
  return dtype == "fp8" ? hidden + (hidden + 127) / 128 * 4 + 16 : hidden * 2 + 16;
}

// Rows a rank sends to others: each token once to every rank that holds one of its experts.
int64_t rows_sent(Value tokens, int64_t top_k, int64_t ranks, int64_t physical, const MeshView &mesh) {
  ExpertsErrors ignored;
  double held = static_cast<double>(local_shape(cast<RankedTensorType>(tokens.getType()), mesh)[0]);
  double distinct = expected_distinct_ranks(physical, ranks, top_k, ignored)
                        .value_or(static_cast<double>(std::min(top_k, ranks)));
  return std::llround(held * distinct * static_cast<double>(ranks - 1) / static_cast<double>(ranks));
}

// Where in the model a collective stands, and which total it counts to.
void classify(Operation *op, LedgerLine &line) {
  std::string name = name_of(op);
  if (isa<VoteOp>(op)) {
    line.where = "liveness";
    line.category = "control";
  } else if (isa<FetchOp>(op)) {
    line.where = "Engram fetch";
    line.category = "fetch";
  } else if (isa<AllGatherOp>(op) && line.group == "cp") {
    line.where = name == "exit" ? "hidden states at exit" : "key gather";
    line.category = "context";
  } else if (name.find(".attn") != std::string::npos) {
    line.where = line.group == "og" ? "output groups" : "after attention";
    line.category = "dense";
  } else if (name.find(".mlp") != std::string::npos) {
    line.where = "after dense MLP";
    line.category = "dense";
  } else {
    line.where = line.group == "tp" ? "MoE results over tp" : "MoE exchange";
    line.category = "exchange";
  }
}

// Latency and bandwidth of the narrowest link a group crosses.
void price(LedgerLine &line, const TopologySpec &spec, const MeshView &mesh) {
  const GroupLayout &group = mesh.groups.at(line.group);
  bool inside = in_one_domain(group, domain_gpus(spec.machine));
  const LinkSpec &link = inside ? spec.machine.scale_up : spec.machine.scale_out;
  double p = static_cast<double>(line.ranks), alpha = *link.latency_us;
  // Hops one after the other: a ring's, or one exchange with everybody at once.
  double hops = line.op == "all_reduce"                                  ? 2 * (p - 1)
                : line.op == "all_gather" || line.op == "reduce_scatter" ? p - 1
                                                                         : 1;
  if (line.op == "vote")
    hops = 2 * std::ceil(std::log2(p));
  double transfer_us =
      *link.gb_per_s > 0 ? static_cast<double>(line.bytes_per_rank) / (*link.gb_per_s * 1e3) : 0;
  line.predicted_us = hops * alpha + transfer_us;
  line.price = fmt::format("{:.0f} × {:g} µs + {} B / {:g} GB/s ({})", hops, alpha, line.bytes_per_rank,
                           *link.gb_per_s, *link.name);
}

bool is_blocking(Operation *op) {
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode()) {
    if (auto await = dyn_cast<AwaitOp>(next); await && await.getPending() == op->getResult(0))
      return true;
    if (!isa<WeightOp>(next))
      return false;
  }
  return true;
}

} // namespace

LedgerLine ledger_line(Operation *op, const TopologySpec &spec, const MeshView &mesh, int64_t physical) {
  LedgerLine line;
  line.op = op->getName().stripDialect().str();
  line.group = group_of(op);
  line.ranks = mesh.size_of(line.group);
  int64_t p = line.ranks, hidden = *spec.model.hidden;
  line.bytes_per_rank =
      llvm::TypeSwitch<Operation *, int64_t>(op)
          .Case<VoteOp>([](auto) { return int64_t{8}; })
          .Case<AllReduceOp>(
              [&](auto reduce) { return 2 * share(local_bytes(reduce.getX().getType(), mesh), p); })
          .Case<ReduceScatterOp, AllToAllOp>(
              [&](auto scatter) { return share(local_bytes(scatter.getX().getType(), mesh), p); })
          .Case<AllGatherOp>([&](auto gather) {
            int64_t bytes = 0;
            for (Value x : gather.getXs())
              bytes += local_bytes(x.getType(), mesh);
            return bytes * (p - 1);
          })
          .Case<DispatchOp>([&](auto dispatch) {
            return rows_sent(dispatch.getX(), static_cast<int64_t>(dispatch.getTopK()), p, physical, mesh) *
                   row_bytes(hidden, dispatch.getDtype());
          })
          .Case<CombineOp>([&](auto combine) {
            auto back =
                cast<RankedTensorType>(cast<PendingType>(combine.getPending().getType()).getTypes()[0]);
            double tokens = static_cast<double>(local_shape(back, mesh)[0]);
            ExpertsErrors ignored;
            double distinct =
                expected_distinct_ranks(physical, p, *spec.model.moe.top_k, ignored).value_or(1);
            int64_t rows =
                std::llround(tokens * distinct * static_cast<double>(p - 1) / static_cast<double>(p));
            return rows * (combine.getDtype() == "fp8" ? hidden + (hidden + 127) / 128 * 4 : hidden * 2);
          })
          .Case<FetchOp>([&](auto fetch) {
            int64_t rows = local_bytes(fetch.getRows().getType(), mesh) / 8;
            int64_t dim = *spec.model.engram.dim;
            return share(rows * 8, p) + share(rows * dim, p);
          })
          .Default([](Operation *) { return int64_t{0}; });
  line.blocking = is_blocking(op);
  classify(op, line);
  price(line, spec, mesh);
  return line;
}

// At load: one collective warms each communicator, Engram scales (a byte for each 32 values) are gathered
// whole, and the ranks agree on how many pages of KV all of them have.
static std::vector<LedgerLine> load_lines(ModuleOp module, const TopologySpec &spec, const MeshView &mesh) {
  std::vector<LedgerLine> lines;
  auto add = [&](const std::string &op, const std::string &group, const std::string &where, int64_t bytes) {
    LedgerLine line;
    line.op = op;
    line.group = group;
    line.ranks = mesh.size_of(group);
    line.bytes_per_rank = bytes;
    line.where = where;
    line.category = "load";
    price(line, spec, mesh);
    lines.push_back(std::move(line));
  };
  bool world = false;
  for (topo::CommOp comm : module.getOps<topo::CommOp>()) {
    add("warm_up", comm.getGroup().str(), "warm-up of a communicator", 8);
    for (Attribute role : comm.getRoles())
      world |= cast<StringAttr>(role).getValue() == "world";
  }
  for (ProgramOp program : module.getOps<ProgramOp>())
    for (FetchOp fetch : program.getOps<FetchOp>()) {
      auto table = cast<RankedTensorType>(fetch.getTable().getType());
      int64_t part = local_shape(table, mesh)[0] * ((table.getDimSize(1) + 31) / 32);
      add("gather_scales", group_of(fetch), "Engram scales", part * (mesh.size_of(group_of(fetch)) - 1));
    }
  if (world)
    add("kv_blocks", "world", "KV pages that all ranks have", 8);
  return lines;
}

Ledger ledger_of(ModuleOp module, const TopologySpec &spec, const MeshView &mesh) {
  Ledger ledger;
  int64_t physical = static_cast<int64_t>((*module.getOps<topo::SizesOp>().begin()).getPhysical());
  for (ProgramOp program : module.getOps<ProgramOp>())
    for (Operation &op : program.getBody().front()) {
      if (!is_collective(&op))
        continue;
      LedgerLine line = ledger_line(&op, spec, mesh, physical);
      ++ledger.count;
      ledger.bytes_per_rank += line.bytes_per_rank;
      (line.category == "dense"      ? ledger.per_layer_dense
       : line.category == "exchange" ? ledger.exchange
       : line.category == "control"  ? ledger.control
       : line.category == "context"  ? ledger.context
                                     : ledger.fetch) += 1;
      auto same = [&](const LedgerLine &other) {
        return other.op == line.op && other.group == line.group &&
               other.bytes_per_rank == line.bytes_per_rank && other.where == line.where &&
               other.blocking == line.blocking;
      };
      auto found = llvm::find_if(ledger.lines, same);
      if (found == ledger.lines.end())
        ledger.lines.push_back(line);
      else
        ++found->times;
    }
  ledger.load = load_lines(module, spec, mesh);
  return ledger;
}

} // namespace paratope
