// SPDX-License-Identifier: Apache-2.0
#include "compiler/step/o_exchange.h"

namespace paratope::step {

OExchange choose_o_exchange(const TopologySpec &spec, const MeshView &mesh) {
  const AttentionModel &attention = spec.model.attention;
  constexpr int64_t bf16 = 2;
  int64_t p = mesh.size_of("og");
  OExchange choice;
  choice.gather_bytes = *attention.o_groups * *attention.o_lora * bf16 * (p - 1) / p;
  choice.sum_bytes = *spec.model.hidden * bf16 * (p - 1);
  choice.name = *spec.attention.o_exchange;
  choice.chosen = choice.name == "auto";
  if (choice.chosen)
    choice.name = choice.sum_bytes < choice.gather_bytes ? "reduce-outputs" : "gather-inputs";
  return choice;
}

} // namespace paratope::step
