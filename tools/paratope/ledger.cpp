// SPDX-License-Identifier: Apache-2.0
//
// `ledger`: the collectives of one step; with --vs, of two topologies side by side.
#include "tools/paratope/ledger.h"

#include "fmt/format.h"

#include "tools/paratope/session.h"
#include "tools/paratope/table.h"
#include "tools/paratope/work.h"

namespace paratope {

namespace {

nlohmann::ordered_json entries_json(const std::vector<LedgerLine> &lines) {
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (const LedgerLine &line : lines)
    entries.push_back({{"op", line.op},
                       {"group", line.group},
                       {"ranks", line.ranks},
                       {"bytes_per_rank", line.bytes_per_rank},
                       {"times", line.times},
                       {"blocking", line.blocking},
                       {"where", line.where},
                       {"category", line.category},
                       {"predicted_us", line.predicted_us},
                       {"price", line.price}});
  return entries;
}

void add_rows(Table &table, const std::vector<LedgerLine> &lines, const char *waits) {
  for (const LedgerLine &line : lines)
    table.row({line.where, line.op, line.group, fmt::format("{}", line.ranks),
               bytes_text(line.bytes_per_rank), fmt::format("{}", line.times),
               waits           ? waits
               : line.blocking ? "yes"
                               : "overlapped",
               us_text(line.predicted_us)});
}

} // namespace

nlohmann::ordered_json to_json(const Ledger &ledger, const StepWork &work) {
  return {{"entries", entries_json(ledger.lines)},
          {"load", entries_json(ledger.load)},
          {"totals",
           {{"per_layer_dense", ledger.per_layer_dense},
            {"exchange", ledger.exchange},
            {"control", ledger.control},
            {"fetch", ledger.fetch},
            {"context", ledger.context},
            {"count", ledger.count},
            {"bytes_per_rank", ledger.bytes_per_rank}}},
          {"work", flops_json(work)}};
}

std::string to_text(const Ledger &ledger, const StepWork &work) {
  Table table({"<where", "<op", "<group", "ranks", "bytes a rank", "times", "<waits", "price, each"});
  add_rows(table, ledger.lines, nullptr);
  std::string text = table.text();
  std::string context = ledger.context > 0 ? fmt::format(", context {}", ledger.context) : "";
  text += fmt::format(
      "  total: {} collectives: dense path {}, exchange {}, control {}, fetch {}{}; a rank sends {}\n",
      ledger.count, ledger.per_layer_dense, ledger.exchange, ledger.control, ledger.fetch, context,
      bytes_text(ledger.bytes_per_rank));
  if (!ledger.load.empty()) {
    Table once(
        {"<once, at load", "<op", "<group", "ranks", "bytes a rank", "times", "<waits", "price, each"});
    add_rows(once, ledger.load, "yes");
    text += once.text();
  }
  return text + flops_text(work);
}

namespace {

struct Arguments {
  SourceOptions source;
  std::string versus;
};

std::string side_by_side(const Loaded &left, const Ledger &a, const StepWork &work_a, const Loaded &right,
                         const Ledger &b, const StepWork &work_b) {
  Table table({"<one step", left.title, right.title});
  auto row = [&](const char *what, int64_t x, int64_t y) {
    table.row({what, fmt::format("{}", x), fmt::format("{}", y)});
  };
  table.row({"layout", *left.spec.layout_name, *right.spec.layout_name});
  row("ranks", left.mesh.world, right.mesh.world);
  row("dense path (attention, MLP)", a.per_layer_dense, b.per_layer_dense);
  row("MoE exchange", a.exchange, b.exchange);
  row("Engram fetch", a.fetch, b.fetch);
  if (a.context + b.context > 0)
    row("context (keys, exit)", a.context, b.context);
  row("control (liveness)", a.control, b.control);
  row("collectives", a.count, b.count);
  table.row({"bytes a rank sends", bytes_text(a.bytes_per_rank), bytes_text(b.bytes_per_rank)});
  table.row({"GFLOP of a rank", fmt::format("{:.1f}", work_a.total_flops() / 1e9),
             fmt::format("{:.1f}", work_b.total_flops() / 1e9)});
  return table.text();
}

// A choice that multiplies the exchange's bytes belongs beside its numbers.
std::string dispatches(const Loaded &loaded) {
  int64_t tp = loaded.mesh.size_of("tp");
  if (tp == 1 || *loaded.spec.moe.tp_dispatch != "replicated" || *loaded.spec.moe.exchange == "all-gather")
    return "";
  return fmt::format("  tp_dispatch is replicated: each of {} tp ranks sends every token of its team, {} "
                     "times the bytes of \"split\"\n",
                     tp, tp);
}

std::string headline(const Loaded &loaded) {
  std::string sizes;
  for (const auto &[name, group] : loaded.mesh.groups)
    if (group.size > 1 && name != "world" && name.rfind("cpu_", 0) != 0 && name != "ep_in_dp")
      sizes += fmt::format(" {} {}", name, group.size);
  return fmt::format("{}: one {} step of {} layers on {} ranks ({}){}\n", loaded.title,
                     *loaded.spec.workload.phase, *loaded.spec.model.layers, loaded.mesh.world,
                     *loaded.spec.layout_name, sizes.empty() ? "" : ":" + sizes) +
         dispatches(loaded);
}

int ledger(const Arguments &arguments) {
  std::unique_ptr<Loaded> loaded = load(arguments.source, "order");
  if (!loaded)
    return exit_wrong_input;
  Ledger own = ledger_of(loaded->module(), loaded->spec, loaded->mesh);
  StepWork work = work_of(loaded->module(), loaded->spec, loaded->mesh);
  if (arguments.versus.empty()) {
    if (arguments.source.json)
      print(to_json(own, work));
    else
      print(
          headline(*loaded) + to_text(own, work) +
          "  prices: latency and bandwidth of the link the group lies on, as the machine file gives them\n");
    return exit_good;
  }
  SourceOptions other = arguments.source;
  other.file = arguments.versus;
  std::unique_ptr<Loaded> versus = load(other, "order");
  if (!versus)
    return exit_wrong_input;
  Ledger theirs = ledger_of(versus->module(), versus->spec, versus->mesh);
  StepWork their_work = work_of(versus->module(), versus->spec, versus->mesh);
  if (arguments.source.json) {
    nlohmann::ordered_json document = to_json(own, work);
    document["vs"] = to_json(theirs, their_work);
    print(document);
    return exit_good;
  }
  print(headline(*loaded) + to_text(own, work) + "\n" + headline(*versus) + to_text(theirs, their_work) +
        "\n" + side_by_side(*loaded, own, work, *versus, theirs, their_work));
  return exit_good;
}

} // namespace

void register_ledger(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command = app.add_subcommand("ledger", "the collectives of one step");
  add_source(*command, arguments->source);
  command->add_option("--vs", arguments->versus, "a second topology, side by side");
  command->footer("Example:\n  paratope ledger topologies/deepinfer/decode-ep64.toml --vs "
                  "topologies/deepinfer/decode-tp.toml");
  command->callback([arguments, &exit_code] { exit_code = ledger(*arguments); });
}

} // namespace paratope
