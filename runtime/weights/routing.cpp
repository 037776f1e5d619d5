// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/routing.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace paratope {
namespace {

// A stream of draws from one key, for what is drawn once.
struct Stream {
  PhiloxKey key;
  int64_t next = 0;
  // On the open interval (0, 1): a logarithm of it is finite.
  double uniform() { return (static_cast<double>(tensor_word(key, next++)) + 0.5) * 0x1p-32; }
};

std::vector<double> normalised_log(std::vector<double> log_weight) {
  const double largest = *std::max_element(log_weight.begin(), log_weight.end());
  double total = 0;
  for (double value : log_weight)
    total += std::exp(value - largest);
  for (double &value : log_weight)
    value -= largest + std::log(total);
  return log_weight;
}

std::vector<double> zipf_log(double s, int64_t experts, Stream stream) {
  std::vector<int64_t> place(static_cast<size_t>(experts)); // a random permutation (Fisher–Yates)
  std::iota(place.begin(), place.end(), 0);
  for (int64_t i = experts - 1; i > 0; --i)
    std::swap(place[i],
              place[std::min(i, static_cast<int64_t>(stream.uniform() * static_cast<double>(i + 1)))]);
  std::vector<double> log_weight(place.size());
  for (int64_t e = 0; e < experts; ++e)
    log_weight[e] = -s * std::log(static_cast<double>(place[e] + 1));
  return normalised_log(log_weight);
}

// log of a Gamma(alpha) variate: Marsaglia and Tsang, "A simple method for generating gamma variables"
// (2000), with their boost U^(1/alpha) from alpha + 1, in logarithms since small alphas underflow.
double log_gamma_variate(double alpha, Stream &stream) {
  const double d = alpha + 1 - 1.0 / 3.0, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double radius = std::sqrt(-2 * std::log(stream.uniform())); // Box–Muller
    const double x = radius * std::cos(2 * M_PI * stream.uniform());
    const double v = std::pow(1 + c * x, 3), u = stream.uniform();
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + std::log(stream.uniform()) / alpha;
  }
}

std::vector<double> log_probabilities(const plan::Routing &routing, int64_t experts) {
  if (experts < 1)
    throw WeightError(fmt::format("routing '{}': got {} experts, expected 1 or more", routing.kind, experts));
  Stream stream{tensor_key(routing.seed, "routing.distribution")};
  std::vector<double> log_p(static_cast<size_t>(experts), -std::log(static_cast<double>(experts)));
  if (routing.kind == "zipf") {
    if (!(routing.s >= 0) || std::isinf(routing.s))
      throw WeightError(fmt::format("routing 'zipf': got s {}, expected 0 or more", routing.s));
    log_p = zipf_log(routing.s, experts, stream);
  } else if (routing.kind == "dirichlet") {
    if (!(routing.alpha > 0) || std::isinf(routing.alpha))
      throw WeightError(
          fmt::format("routing 'dirichlet': got alpha {}, expected more than 0", routing.alpha));
    for (double &value : log_p)
      value = log_gamma_variate(routing.alpha, stream);
    log_p = normalised_log(log_p);
  } else if (routing.kind == "hot") {
    if (routing.expert < 0 || routing.expert >= experts)
      throw WeightError(
          fmt::format("routing 'hot': got expert {}, expected 0 to {}", routing.expert, experts - 1));
  } else if (routing.kind != "uniform") {
    throw WeightError(fmt::format(
        "got routing '{}' to draw from, expected uniform, zipf, dirichlet, hot or trace", routing.kind));
  }
  return log_p;
}

