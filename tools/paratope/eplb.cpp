// SPDX-License-Identifier: Apache-2.0
//
// `eplb`: expert-parallel load balancing alone, on measured loads of one layer or several.
#include "compiler/experts/eplb.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "dsl/diagnostic/render.h"
#include "tools/paratope/layer_loads.h"
#include "tools/paratope/numbers.h"
#include "tools/paratope/session.h"

namespace paratope {

namespace {

struct Arguments {
  std::string loads;
  EplbRequest request;
  bool json = false;
};

struct Balanced {
  std::vector<int64_t> slots;   // logical expert of each
  double before = 1, after = 1; // max/mean over ranks: contiguous, balanced
};

constexpr int64_t shown_layers = 4, shown_ranks = 8;

std::optional<Balanced> balance(const std::vector<double> &loads, const EplbRequest &request,
                                ExpertsErrors &errors) {
  auto slots = place_by_load(loads, request, errors);
  if (!slots)
    return std::nullopt;
  ExpertCounts counts;
  counts.logical = static_cast<int64_t>(loads.size()), counts.physical = request.slots;
  counts.extra = counts.physical - counts.logical, counts.local = request.slots / request.ranks;
  auto contiguous = place_contiguous(counts, errors);
  if (!contiguous)
    return std::nullopt;
  return Balanced{*slots, imbalance(*contiguous, loads, request.ranks),
                  imbalance(*slots, loads, request.ranks)};
}

nlohmann::ordered_json as_json(const std::vector<Balanced> &layers, bool nested) {
  if (!nested)
    return {{"slots", layers[0].slots},
            {"imbalance", layers[0].after},
            {"imbalance_contiguous", layers[0].before}};
  nlohmann::ordered_json slots = nlohmann::ordered_json::array(), after = slots, before = slots;
  for (const Balanced &layer : layers) {
    slots.push_back(layer.slots);
    after.push_back(layer.after);
    before.push_back(layer.before);
  }
  return {{"slots", slots}, {"imbalance", after}, {"imbalance_contiguous", before}};
}

std::string as_text(const std::vector<Balanced> &layers, size_t experts, const EplbRequest &request) {
  const int64_t local = request.slots / request.ranks;
  std::string text =
      fmt::format("{} experts in {} slots, {} a rank of {}; ", experts, request.slots, local, request.ranks);
  text += request.groups % request.nodes == 0
              ? fmt::format("each of {} groups stays inside one of {} nodes\n", request.groups, request.nodes)
              : fmt::format("one pass over all ranks, as {} nodes do not divide {} groups\n", request.nodes,
                            request.groups);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i == shown_layers) {
      text += fmt::format("… {} more layers (--json lists all)\n", layers.size() - i);
      break;
    }
    const std::vector<int64_t> &slots = layers[i].slots;
    text += fmt::format("layer {}: load max/mean {:.3f} over ranks (contiguous {:.3f})\n", i, layers[i].after,
                        layers[i].before);
    for (int64_t rank = 0; rank < request.ranks; ++rank) {
      if (rank == shown_ranks) {
        text += fmt::format("  … {} more ranks (--json lists all)\n", request.ranks - rank);
        break;
      }
      text += fmt::format("  rank {:3}: experts {}\n", rank,
                          fmt::join(slots.begin() + rank * local, slots.begin() + (rank + 1) * local, " "));
    }
  }
  return text;
}

int eplb(const Arguments &arguments) {
  Diagnostics found;
  std::vector<Balanced> layers;
  std::optional<LayerLoads> loads = read_layer_loads(arguments.loads, found);
  ExpertsErrors errors;
  for (size_t i = 0; loads && errors.empty() && i < loads->layers.size(); ++i)
    if (auto balanced = balance(loads->layers[i], arguments.request, errors))
      layers.push_back(std::move(*balanced));
  for (const ExpertsError &error : errors) // of the request: the loads were read without any
    found.error(error.code, {}, error.message).fix = error.fix;
  show(found);
  if (found.has_errors()) {
    if (arguments.json)
      print(nlohmann::ordered_json{{"ok", false}, {"diagnostics", to_json(found)}});
    return exit_wrong_input;
  }
  if (arguments.json)
    print(as_json(layers, loads->nested));
  else
    print(as_text(layers, loads->layers[0].size(), arguments.request));
  return exit_good;
}

} // namespace

void register_eplb(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command = app.add_subcommand(
      "eplb", "replicas of the busiest experts, and a rank for every one, by measured load");
  command
      ->add_option("--loads", arguments->loads, "JSON: a list of loads, or a list of such lists, one a layer")
      ->required();
  auto count = [&](const char *name, int64_t &value, const char *what) {
    return command->add_option(name, value, what)->check(from_one());
  };
  count("--ranks", arguments->request.ranks, "ranks of the expert-parallel group")->required();
  count("--slots", arguments->request.slots, "experts with their replicas, over all ranks")->required();
  count("--nodes", arguments->request.nodes, "scale-up domains the ranks lie in")->capture_default_str();
  count("--groups", arguments->request.groups, "expert groups of the gate")->capture_default_str();
  command->add_flag("--json", arguments->json, "one JSON document on stdout and nothing else");
  command->footer(
      "Example:\n  echo '[90, 132, 40, 61]' > loads.json\n  paratope eplb --loads loads.json --ranks 3 "
      "--slots 6");
  command->callback([arguments, &exit_code] { exit_code = eplb(*arguments); });
}

} // namespace paratope
