// SPDX-License-Identifier: Apache-2.0
//
// What there is to name in a file (layouts, models, machines), the JSON Schema of the language, and a file to
// start from.
#include <cerrno>
#include <cstring>
#include <fstream>

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "dsl/diagnostic/nearest.h"
#include "dsl/toml/read.h"
#include "dsl/toml/schema.h"
#include "tools/paratope/session.h"
#include "tools/paratope/table.h"

namespace paratope {

namespace {

using List = std::vector<Listed> (*)(const std::vector<std::string> &);

void add_list(CLI::App &app, int &exit_code, const char *name, const char *what, const char *example,
              List list) {
  auto json = std::make_shared<bool>(false);
  CLI::App *command = app.add_subcommand(name, what);
  command->add_flag("--json", *json, "one JSON document on stdout and nothing else");
  command->footer(example);
  command->callback([json, list, &exit_code] {
    std::vector<Listed> found = list(search_path());
    exit_code = exit_good;
    if (*json) {
      nlohmann::ordered_json items = nlohmann::ordered_json::array();
      for (const Listed &item : found)
        items.push_back({{"name", item.name}, {"summary", item.summary}, {"path", item.path}});
      return print(items);
    }
    Table table({"<name", "<summary"});
    for (const Listed &item : found)
      table.row({item.name, item.summary});
    print(table.text(""));
  });
}

const std::map<std::string, std::string> &templates() {
  static const std::map<std::string, std::string> all = {{"decode", R"(topology = 1
name     = "my-decode"
summary  = "DP attention and Wide-EP decode on 2 nodes of 8 GPUs"
layout   = "deepinfer"            # paratope layouts

[machine]
use   = "h200-nvl8-ib400"         # paratope machines
nodes = 2

[model]
use = "deepseek-v4.1-flash"       # paratope models

[axes]
dp = 16
ep = 16

[moe]
min_redundant_experts = 1
dispatch_dtype        = "fp8"
expert_dtype          = "fp4"

[workload]
phase           = "decode"
tokens_per_rank = 32
context         = 4096
)"},
                                                         {"tensor-parallel", R"(topology = 1
name     = "my-baseline"
summary  = "the baseline: attention in tensor-parallel teams of 8, experts over 16 ranks"
layout   = "tensor-parallel"      # paratope layouts

[machine]
use   = "h200-nvl8-ib400"         # paratope machines
nodes = 2

[model]
use = "deepseek-v4.1-flash"       # paratope models

[axes]
dp = 2
tp = 8
ep = 16

[moe]
dispatch_dtype = "fp8"
expert_dtype   = "fp4"
tp_dispatch    = "split"

[workload]
phase           = "decode"
tokens_per_rank = 32
context         = 4096
)"}};
  return all;
}

int new_file(const std::string &name, const std::string &output) {
  std::vector<std::string> names;
  for (const auto &[key, text] : templates())
    names.push_back(key);
  auto found = templates().find(name);
  if (found == templates().end()) {
    auto near = nearest(name, names);
    fmt::print(stderr, "error: there is no template '{}', expected {}\n{}", name, fmt::join(names, " | "),
               near ? "fix: paratope new " + *near + "\n" : "");
    return exit_wrong_input;
  }
  if (output.empty()) {
    print(found->second);
    return exit_good;
  }
  if (std::ifstream(output)) {
    fmt::print(stderr, "error: '{}' is there already; write to another file\n", output);
    return exit_wrong_input;
  }
  std::ofstream file(output);
  file << found->second;
  file.close();
  if (!file) {
    fmt::print(stderr, "error: cannot write '{}': {}\n", output, std::strerror(errno));
    return exit_wrong_input;
  }
  return exit_good;
}

} // namespace

void register_lists(CLI::App &app, int &exit_code) {
  add_list(app, exit_code, "layouts", "rules that number and group ranks", "Example:\n  paratope layouts",
           list_layouts);
  add_list(app, exit_code, "models", "models whose shapes are known", "Example:\n  paratope models --json",
           list_models);
  add_list(app, exit_code, "machines", "machines: nodes, GPUs, links", "Example:\n  paratope machines",
           list_machines);

  auto kind = std::make_shared<std::string>("topology");
  CLI::App *schema = app.add_subcommand("schema", "the language as JSON Schema, for completion in editors");
  schema->add_option("KIND", *kind, "of which file")
      ->check(CLI::IsMember({"topology", "layout", "model", "machine"}))
      ->capture_default_str();
  schema->footer("Example:\n  paratope schema > topology.schema.json");
  schema->callback([kind, &exit_code] {
    FileKind which = *kind == "layout"    ? FileKind::layout
                     : *kind == "model"   ? FileKind::model
                     : *kind == "machine" ? FileKind::machine
                                          : FileKind::topology;
    print(json_schema(which).dump(2) + "\n");
    exit_code = exit_good;
  });

  auto name = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  CLI::App *fresh = app.add_subcommand("new", "a topology file to start from");
  fresh->add_option("TEMPLATE", *name, "decode | tensor-parallel")->required();
  fresh->add_option("-o,--output", *output, "a file that is not there yet; stdout when absent");
  fresh->footer("Example:\n  paratope new decode -o mine.toml");
  fresh->callback([name, output, &exit_code] { exit_code = new_file(*name, *output); });
}

} // namespace paratope
