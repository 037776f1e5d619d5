// SPDX-License-Identifier: Apache-2.0
//
// `experts`: redundancy, and which logical expert each physical slot holds.
#include "fmt/format.h"
#include "fmt/ranges.h"

#include "compiler/experts/expected_load.h"
#include "compiler/experts/placement.h"
#include "compiler/mesh/loads.h"
#include "tools/paratope/session.h"

namespace paratope {

namespace {

int experts(const SourceOptions &options) {
  std::unique_ptr<Loaded> loaded = load(options, "group");
  if (!loaded)
    return exit_wrong_input;
  topo::SizesOp sizes = *loaded->module().getOps<topo::SizesOp>().begin();
  auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
  int64_t logical = number(sizes.getLogical()), local = number(sizes.getLocal()),
          physical = number(sizes.getPhysical());
  std::vector<int64_t> slots(sizes.getSlots().begin(), sizes.getSlots().end());
  double imbalance_now = 1, imbalance_contiguous = 1;
  ExpertsErrors errors;
  if (logical > 0)
    if (auto loads = expert_loads(loaded->spec, logical, errors)) {
      imbalance_now = imbalance(slots, *loads, physical / local);
      ExpertCounts counts;
      counts.logical = logical, counts.physical = physical, counts.local = local,
      counts.extra = physical - logical;
      if (auto plain = place_contiguous(counts, errors))
        imbalance_contiguous = imbalance(*plain, *loads, physical / local);
    }
  if (options.json) {
    print(nlohmann::ordered_json{{"logical", logical},
                                 {"min_redundant", *loaded->spec.moe.min_redundant_experts},
                                 {"extra", physical - logical},
                                 {"physical", physical},
                                 {"local", local},
                                 {"slots", slots},
                                 {"imbalance", imbalance_now},
                                 {"imbalance_contiguous", imbalance_contiguous},
                                 {"placement", *loaded->spec.moe.placement}});
    return exit_good;
  }
  std::string text = fmt::format("{} logical + {} extra = {} physical experts, {} a rank of {}\n", logical,
                                 physical - logical, physical, local, loaded->mesh.size_of("ep"));
  text += fmt::format("  min_redundant_experts {}; padded so that ep = {} divides\n",
                      *loaded->spec.moe.min_redundant_experts, loaded->mesh.size_of("ep"));
  text += fmt::format("  placement {}: load max/mean {:.3f} over ranks (contiguous {:.3f})\n",
                      *loaded->spec.moe.placement, imbalance_now, imbalance_contiguous);
  if (local > 0)
    for (int64_t rank = 0; rank * local < physical; ++rank) {
      if (rank == 8 && physical / local > 9) {
        text += fmt::format("  … {} more ranks (--json lists all)\n", physical / local - rank);
        break;
      }
      text += fmt::format("  rank {:3} of the ep group: experts {}\n", rank,
                          fmt::join(slots.begin() + rank * local, slots.begin() + (rank + 1) * local, " "));
    }
  print(text);
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