std::vector<int32_t> read_trace(const std::string &path, int64_t experts, int64_t top_k) {
  std::ifstream file(path);
  if (!file)
    throw WeightError(
        fmt::format("{}: cannot read the routing trace, expected a JSON list of lists of expert ids", path));
  std::stringstream text;
  text << file.rdbuf();
  nlohmann::json lists;
  try {
    lists = nlohmann::json::parse(text.str());
  } catch (const nlohmann::json::parse_error &e) {
    throw WeightError(
        fmt::format("{}: not JSON at byte {}, expected a list of lists of expert ids", path, e.byte));
  }
  if (!lists.is_array() || lists.empty())
    throw WeightError(fmt::format("{}: got {}, expected a list of lists of expert ids", path,
                                  lists.is_array() ? "an empty list" : lists.type_name()));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto &list = lists[i];
    if (!list.is_array() || static_cast<int64_t>(list.size()) != top_k)
      throw WeightError(fmt::format("{}: list {}: got {}, expected a list of {} expert ids", path, i,
                                    list.is_array() ? fmt::format("{} ids", list.size()) : list.type_name(),
                                    top_k));
    for (size_t j = 0; j < list.size(); ++j) {
      if (!list[j].is_number_integer() || list[j] < 0 || list[j] >= experts)
        throw WeightError(fmt::format("{}: list {}, place {}: got {}, expected an expert id 0 to {}", path, i,
                                      j, list[j].dump(), experts - 1));
      const auto id = list[j].get<int32_t>();
      if (std::find(ids.end() - static_cast<int64_t>(j), ids.end(), id) != ids.end())
        throw WeightError(
            fmt::format("{}: list {}: got expert {} twice, expected distinct ids", path, i, id));
      ids.push_back(id);
    }
  }
  return ids;
}

// Gumbel noise, and with it a log-probability's place in the draw; Σ over words of a token's own key.
double gumbel(uint32_t word) { return -std::log(-std::log((static_cast<double>(word) + 0.5) * 0x1p-32)); }

} // namespace

std::vector<double> expert_probabilities(const plan::Routing &routing, int64_t experts) {
  std::vector<double> p = log_probabilities(routing, experts);
  for (double &value : p)
    value = std::exp(value);
  return p;
}

ExpertDraw prepare_routing(const plan::Routing &routing, int64_t experts, int64_t top_k,
                           const std::string &base_dir) {
  if (top_k < 1 || top_k > experts)
    throw WeightError(
        fmt::format("routing '{}': got top_k {}, expected 1 to {}", routing.kind, top_k, experts));
  ExpertDraw draw;
  draw.kind = routing.kind;
  draw.experts = experts;
  draw.top_k = top_k;
  draw.key = tensor_key(routing.seed, "routing");
  if (routing.kind == "trace") {
    const bool relative = !base_dir.empty() && !routing.file.starts_with('/');
    draw.trace = read_trace(relative ? base_dir + "/" + routing.file : routing.file, experts, top_k);
    return draw;
  }
  draw.log_p = log_probabilities(routing, experts);
  if (routing.kind == "hot")
    draw.hot = routing.expert;
  return draw;
}

void draw_experts(const ExpertDraw &draw, int64_t token_number, int64_t position, std::span<int32_t> chosen) {
  if (static_cast<int64_t>(chosen.size()) != draw.top_k || token_number < 0 || position < 0)
    throw WeightError(fmt::format("routing '{}': got {} choices for token {} at position {}, expected {}",
                                  draw.kind, chosen.size(), token_number, position, draw.top_k));
  if (draw.kind == "trace") {
    const auto lists = static_cast<int64_t>(draw.trace.size()) / draw.top_k;
    const int64_t list = (token_number % lists + position % lists) % lists;
    std::copy_n(draw.trace.begin() + list * draw.top_k, draw.top_k, chosen.begin());
    return;
  }
  // The counter holds the token, the position and the block of four experts: no two draws share one.
  std::vector<std::pair<double, int32_t>> keys(static_cast<size_t>(draw.experts));
  for (int64_t e = 0; e < draw.experts; e += 4) {
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(e / 4), static_cast<uint32_t>(position),
                    static_cast<uint32_t>(token_number), static_cast<uint32_t>(token_number >> 32)},
                   draw.key);
    for (int64_t i = e; i < std::min(e + 4, draw.experts); ++i) {
      const bool first = i == draw.hot;
      keys[i] = {first ? INFINITY : draw.log_p[i] + gumbel(words[static_cast<size_t>(i - e)]),
                 static_cast<int32_t>(i)};
    }
  }
  std::partial_sort(keys.begin(), keys.begin() + draw.top_k, keys.end(), [](const auto &a, const auto &b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  });
  for (int64_t i = 0; i < draw.top_k; ++i)
    chosen[i] = keys[i].second;
}

} // namespace paratope
