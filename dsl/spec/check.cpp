// SPDX-License-Identifier: Apache-2.0
#include "dsl/spec/check.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/diagnostic/nearest.h"

namespace paratope {
namespace {

bool is_name(const std::string &name) {
  auto letter = [](unsigned char c) { return std::isalpha(c) || c == '_'; };
  return !name.empty() && letter(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [&](unsigned char c) { return letter(c) || std::isdigit(c); });
}

void check_name(const std::string &kind, const std::string &name, const SourceRange &where,
                Diagnostics &diagnostics) {
  if (!is_name(name))
    diagnostics.error(
        "bad-name", where,
        fmt::format("expected {} name of letters, digits and '_' that starts with no digit, got '{}'", kind,
                    name));
}

// ---- axes ---------------------------------------------------------------------------------------------

using AxisTable = std::map<std::string, const NamedAxis *>;

// `places` has one for each name, or none; then `where` is used.
void check_product(const std::vector<std::string> &names, const AxisTable &axes, const SourceRange &where,
                   const std::vector<SourceRange> &places, Diagnostics &diagnostics) {
  if (names.empty())
    diagnostics.error("empty-list", where, "expected at least one axis name, got []");
  std::set<std::string> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string &name = names[i];
    const SourceRange &at = i < places.size() ? places[i] : where;
    if (!axes.contains(name)) {
      std::vector<std::string> known;
      for (const auto &[axis_name, axis] : axes)
        known.push_back(axis_name);
      Diagnostic &unknown =
          diagnostics.error("unknown-axis", at,
                            fmt::format("expected axis names ({}), got '{}'", fmt::join(known, ", "), name));
      if (auto guess = nearest(name, known))
        unknown.fix = fmt::format("write \"{}\"", *guess);
    } else if (!seen.insert(name).second) {
      diagnostics.error("repeated-axis", at,
                        fmt::format("an axis can be a factor once, got '{}' twice", name));
    }
  }
}

bool check_count(const std::vector<NamedAxis> &axes, Diagnostics &diagnostics) {
  if (axes.size() > most_axes)
    diagnostics.error("too-many-axes", axes.front().where,
                      fmt::format("expected at most {} axes, got {}", most_axes, axes.size()));
  return axes.size() <= most_axes;
}

// A size is a number of at least 1, or a product; an empty array is neither.
void check_size(const NamedAxis &axis, const AxisTable &axes, Diagnostics &diagnostics) {
  if (axis.size->size < 1 || !axis.size->product_of.empty())
    check_product(axis.size->product_of, axes, axis.size.where, axis.factor_where, diagnostics);
}

// Follows products from each axis; an axis met again on the way is a cycle, reported once for its members.
void check_cycles(const AxisTable &axes, Diagnostics &diagnostics) {
  enum class State { fresh, open, done };
  std::map<std::string, State> states;
  std::vector<std::string> path;
  // The depth is the number of axes at most, but a file may have many: an explicit stack of (axis, next
  // factor).
  std::vector<std::pair<const NamedAxis *, size_t>> stack;
  for (const auto &[start, axis] : axes) {
    if (states[start] != State::fresh)
      continue;
    stack.emplace_back(axis, 0);
    states[start] = State::open;
    while (!stack.empty()) {
      const NamedAxis &top = *stack.back().first;
      const std::vector<std::string> &factors = top.size->product_of;
      if (stack.back().second == factors.size()) {
        states[top.name] = State::done;
        stack.pop_back();
        continue;
      }
      const std::string &factor = factors[stack.back().second++];
      auto next = axes.find(factor);
      if (next == axes.end())
        continue; // reported as unknown
      if (states[factor] == State::open) {
        std::vector<std::string> chain;
        auto from = std::find_if(stack.begin(), stack.end(),
                                 [&](const auto &entry) { return entry.first->name == factor; });
        for (auto it = from; it != stack.end(); ++it)
          chain.push_back(it->first->name);
        chain.push_back(factor);
        diagnostics.error("axis-cycle", top.size.where,
                          fmt::format("the size of an axis depends on itself: {}", fmt::join(chain, " -> ")));
      } else if (states[factor] == State::fresh) {
        states[factor] = State::open;
        stack.emplace_back(next->second, 0);
      }
    }
  }
}

void check_groups(const std::vector<NamedGroup> &groups, Diagnostics &diagnostics) {
  for (const NamedGroup &group : groups) {
    check_name("a group", group.name, group.where, diagnostics);
    if (group.patterns->empty())
      diagnostics.error("empty-list", group.patterns.where,
                        "expected a pattern or a list of patterns, got []");
  }
}

void check_axes(const TopologySpec &topology, Diagnostics &diagnostics) {
  if (!check_count(topology.axes, diagnostics) || topology.layout.axes.size() > most_axes)
    return;
  AxisTable axes;
  for (const NamedAxis &axis : topology.layout.axes)
    axes[axis.name] = &axis;
  std::set<std::string> legal;
  for (const auto &[name, axis] : axes)
    legal.insert(name);
  const std::vector<std::string> from_layout(legal.begin(), legal.end());
  std::vector<std::string> spellings = from_layout; // likelier meant than a pattern's own names
  for (const auto *groups : {&topology.layout.groups, &topology.groups})
    for (const NamedGroup &group : *groups)
      for (const std::string &pattern : group.patterns.value)
        for (const std::string &name : names_in_pattern(pattern))
          if (legal.insert(name).second)
            spellings.push_back(name);

  for (const NamedAxis &axis : topology.axes) {
    if (!is_name(axis.name)) {
      check_name("an axis", axis.name, axis.where, diagnostics);
    } else if (!legal.contains(axis.name)) {
      Diagnostic &unknown =
          diagnostics.error("unknown-axis", axis.where,
                            fmt::format("layout '{}' has the axes {}, and no group's pattern uses '{}'",
                                        topology.layout_name.value, fmt::join(from_layout, ", "), axis.name));
      if (auto guess = nearest(axis.name, spellings))
        unknown.fix = fmt::format("write {}", *guess);
    }
    axes[axis.name] = &axis;
  }
  for (const NamedAxis &axis : topology.axes)
    check_size(axis, axes, diagnostics);
  check_cycles(axes, diagnostics);
}

// ---- model --------------------------------------------------------------------------------------------

// One rule of a model or machine: when it does not hold, an error at the value that breaks it.
void expect(bool holds, const char *code, const SourceRange &where, std::string message,
            Diagnostics &diagnostics) {
  if (!holds)
    diagnostics.error(code, where, std::move(message));
}

// A rule between two keys. Where the topology wrote only one of them, over a used file, that one is to blame.
template <class A, class B>
void expect_pair(bool holds, const char *code, const Field<A> &a, const Field<B> &b, std::string message,
                 Diagnostics &diagnostics) {
  if (holds)
    return;
  const bool blame_b = !a.where.known() || (b.written && !a.written);
  const SourceRange &blamed = blame_b ? b.where : a.where;
  const SourceRange &other = blame_b ? a.where : b.where;
  Diagnostic &error = diagnostics.error(code, blamed, std::move(message));
  if (other.known() && other.file != blamed.file)
    error.notes.push_back({"the other value is here", other});
}

void check_attention(const ModelSpec &model, Diagnostics &diagnostics) {
  constexpr const char *code = "inconsistent-model";
  const AttentionModel &a = model.attention;
  auto needs = [&](const char *key, const Field<int64_t> &field) {
    expect(*field >= 1, "missing-key", field.written ? field.where : a.kind.where,
           fmt::format("kind '{}' needs the key {} of [attention]", a.kind.value, key), diagnostics);
  };
  if (*a.kind == "mla") {
    needs("kv_lora", a.kv_lora);
    needs("nope_dim", a.nope_dim);
    needs("rope_dim", a.rope_dim);
    needs("v_dim", a.v_dim);
  } else {
    needs("head_dim", a.head_dim);
    expect_pair(*a.head_dim < 1 || *a.rope_dim <= *a.head_dim, code, a.rope_dim, a.head_dim,
                fmt::format("rotary dims are part of a head: expected rope_dim at most head_dim = {}, got {}",
                            *a.head_dim, *a.rope_dim),
                diagnostics);
  }
  // What a kind does not compute is not quietly left out.
  auto has_no = [&](const char *key, const Field<int64_t> &field) {
    expect(*field == 0, code, field.where.known() ? field.where : a.kind.where,
           fmt::format("kind '{}' has no {}: expected 0, got {}", *a.kind, key, *field), diagnostics);
  };
  if (*a.kind == "gqa")
    has_no("q_lora", a.q_lora);
  if (*a.kind != "latent") {
    has_no("o_groups", a.o_groups);
    has_no("o_lora", a.o_lora);
    expect(
        std::all_of(a.compress_ratios->begin(), a.compress_ratios->end(), [](int64_t r) { return r == 0; }),
        code, a.compress_ratios.where,
        fmt::format("kind '{}' keeps no compressed keys: expected compress_ratios of 0", *a.kind),
        diagnostics);
  }
  if (*a.kind != "mla") {
    has_no("kv_lora", a.kv_lora);
    has_no("nope_dim", a.nope_dim);
    has_no("v_dim", a.v_dim);
  }
  expect(*a.rope_dim % 2 == 0, code, a.rope_dim.where,
         fmt::format("rotary dims turn in pairs: expected an even rope_dim, got {}", *a.rope_dim),
         diagnostics);
  expect_pair(*a.kind != "latent" || *a.kv_heads == 1, code, a.kv_heads, a.kind,
              fmt::format("kind 'latent' shares one latent: expected kv_heads = 1, got {}", *a.kv_heads),
              diagnostics);
  expect_pair(
      *a.kind != "gqa" || *a.kv_heads < 1 || *a.heads % *a.kv_heads == 0, code, a.kv_heads, a.heads,
      fmt::format("heads share key and value heads evenly: heads = {} is not divisible by kv_heads = {}",
                  *a.heads, *a.kv_heads),
      diagnostics);
  if (*a.o_groups > 0) {
    expect_pair(
        *a.heads % *a.o_groups == 0, code, a.o_groups, a.heads,
        fmt::format(
            "output groups take equal parts of the heads: heads = {} is not divisible by o_groups = {}",
            *a.heads, *a.o_groups),
        diagnostics);
    expect(*a.o_lora >= 1, "missing-key", a.o_groups.where, "o_groups needs the key o_lora of [attention]",
           diagnostics);
  }
  expect(!a.window->empty(), "empty-list", a.window.where, "expected a window or a list of windows, got []",
         diagnostics);
  const auto ratios = static_cast<int64_t>(a.compress_ratios->size());
  expect_pair(
      ratios == 0 || ratios == *model.layers, code, a.compress_ratios, model.layers,
      fmt::format("compress_ratios has one entry a layer: expected {}, got {}", *model.layers, ratios),
      diagnostics);
}

void check_experts(const ModelSpec &model, Diagnostics &diagnostics) {
  constexpr const char *code = "inconsistent-model";
  const ExpertModel &m = model.moe;
  if (*m.routed > 0) {
    expect_pair(
        *m.top_k >= 1 && *m.top_k <= *m.routed, code, m.top_k, m.routed,
        fmt::format("a token goes to 1 to {} of the routed experts, got top_k = {}", *m.routed, *m.top_k),
        diagnostics);
    expect_pair(*m.routed % *m.groups == 0, code, m.groups, m.routed,
                fmt::format("routing groups are equal: routed = {} is not divisible by groups = {}",
                            *m.routed, *m.groups),
                diagnostics);
    expect_pair(*m.top_groups <= *m.groups, code, m.top_groups, m.groups,
                fmt::format("expected top_groups at most groups = {}, got {}", *m.groups, *m.top_groups),
                diagnostics);
    expect_pair(*m.groups == 1 || *m.routed / *m.groups * std::min(*m.top_groups, *m.groups) >= *m.top_k,
                code, m.top_groups, m.top_k,
                fmt::format("{} groups of {} experts are fewer than top_k = {}", *m.top_groups,
                            *m.routed / *m.groups, *m.top_k),
                diagnostics);
  } else {
    expect_pair(
        *m.dense_layers == *model.layers, code, m.dense_layers, model.layers,
        fmt::format("without routed experts every layer is dense: expected [moe] dense_layers = {}, got {}",
                    *model.layers, *m.dense_layers),
        diagnostics);
  }
  expect_pair((*m.routed == 0 && *m.shared == 0) || *m.width >= 1, "missing-key", m.routed, m.shared,
              "experts need the key width of [moe]", diagnostics);
  expect_pair(
      *m.dense_layers <= *model.layers, code, m.dense_layers, model.layers,
      fmt::format("expected dense_layers at most layers = {}, got {}", *model.layers, *m.dense_layers),
      diagnostics);
  expect_pair(*m.dense_layers == 0 || *m.dense_width >= 1, "missing-key", m.dense_layers, m.dense_width,
              "dense layers need the key dense_width of [moe]", diagnostics);
}

void check_engram(const ModelSpec &model, Diagnostics &diagnostics) {
  constexpr const char *code = "inconsistent-model";
  const EngramModel &e = model.engram;
  int64_t before = -1;
  for (int64_t layer : *e.layers) {
    expect_pair(layer < *model.layers, code, e.layers, model.layers,
                fmt::format("layers are numbered 0 to {}, got {}", *model.layers - 1, layer), diagnostics);
    expect(layer > before, code, e.layers.where,
           fmt::format("expected layers in rising order, got {} after {}", layer, before), diagnostics);
    before = layer;
  }
  if (e.multipliers->empty())
    return;
  expect_pair(e.multipliers->size() == e.layers->size(), code, e.multipliers, e.layers,
              fmt::format("multipliers has one row for each engram layer: expected {}, got {}",
                          e.layers->size(), e.multipliers->size()),
              diagnostics);
  for (const std::vector<int64_t> &row : *e.multipliers) {
    expect_pair(
        static_cast<int64_t>(row.size()) == *e.ngram, code, e.multipliers, e.ngram,
        fmt::format("a row of multipliers has one number for each token of the n-gram: expected {}, got {}",
                    *e.ngram, row.size()),
        diagnostics);
    for (int64_t multiplier : row)
      expect(multiplier > 0 && multiplier % 2 == 1, code, e.multipliers.where,
             fmt::format("hash multipliers are odd and positive, got {}", multiplier), diagnostics);
  }
}

// ---- workload -----------------------------------------------------------------------------------------

// `because` is the key that makes `field` idle. Where the two stand in different files, or one in --set, the
// idle one is a leftover that no one has to tidy.
template <class T>
void warn_unused(bool used, const Field<T> &field, const char *key, const char *because_key,
                 const Field<std::string> &because, Diagnostics &diagnostics) {
  if (used || !field.written || (because.where.known() && because.where.file != field.where.file))
    return;
  diagnostics.add(Severity::warning, "unused-key", field.where,
                  fmt::format("{} has no effect with {} '{}'", key, because_key, *because));
}

void check_mentioned_file(const char *key, const Field<std::string> &field, Diagnostics &diagnostics) {
  std::error_code ignored;
  const std::string path = mentioned_path(field.where, *field);
  if (!field->empty() && !std::filesystem::is_regular_file(path, ignored))
    diagnostics.error("file-not-found", field.where, fmt::format("{}: no such file: {}", key, path));
}

void check_workload(const TopologySpec &topology, Diagnostics &diagnostics) {
  const WorkloadSpec &w = topology.workload;
  const bool prefill = *w.phase == "prefill";
  expect(!prefill || !w.prompt_lengths->empty(), "missing-key", w.phase.where,
         "phase 'prefill' needs the key prompt_lengths of [workload]", diagnostics);
  warn_unused(prefill, w.prompt_lengths, "prompt_lengths", "phase", w.phase, diagnostics);
  warn_unused(prefill, w.history_lengths, "history_lengths", "phase", w.phase, diagnostics);
  warn_unused(!prefill, w.context, "context", "phase", w.phase, diagnostics);
  warn_unused(!prefill, w.tokens_per_rank, "tokens_per_rank", "phase", w.phase, diagnostics);
  expect(!w.tokens_per_rank->empty(), "empty-list", w.tokens_per_rank.where,
         "expected a number of tokens or a list of them, got []", diagnostics);

  const RoutingSpec &r = w.routing;
  const std::string &kind = *r.kind;
  warn_unused(kind == "zipf", r.s, "s", "kind", r.kind, diagnostics);
  warn_unused(kind == "dirichlet", r.alpha, "alpha", "kind", r.kind, diagnostics);
  warn_unused(kind == "hot", r.expert, "expert", "kind", r.kind, diagnostics);
  warn_unused(kind == "trace", r.file, "file", "kind", r.kind, diagnostics);
  expect(kind != "trace" || !r.file->empty(), "missing-key", r.kind.where,
         "kind 'trace' needs the key file of [workload.routing]", diagnostics);
  expect_pair(kind != "hot" || *r.expert < *topology.model.moe.routed, "out-of-range", r.expert, r.kind,
              fmt::format("the model's routed experts are 0 to {}, got {}", *topology.model.moe.routed - 1,
                          *r.expert),
              diagnostics);
  if (kind == "trace")
    check_mentioned_file("file", r.file, diagnostics);

  warn_unused(*topology.moe.placement == "eplb", topology.moe.loads, "loads", "placement",
              topology.moe.placement, diagnostics);
  check_mentioned_file("loads", topology.moe.loads, diagnostics);
}

void check_rank_map(const MeshSpec &mesh, Diagnostics &diagnostics) {
  const auto size = static_cast<int64_t>(mesh.rank_map->size());
  std::vector<bool> seen(mesh.rank_map->size(), false);
  for (int64_t device : *mesh.rank_map) {
    if (device < 0 || device >= size) {
      diagnostics.error(
          "not-a-permutation", mesh.rank_map.where,
          fmt::format("rank_map of {} ranks holds 0 to {} once each, got {}", size, size - 1, device));
    } else if (seen[static_cast<size_t>(device)]) {
      diagnostics.error(
          "not-a-permutation", mesh.rank_map.where,
          fmt::format("rank_map of {} ranks holds 0 to {} once each, got {} twice", size, size - 1, device));
    } else {
      seen[static_cast<size_t>(device)] = true;
    }
  }
}

// Passes findings on; those in another file than the topology's get a note where that file was named.
void pass_on(const Diagnostics &found, const SourceRange &topology, const Field<std::string> &use,
             Diagnostics &diagnostics) {
  for (Diagnostic diagnostic : found.all()) {
    if (diagnostic.where.file != topology.file && use.where.known())
      diagnostic.notes.push_back({fmt::format("'{}' is used here", *use), use.where});
    diagnostics.add(std::move(diagnostic));
  }
}

} // namespace

