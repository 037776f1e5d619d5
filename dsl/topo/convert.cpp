// SPDX-License-Identifier: Apache-2.0
//
// One op a section, in the order a person would write them. The mesh holds every axis, the layout's defaults
// under the topology's own sizes; `written` tells the two apart on the way back.
#include "dsl/topo/convert.h"

#include <algorithm>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"

#include "dsl/topo/fields.h"

using namespace mlir;

namespace paratope::topo {

static constexpr const char *mesh_name = "ranks";

//===--- values → module --------------------------------------------------------------------------------===//

static ArrayAttr strings(Builder &builder, const std::vector<std::string> &values) {
  SmallVector<StringRef> refs(values.begin(), values.end());
  return builder.getStrArrayAttr(refs);
}

static void add_mesh(OpBuilder &builder, const TopologySpec &spec) {
  std::vector<NamedAxis> axes = spec.axes;
  for (const NamedAxis &axis : spec.layout.axes)
    if (llvm::none_of(spec.axes, [&](const NamedAxis &own) { return own.name == axis.name; }))
      axes.push_back(axis);
  std::sort(axes.begin(), axes.end(), [](const NamedAxis &a, const NamedAxis &b) { return a.name < b.name; });

  SmallVector<Attribute> names, sizes, written;
  KeyPlaces places;
  for (const NamedAxis &axis : axes) {
    names.push_back(builder.getStringAttr(axis.name));
    sizes.push_back(axis.size->product_of.empty() ? Attribute(builder.getI64IntegerAttr(axis.size->size))
                                                  : Attribute(strings(builder, axis.size->product_of)));
    places[axis.name] = axis.size.where;
    if (axis.size.written)
      written.push_back(builder.getStringAttr(axis.name));
  }
  places["layout"] = spec.layout_name.where;
  ArrayAttr world_rule;
  if (!spec.layout.world_max_of->empty()) {
    SmallVector<Attribute> products;
    for (const auto &product : *spec.layout.world_max_of)
      products.push_back(strings(builder, product));
    world_rule = builder.getArrayAttr(products);
    places["world"] = spec.layout.world_max_of.where;
  }
  DenseI64ArrayAttr rank_map;
  if (!spec.mesh.rank_map->empty()) {
    rank_map = builder.getDenseI64ArrayAttr(*spec.mesh.rank_map);
    places["rank_map"] = spec.mesh.rank_map.where;
    if (spec.mesh.rank_map.written)
      written.push_back(builder.getStringAttr("mesh.rank_map"));
  }
  IntegerAttr offset;
  if (*spec.mesh.rank_offset != 0 || spec.mesh.rank_offset.written) {
    offset = builder.getI64IntegerAttr(*spec.mesh.rank_offset);
    places["rank_offset"] = spec.mesh.rank_offset.where;
    if (spec.mesh.rank_offset.written)
      written.push_back(builder.getStringAttr("mesh.rank_offset"));
  }
  Location where = with_keys(builder.getContext(),
                             spec.layout_name.where.known() ? spec.layout_name.where : spec.where, places);
  MeshOp::create(builder, where, builder.getStringAttr(mesh_name), IntegerAttr(),
                 builder.getStringAttr(*spec.layout_name), builder.getArrayAttr(names),
                 builder.getArrayAttr(sizes), world_rule, rank_map, offset,
                 written.empty() ? ArrayAttr() : builder.getArrayAttr(written));
}

static void add_groups(OpBuilder &builder, const TopologySpec &spec) {
  std::vector<NamedGroup> groups = spec.groups;
  for (const NamedGroup &group : spec.layout.groups)
    if (llvm::none_of(spec.groups, [&](const NamedGroup &own) { return own.name == group.name; }))
      groups.push_back(group);
  std::sort(groups.begin(), groups.end(),
            [](const NamedGroup &a, const NamedGroup &b) { return a.name < b.name; });
  for (const NamedGroup &group : groups) {
    KeyPlaces places;
    for (size_t i = 0; i < group.pattern_where.size(); ++i)
      places[std::to_string(i)] = group.pattern_where[i];
    GroupOp::create(
        builder, with_keys(builder.getContext(), group.patterns.where, places),
        builder.getStringAttr(group.name), FlatSymbolRefAttr::get(builder.getContext(), mesh_name),
        strings(builder, *group.patterns), group.patterns.written ? builder.getUnitAttr() : UnitAttr());
  }
}

template <class SectionOp, class Section>
static void add_section(OpBuilder &builder, const SourceRange &file, const Section &section) {
  SectionAttrs attrs = to_attrs(builder.getContext(), section);
  SectionOp::create(builder, with_keys(builder.getContext(), file, attrs.places), attrs.fields,
                    attrs.written);
}

OwningOpRef<ModuleOp> to_module(MLIRContext *context, const TopologySpec &spec) {
  context->loadDialect<TopoDialect>();
  Location file = to_location(context, spec.where);
  OwningOpRef<ModuleOp> module = ModuleOp::create(file);
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());

