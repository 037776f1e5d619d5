// SPDX-License-Identifier: Apache-2.0
//
// Routings other than the gate's own: which experts a token chooses is drawn from a distribution, as a
// function of (routing seed, global token number, position) alone, so it is the same in every topology and
// every layer.
//
//   uniform    every expert equally likely
//   zipf       p_e ∝ (place of e + 1)^−s, places a permutation drawn from the seed
//   dirichlet  p drawn once from a symmetric Dirichlet(alpha): small alpha, few hot experts
//   hot        the first choice is always `expert`, the others uniform
//   trace      from a JSON file, a list of lists of top_k expert ids: token t at position p takes list
//              (t + p) mod their number
//
// Drawing top_k distinct experts, each in proportion to p among those left, is taking the top_k largest of
// log p_e + Gumbel noise (the Gumbel-max trick without replacement).
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/weights/random_tensor.h"

#include <span>
#include <vector>

namespace paratope {

struct ExpertDraw {
  std::string kind; // as in plan::Routing
  int64_t experts = 0, top_k = 0;
  int64_t hot = -1;           // the first choice, when there is one
  std::vector<double> log_p;  // [experts]; of the drawn kinds
  std::vector<int32_t> trace; // [lists·top_k]
  PhiloxKey key{};
};

// Probabilities p_e (Σ = 1) of uniform, zipf, dirichlet and hot (the others' share: uniform).
std::vector<double> expert_probabilities(const plan::Routing &routing, int64_t experts);

// Checks the routing and reads its trace (base_dir is put before a relative file). Throws WeightError: "gate"
// needs no draw and is refused; top_k > experts; s, alpha or expert out of range; a trace that is missing, is
// not JSON (with the byte where it stops), is empty, or whose list i has a wrong length, an id out of range
// or twice.
ExpertDraw prepare_routing(const plan::Routing &routing, int64_t experts, int64_t top_k,
                           const std::string &base_dir = "");

// chosen [top_k] distinct experts, in the order drawn.
void draw_experts(const ExpertDraw &draw, int64_t token_number, int64_t position, std::span<int32_t> chosen);

} // namespace paratope
