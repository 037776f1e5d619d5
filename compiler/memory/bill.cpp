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

// Floats of a token's entry that a rank keeps: a latent whole, keys and values of the kv heads it has.
int64_t entry_width(const TopologySpec &spec, const MeshView &mesh) {
  const AttentionModel &attention = spec.model.attention;
  if (*attention.kind == "mla")
    return *attention.kv_lora + *attention.rope_dim;
  if (*attention.kind == "latent")
    return *attention.head_dim;
  int64_t heads = *attention.kv_heads, tp = mesh.size_of("tp");
  if (mesh.has_axis("tp-kv"))
    heads = 1;
  else if (heads % tp == 0)
    heads /= tp;
  return 2 * heads * *attention.head_dim;
}

// KV bytes of a sequence of `tokens`, over all layers. A window keeps its last tokens, compressed keys one
// entry a block.
int64_t kv_bytes_of_sequence(const TopologySpec &spec, const MeshView &mesh, int64_t tokens) {
  const AttentionModel &attention = spec.model.attention;
  int64_t element = *spec.attention.kv_dtype == "fp8" ? 1 : 2, width = entry_width(spec, mesh);
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < *spec.model.layers; ++layer) {
    int64_t window = (*attention.window)[static_cast<size_t>(layer) % attention.window->size()];
    int64_t kept = window > 0 ? std::min(window, tokens) : tokens;
    bytes += round_up(kept, kv_page_tokens) * width * element;
    int64_t ratio = static_cast<size_t>(layer) < attention.compress_ratios->size()
                        ? (*attention.compress_ratios)[static_cast<size_t>(layer)]
                        : 0;
    if (ratio > 0)
      bytes += round_up(tokens / ratio, kv_page_tokens) * width * element;
  }
  return bytes;
}

// KV bytes a rank keeps with `more` tokens before those of the workload: its engine's sequences, whole on
// each of the engine's ranks.
int64_t kv_bytes(const TopologySpec &spec, const MeshView &mesh, int64_t sequences, int64_t more) {
  const WorkloadSpec &workload = spec.workload;
  if (*workload.phase == "decode")
    return sequences * kv_bytes_of_sequence(spec, mesh, more + 1);
  int64_t most = 0;
  for (const std::vector<int64_t> &prompts : *workload.prompt_lengths) {
    int64_t bytes = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      int64_t history = workload.history_lengths->empty()
                            ? 0
                            : (*workload.history_lengths)[i % workload.history_lengths->size()];
      bytes += kv_bytes_of_sequence(spec, mesh, more + history + prompts[i]);
    }
    most = std::max(most, bytes);
  }
  return most;
}

