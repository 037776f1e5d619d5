// SPDX-License-Identifier: Apache-2.0
//
// `experts`: redundancy, and which logical expert each physical slot holds.
#include "tools/paratope/experts.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "compiler/experts/expected_load.h"
#include "compiler/experts/placement.h"
#include "compiler/mesh/loads.h"

namespace paratope {

namespace {

struct View {
  int64_t logical = 0, physical = 0, local = 0;
  std::vector<int64_t> slots;
  double imbalance_now = 1, imbalance_contiguous = 1; // load max/mean over the ranks of ep

  explicit View(Loaded &loaded) {
    topo::SizesOp sizes = *loaded.module().getOps<topo::SizesOp>().begin();
    logical = static_cast<int64_t>(sizes.getLogical());
    physical = static_cast<int64_t>(sizes.getPhysical());
    local = static_cast<int64_t>(sizes.getLocal());
    slots.assign(sizes.getSlots().begin(), sizes.getSlots().end());
    ExpertsErrors errors;
    if (logical == 0)
      return;
    auto loads = expert_loads(loaded.spec, logical, errors);
    if (!loads)
      return;
    imbalance_now = imbalance(slots, *loads, physical / local);
    ExpertCounts counts;
    counts.logical = logical, counts.physical = physical, counts.local = local,
    counts.extra = physical - logical;
    if (auto plain = place_contiguous(counts, errors))
      imbalance_contiguous = imbalance(*plain, *loads, physical / local);
  }
};

} // namespace

nlohmann::ordered_json experts_json(Loaded &loaded) {
  View view(loaded);
  return {{"logical", view.logical},
          {"min_redundant", *loaded.spec.moe.min_redundant_experts},
          {"extra", view.physical - view.logical},
          {"physical", view.physical},
          {"local", view.local},
          {"slots", view.slots},
          {"imbalance", view.imbalance_now},
          {"imbalance_contiguous", view.imbalance_contiguous},
          {"placement", *loaded.spec.moe.placement}};
}

std::string experts_text(Loaded &loaded, bool slots) {
  View view(loaded);
  if (view.logical == 0)
    return "no routed experts\n";
  int64_t ranks = view.physical / view.local;
  std::string text =
      fmt::format("{} logical + {} extra = {} physical experts, {} a rank of {}\n", view.logical,
                  view.physical - view.logical, view.physical, view.local, loaded.mesh.size_of("ep"));
  text += fmt::format("  min_redundant_experts {}; padded so that ep = {} divides\n",
                      *loaded.spec.moe.min_redundant_experts, loaded.mesh.size_of("ep"));
  text += fmt::format("  placement {}: load max/mean {:.3f} over ranks (contiguous {:.3f})\n",
                      *loaded.spec.moe.placement, view.imbalance_now, view.imbalance_contiguous);
  for (int64_t rank = 0; slots && rank < ranks; ++rank) {
    if (rank == 8 && ranks > 9) {
      text += fmt::format("  … {} more ranks (--json lists all)\n", ranks - rank);
      break;
    }
    auto first = view.slots.begin() + rank * view.local;
    text += fmt::format("  rank {:3} of the ep group: experts {}\n", rank,
                        fmt::join(first, first + view.local, " "));
  }
  return text;
}

namespace {

int experts(const SourceOptions &options) {
  std::unique_ptr<Loaded> loaded = load(options, "group");
  if (!loaded)
    return exit_wrong_input;
  if (options.json)
    print(experts_json(*loaded));
  else
    print(experts_text(*loaded, /*slots=*/true));
  return exit_good;
}

} // namespace

void register_experts(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<SourceOptions>();
  CLI::App *command = app.add_subcommand("experts", "redundancy and placement of the experts");
  add_source(*command, *options);
  command->footer(
      "Example:\n  paratope experts topologies/deepinfer/decode-ep64.toml --set moe.min_redundant_experts=0");
  command->callback([options, &exit_code] { exit_code = experts(*options); });
}

} // namespace paratope