std::vector<std::string> names_in_pattern(const std::string &pattern) {
  std::vector<std::string> names;
  if (pattern.size() > 4096) // the pattern engine refuses it; looking names up is quadratic
    return names;
  std::string word;
  auto finish = [&] {
    if (is_name(word) && std::find(names.begin(), names.end(), word) == names.end())
      names.push_back(word);
    word.clear();
  };
  for (char c : pattern) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      word += c;
    else
      finish();
  }
  finish();
  return names;
}

std::string mentioned_path(const SourceRange &mention, const std::string &path) {
  const std::filesystem::path mentioned(path);
  if (mentioned.is_absolute() || mention.file.empty() || mention.file == "--set")
    return path;
  return (std::filesystem::path(mention.file).parent_path() / mentioned).lexically_normal().string();
}

std::string placed_path(const SourceRange &mention, const std::string &path) {
  if (path.empty())
    return path;
  const std::string mentioned = mentioned_path(mention, path);
  std::error_code failed; // without a working directory a relative path stays one
  const std::filesystem::path absolute = std::filesystem::absolute(mentioned, failed);
  return failed ? mentioned : absolute.lexically_normal().string();
}

std::string placed_weights(const ModelSpec &model) {
  constexpr std::string_view scheme = "safetensors:";
  const std::string &weights = *model.weights;
  if (!weights.starts_with(scheme))
    return weights;
  return std::string(scheme) + placed_path(model.weights.where, weights.substr(scheme.size()));
}