  NamedAttrList head;
  SmallVector<Attribute> head_written;
  KeyPlaces head_places = {
      {"topology", spec.version.where}, {"name", spec.name.where}, {"summary", spec.summary.where}};
  head.set("topology", builder.getI64IntegerAttr(*spec.version));
  if (!spec.summary->empty())
    head.set("summary", builder.getStringAttr(*spec.summary));
  if (spec.version.written)
    head_written.push_back(builder.getStringAttr("topology"));
  if (spec.summary.written)
    head_written.push_back(builder.getStringAttr("summary"));
  TopologyOp::create(builder, with_keys(context, spec.where, head_places), builder.getStringAttr(*spec.name),
                     head.getDictionary(context),
                     head_written.empty() ? ArrayAttr() : builder.getArrayAttr(head_written));

  SectionAttrs machine = to_attrs(context, spec.machine);
  NamedAttrList levels(machine.fields); // a machine of one node says so
  levels.set("nodes", builder.getI64IntegerAttr(*spec.machine.nodes));
  machine.fields = levels.getDictionary(context);
  auto symbol = [&](const Field<std::string> &name, const Field<std::string> &use, const char *otherwise) {
    return builder.getStringAttr(!name->empty() ? *name : !use->empty() ? *use : otherwise);
  };
  MachineOp::create(builder,
                    with_keys(context, spec.machine.use.where.known() ? spec.machine.use.where : spec.where,
                              machine.places),
                    symbol(spec.machine.name, spec.machine.use, "machine"), machine.fields, machine.written);
  SectionAttrs model = to_attrs(context, spec.model);
  ModelOp::create(
      builder,
      with_keys(context, spec.model.use.where.known() ? spec.model.use.where : spec.where, model.places),
      symbol(spec.model.name, spec.model.use, "model"), model.fields, model.written);
  add_mesh(builder, spec);
  add_groups(builder, spec);
  add_section<MoeOp>(builder, spec.where, spec.moe);
  add_section<AttentionOp>(builder, spec.where, spec.attention);
  add_section<EngramOp>(builder, spec.where, spec.engram);
  add_section<WorkloadOp>(builder, spec.where, spec.workload);
  add_section<EngineOp>(builder, spec.where, spec.engine);
  add_section<ScheduleOp>(builder, spec.where, spec.schedule);
  return module;
}

//===--- module → values --------------------------------------------------------------------------------===//

template <class T> static void set(Field<T> &field, Operation *op, StringRef key, T value, bool written) {
  field.value = std::move(value);
  field.where = to_range(location_of(op, key));
  field.written = written;
}

static std::vector<std::string> plain(ArrayAttr values) {
  std::vector<std::string> items;
  for (Attribute value : values)
    if (auto string = dyn_cast<StringAttr>(value))
      items.push_back(string.str());
  return items;
}

// The one op of a kind; an error when it stands twice, or is needed and missing.
template <class Op> static Op only(ModuleOp module, bool needed, Diagnostics &diagnostics) {
  Op found;
  for (Op op : module.getOps<Op>()) {
    if (found) {
      auto &twice = diagnostics.error(
          "doubled-section", to_range(op->getLoc()),
          fmt::format("{} stands twice in a module, expected once", op->getName().getStringRef().str()));
      twice.notes.push_back({"first here", to_range(found->getLoc())});
      continue;
    }
    found = op;
  }
  if (!found && needed)
    diagnostics.error("missing-section", to_range(module.getLoc()),
                      fmt::format("the module has no {}", Op::getOperationName().str()));
  return found;
}

static void read_head(TopologyOp op, TopologySpec &spec, Diagnostics &diagnostics) {
  std::vector<std::string> written = op.getWritten() ? plain(*op.getWritten()) : std::vector<std::string>{};
  auto was_written = [&](const char *key) { return llvm::is_contained(written, key); };
  set(spec.name, op, "name", op.getName().str(), op.getWritten().has_value());
  set(spec.version, op, "topology", language_version, was_written("topology"));
  for (NamedAttribute item : op.getFields()) {
    StringRef key = item.getName().getValue();
    auto number = dyn_cast<IntegerAttr>(item.getValue());
    auto text = dyn_cast<StringAttr>(item.getValue());
    if (key == "topology" && number && number.getType().isSignlessInteger(64)) {
      if (number.getInt() != language_version)
        diagnostics.error(
            "unknown-version", to_range(location_of(op, key)),
            fmt::format("got language version {}, expected {}", number.getInt(), language_version));
    } else if (key == "summary" && text) {
      set(spec.summary, op, "summary", text.str(), was_written("summary"));
    } else {
      std::string got;
      llvm::raw_string_ostream(got) << item.getValue();
      diagnostics.error("unknown-key", to_range(op->getLoc()),
                        fmt::format("topo.topology takes topology = 1 : i64 and summary = \"…\", got {} = {}",
                                    key.str(), got));
    }
  }
}

