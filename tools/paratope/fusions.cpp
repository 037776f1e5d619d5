// SPDX-License-Identifier: Apache-2.0
//
// `fusions`: what there is to fuse, what each fusion needs and saves; with a topology, what its step makes of
// them.
#include "fmt/format.h"

#include "compiler/fuse/catalog.h"
#include "dsl/diagnostic/render.h"
#include "tools/paratope/table.h"
#include "tools/paratope/work.h"

namespace paratope {

nlohmann::ordered_json flops_json(const StepWork &work) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (const auto &[part, count] : work.flops)
    parts[part] = count;
  return {{"flops", parts}, {"total_flops", work.total_flops()}};
}

std::string flops_text(const StepWork &work) {
  double total = work.total_flops();
  Table table({"<operations of a rank", "GFLOP", "%"});
  auto row = [&](const std::string &part, double count) {
    table.row({part, fmt::format("{:.3f}", count / 1e9),
               fmt::format("{:.1f}", total > 0 ? 100 * count / total : 0.0)});
  };
  for (const auto &[part, count] : work.flops)
    row(part, count);
  row("total", total);
  return table.text();
}

namespace {

bool about_fusion(const Diagnostic &found) {
  return found.code == "fusion-not-taken" || found.code == "unused-fusion";
}

} // namespace

nlohmann::ordered_json fusions_json(const StepWork &work, const Loaded &loaded) {
  nlohmann::ordered_json savings = nlohmann::ordered_json::array(), rest = nlohmann::ordered_json::array();
  for (const FusionSaving &saving : work.savings)
    savings.push_back({{"name", saving.fusion},
                       {"kernels", saving.kernels},
                       {"launches", saving.launches},
                       {"bytes", saving.bytes}});
  for (const Diagnostic &found : loaded.diagnostics.all())
    if (about_fusion(found))
      rest.push_back(found.message);
  return {{"launches", {{"before", work.launches_unfused}, {"after", work.launches}}},
          {"bytes", {{"before", work.bytes_unfused}, {"after", work.bytes}}},
          {"fusions", savings},
          {"not_taken", rest}};
}

std::string fusions_text(const StepWork &work, const Loaded &loaded) {
  Table table({"<kernels of a step", "kernels", "launches fewer", "bytes fewer"});
  for (const FusionSaving &saving : work.savings)
    table.row({saving.fusion, fmt::format("{}", saving.kernels), fmt::format("{}", saving.launches),
               bytes_text(saving.bytes)});
  std::string text = work.savings.empty() ? "" : table.text();
  text += fmt::format(
      "  a rank launches {} kernels, {} unfused; reads and writes {} of activations, {} unfused\n",
      work.launches, work.launches_unfused, bytes_text(work.bytes), bytes_text(work.bytes_unfused));
  for (const Diagnostic &found : loaded.diagnostics.all())
    if (about_fusion(found))
      text += "  note: " + found.message + "\n";
  return text;
}

namespace {

// Lines of at most `width` columns, all but the first behind `indent` spaces.
std::string wrapped(const std::string &text, size_t indent, size_t width) {
  std::string lines;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(' ', at), text.size());
    if (column > indent && column + end - at > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return lines;
}

int catalog(bool json) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string text;
  for (const Fusion &fusion : fusions()) {
    list.push_back(
        {{"name", fusion.name}, {"parts", fusion.parts}, {"needs", fusion.needs}, {"saves", fusion.saves}});
    text +=
        fmt::format("{}\n  of     {}\n  needs  {}\n  saves  {}\n", fusion.name, wrapped(fusion.parts, 9, 110),
                    wrapped(fusion.needs, 9, 110), wrapped(fusion.saves, 9, 110));
  }
  if (json)
    print(nlohmann::ordered_json{{"fusions", list}});
  else
    print(text +
          "in a file: [schedule] fuse = \"auto\", or a list of these names; [] is the unfused baseline\n");
  return exit_good;
}

int fusions_of(const SourceOptions &options) {
  if (options.file.empty())
    return catalog(options.json);
  std::unique_ptr<Loaded> loaded = load(options, "order");
  if (!loaded)
    return exit_wrong_input;
  StepWork work = work_of(loaded->module(), loaded->spec, loaded->mesh);
  if (options.json)
    print(fusions_json(work, *loaded));
  else
    print(fusions_text(work, *loaded));
  return exit_good;
}

} // namespace

void register_fusions(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<SourceOptions>();
  CLI::App *command = app.add_subcommand(
      "fusions", "what can be one kernel, what it needs and saves; with FILE, in its step");
  add_source(*command, *options, /*file_required=*/false);
  command->footer(
      "Example:\n  paratope fusions\n  paratope fusions topologies/deepinfer/decode-ep8.toml --set "
      "schedule.fuse='[\"qkv\"]'");
  command->callback([options, &exit_code] { exit_code = fusions_of(*options); });
}

} // namespace paratope