void check(const LayoutSpec &layout, Diagnostics &diagnostics) {
  if (!check_count(layout.axes, diagnostics))
    return;
  AxisTable axes;
  for (const NamedAxis &axis : layout.axes) {
    check_name("an axis", axis.name, axis.where, diagnostics);
    axes[axis.name] = &axis;
  }
  for (const NamedAxis &axis : layout.axes)
    check_size(axis, axes, diagnostics);
  check_cycles(axes, diagnostics);
  expect(!layout.world_max_of->empty(), "empty-list", layout.world_max_of.where,
         "expected at least one product of axes, got []", diagnostics);
  for (const std::vector<std::string> &product : *layout.world_max_of)
    check_product(product, axes, layout.world_max_of.where, {}, diagnostics);
  check_groups(layout.groups, diagnostics);
}

void check(const ModelSpec &model, Diagnostics &diagnostics) {
  if (!model.use->empty() && !model.hf->empty()) {
    Diagnostic &both = diagnostics.error(
        "two-sources", model.hf.where,
        fmt::format("a model is read from one file, got use = '{}' and hf = '{}'", *model.use, *model.hf));
    both.fix = "leave one of them out";
  }
  check_attention(model, diagnostics);
  check_experts(model, diagnostics);
  check_engram(model, diagnostics);
  const std::string &weights = *model.weights;
  expect(weights == "synthetic" || (weights.starts_with("safetensors:") && weights.size() > 12),
         "unknown-choice", model.weights.where,
         fmt::format("expected synthetic or safetensors:DIR, got '{}'", weights), diagnostics);
}

