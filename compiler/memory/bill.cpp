// SPDX-License-Identifier: Apache-2.0
#include "compiler/memory/bill.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"

#include "compiler/memory/place.h"

using namespace mlir;

namespace paratope {

using namespace step;

namespace {

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Scales beside the weights: fp8 one float for each 128 × 128 block, fp4 one byte for each 32 values.
int64_t scale_bytes(int64_t elements, Type element) {
  unsigned bits = element.getIntOrFloatBitWidth();
  if (bits == 4)
    return elements / 32;
  return bits == 8 ? elements / (128 * 128) * 4 : 0;
}

// KV bytes of one sequence over all layers. A window keeps its last tokens, compressed keys one entry a
// block.
int64_t kv_bytes_of_sequence(const TopologySpec &spec, int64_t context) {
  const AttentionModel &attention = spec.model.attention;
  int64_t element = *spec.attention.kv_dtype == "fp8" ? 1 : 2;
  int64_t width = *attention.kind == "mla" ? *attention.kv_lora + *attention.rope_dim : *attention.head_dim;
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < *spec.model.layers; ++layer) {
    int64_t window = (*attention.window)[static_cast<size_t>(layer) % attention.window->size()];
    int64_t kept = window > 0 ? std::min(window, context + 1) : context + 1;
    bytes += round_up(kept, kv_page_tokens) * width * element;
    int64_t ratio = static_cast<size_t>(layer) < attention.compress_ratios->size()
                        ? (*attention.compress_ratios)[static_cast<size_t>(layer)]
                        : 0;
    if (ratio > 0)
      bytes += round_up((context + 1) / ratio, kv_page_tokens) * width * element;
  }
  return bytes;
}

// The largest n in 0 … most for which `fits` holds; it holds for fewer whenever it holds for more.
template <class Fits> int64_t largest(int64_t most, Fits fits) {
  int64_t low = 0, high = most + 1;
  while (low + 1 < high) {
    int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

} // namespace

FailureOr<MemoryBill> memory_bill(ModuleOp module, const TopologySpec &spec, const MeshView &mesh) {
  MemoryBill bill;
  auto programs = module.getOps<ProgramOp>();
  topo::SizesOp sizes = *module.getOps<topo::SizesOp>().begin();
  std::map<std::string, int64_t> weights;
  int64_t scales = 0, engram_scales = 0;
  int64_t activations = 0, exchange = 0;
  for (ProgramOp program : programs) {
    for (WeightOp weight : program.getOps<WeightOp>()) {
      auto type = cast<RankedTensorType>(weight.getValue().getType());
      SmallVector<int64_t> shape = local_shape(type, mesh);
      if (weight.getSlots())
        shape[0] = static_cast<int64_t>(sizes.getLocal());
      int64_t elements = 1;
      for (int64_t dim : shape)
        elements *= dim;
      weights[weight.getPart().str()] += elements * type.getElementType().getIntOrFloatBitWidth() / 8;
      // Engram rows have a scale for each 32 values, gathered whole to every rank at load.
      if (weight.getPart() == "engram")
        engram_scales += type.getNumElements() / 32;
      else
        scales += scale_bytes(elements, type.getElementType());
    }
    FailureOr<Placement> placement = place_buffers(program, mesh, device_element_bytes);
    if (failed(placement))
      return failure();
    activations = std::max(activations, placement->arena_bytes["activation"]);
    exchange = std::max(exchange, placement->arena_bytes["exchange"]);
  }
  int64_t communicators = 0;
  for (topo::CommOp comm : module.getOps<topo::CommOp>())
    communicators += comm.getBackend() == "nccl";

  int64_t sequences =
      static_cast<int64_t>(sizes.getTokens()); // of the rank's engine, each rank of which keeps them all
  int64_t context = *spec.workload.context;
  int64_t kv = sequences * kv_bytes_of_sequence(spec, context);
  for (const char *part : {"attention", "dense", "shared", "gate", "norms", "hyper_connections", "embedding",
                           "experts", "engram_projections", "engram"})
    bill.rank_bytes.emplace_back(
        part, std::string_view(part) == "engram" && *spec.engram.storage == "host" ? 0 : weights[part]);
  if (*spec.engram.storage == "host" && weights["engram"] > 0)
    bill.notes.push_back(
        fmt::format("Engram rows lie in pinned host memory: {:.3f} GB a rank, not counted here",
                    static_cast<double>(weights["engram"]) / 1e9));
  bill.rank_bytes.emplace_back("engram_scales", engram_scales);
  bill.rank_bytes.emplace_back("scales", scales);
  bill.rank_bytes.emplace_back("kv_cache", kv);
  bill.rank_bytes.emplace_back("activations", activations);
  bill.rank_bytes.emplace_back("exchange_buffers", exchange);
  bill.rank_bytes.emplace_back("communicators", communicators * communicator_bytes);
  for (const auto &[item, bytes] : bill.rank_bytes)
    bill.total += bytes;
  bill.capacity = static_cast<int64_t>(*spec.machine.gpu_memory_gb * 1e9);
  bill.fits = bill.total <= bill.capacity;

  int64_t fixed = bill.total - kv - activations - exchange;
  double per_token = static_cast<double>(activations + exchange) / static_cast<double>(sequences);
  int64_t one_engine = std::max<int64_t>(1, mesh.world / static_cast<int64_t>(sizes.getEngines())); // ranks
  bill.largest_tokens_per_rank = largest(int64_t{1} << 24, [&](int64_t tokens) {
    double held = static_cast<double>(tokens * one_engine) *
                  (per_token + static_cast<double>(kv_bytes_of_sequence(spec, context)));
    return static_cast<double>(fixed) + held <= static_cast<double>(bill.capacity);
  });
  if (fixed + activations + exchange + sequences * kv_bytes_of_sequence(spec, 0) <= bill.capacity)
    bill.largest_context = largest(int64_t{1} << 30, [&](int64_t tokens) {
      return static_cast<double>(fixed + activations + exchange) +
                 static_cast<double>(sequences) * static_cast<double>(kv_bytes_of_sequence(spec, tokens)) <=
             static_cast<double>(bill.capacity);
    });
  bill.notes.push_back(
      fmt::format("weights: attention {}, experts {}, without scales; scales stand in their own line",
                  *spec.attention.weight_dtype, *spec.moe.expert_dtype));
  bill.notes.push_back(fmt::format("KV cache: {} sequences a rank of {} tokens, {}, in pages of {} tokens",
                                   sequences, context + 1, *spec.attention.kv_dtype, kv_page_tokens));
  if (engram_scales > 0)
    bill.notes.push_back(fmt::format(
        "Engram: rows cut over {} ranks, their scales (one byte for 32 values) whole on every rank",
        mesh.size_of("enp")));
  int64_t tp = mesh.size_of("tp");
  if (tp > 1 && (*spec.model.attention.kind != "gqa" || *spec.model.attention.kv_heads < tp))
    bill.notes.push_back(fmt::format(
        "one KV head: the {} ranks of tp each hold the same KV cache, {:.2f} GB where one copy is {:.2f} GB",
        tp, static_cast<double>(kv) * static_cast<double>(tp) / 1e9, static_cast<double>(kv) / 1e9));
  if (communicators > 0)
    bill.notes.push_back(fmt::format("{} NCCL communicators at {} MB each (users report 500 to 700)",
                                     communicators, communicator_bytes / 1'000'000));
  return bill;
}

} // namespace paratope
