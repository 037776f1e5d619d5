// SPDX-License-Identifier: Apache-2.0
//
// `memory`: what one rank holds, item by item.
#include "tools/paratope/memory.h"

#include "fmt/format.h"

#include "dsl/diagnostic/render.h"
#include "dsl/topo/bridge.h"
#include "tools/paratope/session.h"
#include "tools/paratope/table.h"

namespace paratope {

nlohmann::ordered_json to_json(const MemoryBill &bill) {
  nlohmann::ordered_json items = nlohmann::ordered_json::object();
  for (const auto &[item, bytes] : bill.rank_bytes)
    items[item] = bytes;
  return {{"rank_bytes", items},
          {"total", bill.total},
          {"capacity", bill.capacity},
          {"fits", bill.fits},
          {"largest", {{"tokens_per_rank", bill.largest_tokens_per_rank}, {"context", bill.largest_context}}},
          {"notes", bill.notes}};
}

std::string to_text(const MemoryBill &bill) {
  Table table({"<item", "bytes", ""});
  for (const auto &[item, bytes] : bill.rank_bytes)
    if (bytes > 0)
      table.row({item, fmt::format("{}", bytes), bytes_text(bytes)});
  table.row({"total", fmt::format("{}", bill.total), bytes_text(bill.total)});
  std::string text = "one rank holds\n" + table.text();
  text += fmt::format(
      "  {} of {}: {:.0f} % used\n", bill.fits ? "fits" : "does not fit: one GPU", bytes_text(bill.capacity),
      bill.capacity > 0 ? 100.0 * static_cast<double>(bill.total) / static_cast<double>(bill.capacity) : 0);
  if (bill.largest_tokens_per_rank > 0 && !bill.prefill)
    text += fmt::format("  the largest that fits, one at a time: tokens_per_rank {}, context {}\n",
                        bill.largest_tokens_per_rank, bill.largest_context);
  for (const std::string &note : bill.notes)
    text += "  note: " + note + "\n";
  return text;
}

namespace {

int memory(const SourceOptions &options) {
  // The bill is drawn up before the gate, so that a topology that does not fit is itemised all the same.
  std::unique_ptr<Loaded> loaded = load(options, "order");
  if (!loaded)
    return exit_wrong_input;
  topo::DiagnosticBridge bridge(loaded->compilation.context.get(), loaded->diagnostics);
  auto bill = memory_bill(loaded->module(), loaded->spec, loaded->mesh);
  if (mlir::failed(bill)) {
    show(loaded->diagnostics);
    return exit_wrong_input;
  }
  if (options.json)
    print(to_json(*bill));
  else
    print(to_text(*bill));
  return bill->fits ? exit_good : exit_wrong_input;
}

} // namespace

void register_memory(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<SourceOptions>();
  CLI::App *command = app.add_subcommand("memory", "what one rank holds, itemised");
  add_source(*command, *options);
  command->footer(
      "Example:\n  paratope memory topologies/deepinfer/decode-ep64.toml --set workload.context=131072\n\n"
      "Exit code 1 when it does not fit.");
  command->callback([options, &exit_code] { exit_code = memory(*options); });
}

} // namespace paratope
