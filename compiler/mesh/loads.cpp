// SPDX-License-Identifier: Apache-2.0
#include "compiler/mesh/loads.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

#include "compiler/experts/expected_load.h"

namespace paratope {

static std::optional<std::vector<double>> measured_loads(const TopologySpec &spec, int64_t experts,
                                                         ExpertsErrors &errors) {
  namespace fs = std::filesystem;
  fs::path path = *spec.moe.loads;
  if (path.is_relative() && !spec.moe.loads.where.file.empty() && spec.moe.loads.where.file[0] != '-')
    path = fs::path(spec.moe.loads.where.file).parent_path() / path;
  auto wrong = [&](std::string message) {
    errors.push_back({"bad-loads", fmt::format("{}: {}", path.string(), message), "moe.loads", ""});
    return std::nullopt;
  };
  std::ifstream file(path);
  if (!file)
    return wrong("cannot read the file of expert loads");
  nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  if (document.is_discarded() || !document.is_array())
    return wrong("expected a JSON list of numbers");
  if (static_cast<int64_t>(document.size()) != experts)
    return wrong(fmt::format("got {} loads, expected one for each of {} experts", document.size(), experts));
  std::vector<double> loads;
  double sum = 0;
  for (size_t i = 0; i < document.size(); ++i) {
    if (!document[i].is_number() || !std::isfinite(document[i].get<double>()) ||
        document[i].get<double>() < 0)
      return wrong(fmt::format("load {} is {}, expected a number of at least 0", i, document[i].dump()));
    loads.push_back(document[i].get<double>());
    sum += loads.back();
  }
  if (sum <= 0)
    return wrong("every load is 0");
  return loads;
}

std::optional<std::vector<double>> expert_loads(const TopologySpec &spec, int64_t experts,
                                                ExpertsErrors &errors) {
  if (!spec.moe.loads->empty())
    return measured_loads(spec, experts, errors);
  const RoutingSpec &routing = spec.workload.routing;
  RoutingDistribution distribution;
  if (*routing.kind == "zipf")
    distribution.kind = RoutingDistribution::Kind::zipf;
  else if (*routing.kind == "dirichlet")
    distribution.kind = RoutingDistribution::Kind::dirichlet;
  distribution.s = *routing.s;
  distribution.alpha = *routing.alpha;
  distribution.seed = *routing.seed;
  std::optional<std::vector<double>> loads = expected_loads(distribution, experts, errors);
  if (loads && *routing.kind == "hot" && *routing.expert < experts) {
    // Every token's first choice is one expert; the others are spread evenly.
    double top_k = static_cast<double>(std::max<int64_t>(1, *spec.model.moe.top_k));
    for (double &load : *loads)
      load = experts > 1 ? (top_k - 1) / top_k / static_cast<double>(experts - 1) : 0;
    (*loads)[static_cast<size_t>(*routing.expert)] = 1 / top_k;
  }
  return loads;
}

} // namespace paratope