static void read_mesh(MeshOp op, TopologySpec &spec) {
  std::vector<std::string> written = op.getWritten() ? plain(*op.getWritten()) : std::vector<std::string>{};
  auto was_written = [&](const std::string &key) { return llvm::is_contained(written, key); };
  set(spec.layout_name, op, "layout", op.getLayout().str(), op.getWritten().has_value());
  set(spec.layout.name, op, "layout", op.getLayout().str(), false);
  for (auto [name, size] : llvm::zip(op.getAxisNames(), op.getAxisSizes())) {
    NamedAxis axis;
    axis.name = cast<StringAttr>(name).str();
    AxisSize value;
    if (auto number = dyn_cast<IntegerAttr>(size))
      value.size = number.getInt();
    else
      value.product_of = plain(cast<ArrayAttr>(size));
    set(axis.size, op, axis.name, value, was_written(axis.name));
    if (axis.size.written)
      spec.axes.push_back(axis);
    spec.layout.axes.push_back(axis); // the mesh has every axis, whoever gave its size
  }
  if (auto rule = op.getWorldMaxOf()) {
    std::vector<std::vector<std::string>> products;
    for (Attribute product : *rule)
      if (auto names = dyn_cast<ArrayAttr>(product))
        products.push_back(plain(names));
    set(spec.layout.world_max_of, op, "world", products, false);
  }
  if (auto map = op.getRankMap())
    set(spec.mesh.rank_map, op, "rank_map", std::vector<int64_t>(map->begin(), map->end()),
        was_written("mesh.rank_map"));
  if (auto offset = op.getRankOffset())
    set(spec.mesh.rank_offset, op, "rank_offset", static_cast<int64_t>(*offset),
        was_written("mesh.rank_offset"));
}

static void read_groups(ModuleOp module, TopologySpec &spec, Diagnostics &diagnostics) {
  std::map<std::string, GroupOp> seen;
  for (GroupOp op : module.getOps<GroupOp>()) {
    auto [earlier, fresh] = seen.emplace(op.getSymName().str(), op);
    if (!fresh) {
      auto &twice = diagnostics.error("doubled-group", to_range(op->getLoc()),
                                      fmt::format("group @{} stands twice", op.getSymName().str()));
      twice.notes.push_back({"first here", to_range(earlier->second->getLoc())});
      continue;
    }
    NamedGroup group;
    group.name = op.getSymName().str();
    set(group.patterns, op, "0", plain(op.getPatterns()), op->hasAttr("written"));
    for (size_t i = 0; i < group.patterns->size(); ++i)
      group.pattern_where.push_back(to_range(location_of(op, std::to_string(i))));
    (group.patterns.written ? spec.groups : spec.layout.groups).push_back(group);
  }
}

template <class SectionOp, class Section>
static void read_section(ModuleOp module, bool needed, Section &section, Diagnostics &diagnostics) {
  if (SectionOp op = only<SectionOp>(module, needed, diagnostics))
    from_attrs(op, op->getName().stripDialect(), op.getFields(), op.getWrittenAttr(), section, diagnostics);
}

std::optional<TopologySpec> to_spec(ModuleOp module, Diagnostics &diagnostics) {
  TopologySpec spec;
  Diagnostics findings;
  spec.where = to_range(module.getLoc());
  if (auto head = only<TopologyOp>(module, true, findings))
    read_head(head, spec, findings);
  if (auto mesh = only<MeshOp>(module, true, findings))
    read_mesh(mesh, spec);
  read_groups(module, spec, findings);
  read_section<MachineOp>(module, true, spec.machine, findings);
  read_section<ModelOp>(module, true, spec.model, findings);
  read_section<MoeOp>(module, false, spec.moe, findings);
  read_section<AttentionOp>(module, false, spec.attention, findings);
  read_section<EngramOp>(module, false, spec.engram, findings);
  read_section<WorkloadOp>(module, false, spec.workload, findings);
  read_section<EngineOp>(module, false, spec.engine, findings);
  read_section<ScheduleOp>(module, false, spec.schedule, findings);
  bool wrong = findings.has_errors();
  for (const paratope::Diagnostic &found : findings.all())
    diagnostics.add(found);
  if (wrong)
    return std::nullopt;
  return spec;
}

bool is_handwritten(ModuleOp module) {
  for (Operation &op : module.getBody()->getOperations())
    if (op.hasAttr("written"))
      return false;
  return true;
}

} // namespace paratope::topo
