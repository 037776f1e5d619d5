// SPDX-License-Identifier: Apache-2.0
//
// `groups`: every group in closed form; the members of each where they are few, or asked for.
#include "tools/paratope/groups.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "dsl/diagnostic/nearest.h"
#include "tools/paratope/table.h"

namespace paratope {

namespace {

// The communicator a group uses, by the group that names it; empty when it has its own.
std::string shares(Loaded &loaded, const std::string &group) {
  for (topo::CommOp comm : loaded.module().getOps<topo::CommOp>())
    for (mlir::Attribute role : comm.getRoles())
      if (mlir::cast<mlir::StringAttr>(role).getValue() == group && comm.getGroup() != group)
        return comm.getGroup().str();
  return "";
}

std::string pattern_of(Loaded &loaded, const std::string &name) {
  for (topo::GroupOp group : loaded.module().getOps<topo::GroupOp>())
    if (group.getSymName() == name) {
      std::vector<std::string> patterns;
      for (mlir::Attribute pattern : group.getPatterns())
        patterns.push_back(mlir::cast<mlir::StringAttr>(pattern).str());
      return fmt::format("{}", fmt::join(patterns, "; "));
    }
  return "";
}

bool wanted(const GroupsView &view, const std::string &name) {
  return view.only.empty() || view.only == name;
}

// Members are listed where they are few, or asked for.
bool lists_members(const Loaded &loaded, const GroupLayout &group, const GroupsView &view) {
  return view.members || loaded.mesh.world <= max_table_ranks || (view.rank && group.size <= max_table_ranks);
}

std::vector<std::vector<int64_t>> members_of(const GroupLayout &group, const GroupsView &view) {
  std::vector<std::vector<int64_t>> all;
  if (view.rank) {
    int64_t color = color_of(group, *view.rank);
    if (color >= 0)
      all.push_back(members(group, color));
    return all;
  }
  for (int64_t i = 0; i < group.count; ++i)
    all.push_back(members(group, i));
  return all;
}

std::string short_list(const std::vector<int64_t> &ranks) {
  constexpr size_t most = 16;
  auto shown = ranks.begin() + static_cast<int64_t>(std::min(ranks.size(), most));
  return fmt::format("[{}{}]", fmt::join(ranks.begin(), shown, " "),
                     ranks.size() > most ? fmt::format(" … {}", ranks.back()) : "");
}

} // namespace

nlohmann::ordered_json groups_json(Loaded &loaded, const GroupsView &view) {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::object(), groups = nlohmann::ordered_json::object();
  topo::MeshOp mesh = *loaded.module().getOps<topo::MeshOp>().begin();
  for (auto [name, size] : llvm::zip(mesh.getAxisNames(), mesh.getAxisSizes()))
    sizes[mlir::cast<mlir::StringAttr>(name).str()] = mlir::cast<mlir::IntegerAttr>(size).getInt();
  for (const auto &[name, group] : loaded.mesh.groups) {
    if (!wanted(view, name))
      continue;
    std::string shared = shares(loaded, name);
    nlohmann::ordered_json entry = {
        {"pattern", pattern_of(loaded, name)},
        {"size", group.size},
        {"count", group.count},
        {"color", to_string(group.color)},
        {"key", to_string(group.key)},
        {"shares", shared.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(shared)}};
    if (lists_members(loaded, group, view))
      entry["members"] = members_of(group, view);
    groups[name] = std::move(entry);
  }
  return {{"world", loaded.mesh.world}, {"sizes", sizes}, {"groups", groups}};
}

std::string groups_text(Loaded &loaded, const GroupsView &view) {
  Table table({"<group", "groups", "of", "<color of rank r", "<key of rank r", "<communicator", "<first"});
  for (const auto &[name, group] : loaded.mesh.groups) {
    if (!wanted(view, name))
      continue;
    std::string shared = shares(loaded, name);
    int64_t color = view.rank ? color_of(group, *view.rank) : 0;
    std::string first = color < 0                       ? "none"
                        : group.size <= max_table_ranks ? short_list(members(group, color))
                                                        : fmt::format("{} ranks", group.size);
    table.row({name, fmt::format("{}", group.count), fmt::format("{}", group.size), to_string(group.color),
               to_string(group.key),
               !shared.empty()  ? "shares " + shared
               : group.size > 1 ? "own"
                                : "none",
               first});
  }
  return table.text();
}

namespace {

int groups(const SourceOptions &options, const GroupsView &view) {
  std::unique_ptr<Loaded> loaded = load(options, "group");
  if (!loaded)
    return exit_wrong_input;
  if (!view.only.empty() && !loaded->mesh.groups.count(view.only)) {
    std::vector<std::string> names;
    for (const auto &[name, group] : loaded->mesh.groups)
      names.push_back(name);
    auto near = nearest(view.only, names);
    return refuse(options.json,
                  fmt::format("there is no group '{}', expected {}", view.only, fmt::join(names, " | ")),
                  near ? "--group " + *near : "");
  }
  int64_t first = *loaded->spec.mesh.rank_offset;
  if (view.rank && (*view.rank < first || *view.rank - first >= loaded->mesh.world)) {
    return refuse(options.json, fmt::format("got rank {}, expected {} to {}", *view.rank, first,
                                            first + loaded->mesh.world - 1));
  }
  if (options.json)
    print(groups_json(*loaded, view));
  else {
    std::string text =
        fmt::format("{}: {} ranks{}\n", *loaded->spec.name, loaded->mesh.world,
                    first ? fmt::format(" from {} on; r below counts from there", first) : "") +
        groups_text(*loaded, view);
    if (!view.only.empty() && lists_members(*loaded, loaded->mesh.groups.at(view.only), view)) {
      int64_t color = 0;
      for (const std::vector<int64_t> &ranks : members_of(loaded->mesh.groups.at(view.only), view))
        text += view.rank ? fmt::format("  [{}]\n", fmt::join(ranks, " "))
                          : fmt::format("  {:4}: [{}]\n", color++, fmt::join(ranks, " "));
    }
    print(text);
  }
  return exit_good;
}

} // namespace

void register_groups(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<SourceOptions>();
  auto view = std::make_shared<GroupsView>();
  CLI::App *command = app.add_subcommand("groups", "who communicates with whom");
  add_source(*command, *options);
  command->add_option("--group", view->only, "one group, with all its members");
  command->add_option("--rank", view->rank, "only the groups of this rank");
  command->add_flag("--members", view->members, "list members above 65536 ranks as well");
  command->footer("Example:\n  paratope groups topologies/deepinfer/decode-ep64.toml --group ep --rank 5");
  command->callback([options, view, &exit_code] { exit_code = groups(*options, *view); });
}

} // namespace paratope