void check(const MachineSpec &machine, Diagnostics &diagnostics) {
  const int64_t in_node = *machine.gpus_per_node;
  const int64_t in_domain = *machine.scale_up_gpus;
  if (in_node < 1 || in_domain < 1)
    return; // missing, and reported as that
  expect_pair(
      in_domain % in_node == 0 || in_node % in_domain == 0, "inconsistent-machine", machine.scale_up_gpus,
      machine.gpus_per_node,
      fmt::format("a scale-up domain is part of a node or several nodes: neither of scale_up_gpus = {} and "
                  "gpus_per_node = {} divides the other",
                  in_domain, in_node),
      diagnostics);
  int64_t gpus = 0;
  const bool overflow = __builtin_mul_overflow(*machine.nodes, in_node, &gpus);
  expect((!overflow && gpus <= in_domain) || *machine.scale_out.gb_per_s > 0, "inconsistent-machine",
         machine.nodes.where.known() ? machine.nodes.where : machine.gpus_per_node.where,
         fmt::format(
             "{} nodes of {} GPUs are more than one scale-up domain of {}, and there is no [scale_out] link",
             *machine.nodes, in_node, in_domain),
         diagnostics);
}

void check(const TopologySpec &topology, Diagnostics &diagnostics, const CheckParts &parts) {
  Diagnostics in_layout, in_machine, in_model;
  if (parts.layout)
    check(topology.layout, in_layout);
  pass_on(in_layout, topology.where, topology.layout_name, diagnostics);
  if (parts.machine)
    check(topology.machine, in_machine);
  pass_on(in_machine, topology.where, topology.machine.use, diagnostics);
  if (parts.model)
    check(topology.model, in_model);
  pass_on(in_model, topology.where, topology.model.hf->empty() ? topology.model.use : topology.model.hf,
          diagnostics);
  if (parts.axes)
    check_axes(topology, diagnostics);
  check_groups(topology.groups, diagnostics);
  if (parts.mesh)
    check_rank_map(topology.mesh, diagnostics);
  if (parts.workload && parts.model)
    check_workload(topology, diagnostics);
}

} // namespace paratope