// Gathered keys under context parallelism: tokens of a rank × bytes a token has in the widest layer × cp, and
// the alignment of up to eight gathers in flight.
int64_t key_gather_bytes(const TopologySpec &spec, const MeshView &mesh, int64_t rows) {
  int64_t gathers = 1;
  for (int64_t ratio : *spec.model.attention.compress_ratios)
    gathers = std::max<int64_t>(gathers, ratio > 1 ? 3 : ratio > 0 ? 2 : 1);
  return rows * gathers * entry_width(spec, mesh) * 2 * mesh.size_of("cp") + 8 * buffer_alignment;
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
    FailureOr<Placement> placement = place_buffers(program, mesh, device_element_bytes, true);
    if (failed(placement))
      return failure();
    activations = std::max(activations, placement->arena_bytes["activation"]);
    exchange = std::max(exchange, placement->arena_bytes["exchange"]);
  }
  int64_t communicators = 0;
  for (topo::CommOp comm : module.getOps<topo::CommOp>())
    communicators += comm.getBackend() == "nccl" && mesh.size_of(comm.getGroup().str()) > 1;

  // Of the rank's engine, each rank of which keeps them all.
  bool prefill = bill.prefill = *spec.workload.phase == "prefill";
  int64_t tokens = static_cast<int64_t>(sizes.getTokens()),
          sequences = sizes.getSequences() ? static_cast<int64_t>(*sizes.getSequences()) : tokens;
  int64_t context = prefill ? 0 : *spec.workload.context;
  int64_t kv = kv_bytes(spec, mesh, sequences, context);
  int64_t key_gather =
      sizes.getMirror() ? key_gather_bytes(spec, mesh, static_cast<int64_t>(*sizes.getMirror())) : 0;
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
  if (key_gather > 0)
    bill.rank_bytes.emplace_back("key_gather_buffers", key_gather);
  bill.rank_bytes.emplace_back("communicators", communicators * communicator_bytes);
  for (const auto &[item, bytes] : bill.rank_bytes)
    bill.total += bytes;
  bill.capacity = static_cast<int64_t>(*spec.machine.gpu_memory_gb * 1e9);
  bill.fits = bill.total <= bill.capacity;

  int64_t fixed = bill.total - kv - activations - exchange - key_gather;
  double per_token = static_cast<double>(bill.total - fixed) / static_cast<double>(tokens);
  int64_t one_engine = std::max<int64_t>(1, mesh.world / static_cast<int64_t>(sizes.getEngines())); // ranks
  bill.largest_tokens_per_rank = largest(int64_t{1} << 24, [&](int64_t most) {
    return static_cast<double>(fixed) + static_cast<double>(most * one_engine) * per_token <=
           static_cast<double>(bill.capacity);
  });
  auto with_context = [&](int64_t more) {
    return static_cast<double>(bill.total - kv) + static_cast<double>(kv_bytes(spec, mesh, sequences, more));
  };
  if (with_context(0) <= static_cast<double>(bill.capacity))
    bill.largest_context = largest(int64_t{1} << 30, [&](int64_t more) {
      return with_context(more) <= static_cast<double>(bill.capacity);
    });
  bill.notes.push_back(
      fmt::format("weights: attention {}, experts {}, without scales; scales stand in their own line",
                  *spec.attention.weight_dtype, *spec.moe.expert_dtype));
  bill.notes.push_back(
      prefill ? fmt::format("KV cache: {} prompts a rank with their histories, {}, in pages of {} tokens",
                            sequences, *spec.attention.kv_dtype, kv_page_tokens)
              : fmt::format("KV cache: {} sequences a rank of {} tokens, {}, in pages of {} tokens",
                            sequences, context + 1, *spec.attention.kv_dtype, kv_page_tokens));
  if (sizes.getServing())
    bill.notes.push_back(fmt::format("a rank that serves; ranks {} to {} hold Engram rows and scales only",
                                     static_cast<int64_t>(*sizes.getServing()), mesh.world - 1));
  if (engram_scales > 0)
    bill.notes.push_back(fmt::format(
        "Engram: rows cut over {} ranks, their scales (one byte for 32 values) whole on every rank",
        mesh.size_of("enp")));
  int64_t tp = mesh.size_of("tp"), kv_heads = *spec.model.attention.kv_heads;
  if (int64_t copies = kv_heads % tp == 0 ? 1 : tp / kv_heads; copies > 1)
    bill.notes.push_back(fmt::format(
        "{}, {:.2f} GB where one copy is {:.2f} GB",
        kv_heads == 1 ? fmt::format("one KV head: the {} ranks of tp each hold the same KV cache", tp)
                      : fmt::format("{} KV heads on tp = {}: {} ranks each hold the same KV cache", kv_heads,
                                    tp, copies),
        static_cast<double>(kv) * static_cast<double>(copies) / 1e9, static_cast<double>(kv) / 1e9));
  if (communicators > 0)
    bill.notes.push_back(fmt::format("{} NCCL communicators at {} MB each (users report 500 to 700)",
                                     communicators, communicator_bytes / 1'000'000));
  return bill;
}

} // namespace paratope
