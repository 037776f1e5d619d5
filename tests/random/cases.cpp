// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

#include <stdexcept>

#include <fmt/format.h>

namespace paratope::random {

std::pair<std::string, Expectation> Case::text() const {
  std::map<KeyName, KeyPlace> places;
  Expectation expectation;
  std::string written = document.toml(&places);
  expectation.legal = legal;
  expectation.codes = codes;
  for (const KeyName &key : keys)
    if (auto found = places.find(key); found != places.end())
      expectation.places.push_back(found->second);
  return {written, expectation};
}

Case make_case(uint64_t seed, uint64_t idx, const Library &library, const std::vector<Mutation> &mutations) {
  Rng rng(seed, idx);
  Case made;
  made.legal = idx % 2 == 0;
  if (made.legal) {
    Topology topology = draw_topology(rng, library);
    made.features = features_of(topology);
    made.document = std::move(topology.document);
    made.steps = topology.steps;
    return made;
  }
  // Each mutation in turn, on the first topology that has the rule to break.
  const Mutation &mutation = mutations[idx / 2 % mutations.size()];
  made.mutation = mutation.name;
  made.codes = mutation.codes;
  for (int attempt = 0; attempt < 2000; ++attempt) {
    Topology topology = draw_topology(rng, library);
    if (auto keys = mutation.apply(rng, topology)) {
      made.document = std::move(topology.document);
      made.keys = std::move(*keys);
      return made;
    }
  }
  throw std::runtime_error(fmt::format("no topology of 2000 can break the rule '{}'", mutation.name));
}

} // namespace paratope::random
