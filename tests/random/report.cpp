// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace paratope::random {

void Coverage::add(const Case &done, const Outcome &outcome) {
  compile_ms += outcome.compile_ms;
  run_ms += outcome.run_ms;
  if (done.legal) {
    ++num_legal;
    for (const std::string &feature : done.features)
      ++features[feature];
    return;
  }
  ++num_near;
  ++rules[done.mutation];
  for (const std::string &code : std::set<std::string>(outcome.codes.begin(), outcome.codes.end()))
    ++codes[code];
}

// "name   a 1, b 2, …", wrapped.
static std::string row(const std::string &name, const std::vector<std::pair<std::string, int64_t>> &counts) {
  constexpr size_t width = 118, indent = 16;
  std::string text = fmt::format("{:<{}}", name, indent);
  size_t column = indent;
  for (size_t i = 0; i < counts.size(); ++i) {
    std::string cell =
        fmt::format("{} {}{}", counts[i].first, counts[i].second, i + 1 < counts.size() ? ", " : "");
    if (column + cell.size() > width) {
      text += fmt::format("\n{:<{}}", "", indent);
      column = indent;
    }
    text += cell;
    column += cell.size();
  }
  return text + "\n";
}

std::string Coverage::table() const {
  std::map<std::string, std::vector<std::pair<std::string, int64_t>>> families;
  for (const auto &[feature, count] : features) {
    size_t colon = feature.find(':');
    families[feature.substr(0, colon)].emplace_back(feature.substr(colon + 1), count);
  }
  std::string text;
  if (num_legal > 0)
    text += fmt::format(
        "---- {} legal: compiled, run, equal to the reference, collectives as in the ledger\n", num_legal);
  for (const auto &[family, counts] : families)
    text += row(family, counts);
  if (num_near > 0)
    text += fmt::format("---- {} near-legal: refused at the key\n", num_near) +
            row("by code", {codes.begin(), codes.end()}) + row("by rule", {rules.begin(), rules.end()});
  int64_t all = std::max<int64_t>(num_legal + num_near, 1);
  return text + fmt::format("---- a case: {:.1f} ms to compile, {:.1f} ms to run a legal one\n",
                            compile_ms / static_cast<double>(all),
                            run_ms / static_cast<double>(std::max<int64_t>(num_legal, 1)));
}

std::vector<std::string> Coverage::missing(const Library &library,
                                           const std::vector<Mutation> &mutations) const {
  std::vector<std::string> missed;
  if (num_legal > 0)
    for (const std::string &feature : expected_features(library))
      if (!features.contains(feature))
        missed.push_back(feature);
  if (num_near > 0)
    for (const Mutation &mutation : mutations) {
      if (!rules.contains(mutation.name))
        missed.push_back("rule:" + mutation.name);
      for (const std::string &code : mutation.codes)
        if (!codes.contains(code))
          missed.push_back("code:" + code + " of " + mutation.name);
    }
  return missed;
}

std::string to_text(const Outcome &outcome) {
  return nlohmann::json{
      {"fault", outcome.fault}, {"detail", outcome.detail},         {"kind", outcome.kind},
      {"codes", outcome.codes}, {"compile_ms", outcome.compile_ms}, {"run_ms", outcome.run_ms}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Outcome from_text(const std::string &text) {
  nlohmann::json document = nlohmann::json::parse(text);
  return {document["fault"], document["detail"],     document["kind"],
          document["codes"], document["compile_ms"], document["run_ms"]};
}

} // namespace paratope::random
