// SPDX-License-Identifier: Apache-2.0
//
// `explain`: everything that follows from a topology file, in the order one would ask for it.
#include "fmt/format.h"
#include "fmt/ranges.h"

#include "dsl/diagnostic/render.h"
#include "dsl/topo/bridge.h"
#include "tools/paratope/experts.h"
#include "tools/paratope/groups.h"
#include "tools/paratope/ledger.h"
#include "tools/paratope/memory.h"
#include "tools/paratope/session.h"
#include "tools/paratope/table.h"
#include "tools/paratope/work.h"

namespace paratope {

namespace {

std::string place_text(const SourceRange &where) {
  return where.known()        ? fmt::format("{}:{}", where.file, where.line)
         : where.file.empty() ? "default"
                              : where.file;
}

std::string mesh_text(Loaded &loaded) {
  topo::MeshOp mesh = *loaded.module().getOps<topo::MeshOp>().begin();
  topo::SizesOp sizes = *loaded.module().getOps<topo::SizesOp>().begin();
  Table table({"<axis", "size", "<from"});
  for (auto [name, size] : llvm::zip(mesh.getAxisNames(), mesh.getAxisSizes())) {
    std::string axis = mlir::cast<mlir::StringAttr>(name).str();
    table.row({axis, fmt::format("{}", mlir::cast<mlir::IntegerAttr>(size).getInt()),
               place_text(topo::to_range(topo::location_of(mesh, axis)))});
  }
  std::string text = fmt::format("mesh: {} ranks, layout {}\n", loaded.mesh.world, *loaded.spec.layout_name);
  text += table.text();
  int64_t ranks = loaded.mesh.world / static_cast<int64_t>(sizes.getEngines()); // of an engine
  int64_t serving = sizes.getServing() ? static_cast<int64_t>(*sizes.getServing()) : loaded.mesh.world;
  if (serving < loaded.mesh.world)
    text += fmt::format("  ranks {} to {} hold Engram rows only, and answer fetches\n", serving,
                        loaded.mesh.world - 1);
  text +=
      fmt::format("  {} engine{} of {} rank{}, each with its own batch of at most {} tokens; {} replica{}\n",
                  serving / ranks, serving == ranks ? "" : "s", ranks, ranks == 1 ? "" : "s",
                  static_cast<int64_t>(sizes.getTokens()), static_cast<int64_t>(sizes.getReplicas()),
                  sizes.getReplicas() == 1 ? "" : "s");
  return text;
}

// Where ranks sit: node by node, with each rank's number in its groups where there are few enough to read.
std::string seats_text(Loaded &loaded) {
  const MachineSpec &machine = loaded.spec.machine;
  int64_t gpus = std::max<int64_t>(1, *machine.gpus_per_node), nodes = (loaded.mesh.world + gpus - 1) / gpus;
  std::string text = fmt::format(
      "machine {}: {} nodes of {} × {}; {} {:g} GB/s inside a domain of {} GPUs, {} {:g} GB/s between\n",
      machine.name->empty() ? *machine.use : *machine.name, *machine.nodes, gpus, *machine.gpu_name,
      *machine.scale_up.name, *machine.scale_up.gb_per_s, *machine.scale_up_gpus, *machine.scale_out.name,
      *machine.scale_out.gb_per_s);
  int64_t offset = *loaded.spec.mesh.rank_offset; // of this mesh in its job
  for (int64_t node = 0; node < std::min<int64_t>(nodes, 16); ++node)
    text += fmt::format("  node {:3}: ranks {} – {}\n", node, offset + node * gpus,
                        offset + std::min(loaded.mesh.world, (node + 1) * gpus) - 1);
  if (nodes > 16)
    text += fmt::format("  … {} nodes in all\n", nodes);
  return text;
}

std::string decisions_text(const Diagnostics &diagnostics) {
  std::string text;
  for (const Diagnostic &found : diagnostics.all())
    if (found.severity == Severity::remark && found.code != "fusion-not-taken" && found.code != "fused")
      text += fmt::format("  {}: {} [{}]\n", place_text(found.where), found.message, found.code);
  return text.empty() ? "" : "decisions\n" + text;
}

nlohmann::ordered_json to_json_document(Loaded &loaded, const MemoryBill &bill) {
  nlohmann::ordered_json document = groups_json(loaded, {});
  document["experts"] = experts_json(loaded);
  document["memory"] = to_json(bill);
  StepWork work = work_of(loaded.module(), loaded.spec, loaded.mesh);
  document["ledger"] = to_json(ledger_of(loaded.module(), loaded.spec, loaded.mesh), work);
  document["kernels"] = fusions_json(work, loaded);
  document["decisions"] = to_json(loaded.diagnostics);
  return document;
}

int explain(const SourceOptions &options) {
  std::unique_ptr<Loaded> loaded = load(options, "");
  if (!loaded)
    return exit_wrong_input;
  topo::DiagnosticBridge bridge(loaded->compilation.context.get(), loaded->diagnostics);
  auto bill = memory_bill(loaded->module(), loaded->spec, loaded->mesh);
  if (mlir::failed(bill))
    return exit_wrong_input;
  if (options.json) {
    print(to_json_document(*loaded, *bill));
    return exit_good;
  }
  StepWork work = work_of(loaded->module(), loaded->spec, loaded->mesh);
  std::string text =
      fmt::format("{}{}\nmodel {}, {} step\n\n", loaded->title,
                  loaded->spec.summary->empty() ? "" : ": " + *loaded->spec.summary,
                  loaded->spec.model.name->empty() ? *loaded->spec.model.use : *loaded->spec.model.name,
                  *loaded->spec.workload.phase);
  text += mesh_text(*loaded) + "\n" + seats_text(*loaded) + "\ngroups\n" + groups_text(*loaded, {}) + "\n";
  text += "experts: " + experts_text(*loaded, /*slots=*/false) + "\n" + to_text(*bill) +
          "\nledger of one step\n" + to_text(ledger_of(loaded->module(), loaded->spec, loaded->mesh), work) +
          "\nkernels of one step\n" + fusions_text(work, *loaded) + "\n" +
          decisions_text(loaded->diagnostics);
  print(text);
  return exit_good;
}

} // namespace

void register_explain(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<SourceOptions>();
  CLI::App *command =
      app.add_subcommand("explain", "mesh, seats, groups, memory, ledger, and the reason of each decision");
  add_source(*command, *options);
  command->footer("Example:\n  paratope explain topologies/deepinfer/decode-ep64.toml");
  command->callback([options, &exit_code] { exit_code = explain(*options); });
}

} // namespace paratope
