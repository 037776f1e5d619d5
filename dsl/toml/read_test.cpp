// SPDX-License-Identifier: Apache-2.0
//
// What files mean once read. Every error has a data file in tests/language; here are the values, their
// places, and what those files cannot show.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "dsl/diagnostic/render.h"
#include "dsl/toml/read.h"
#include "dsl/toml/spec_values.h"

namespace paratope {
namespace {

const std::string topologies = PARATOPE_SOURCE_DIR "/topologies/";

std::string shown(const Diagnostics &diagnostics) {
  std::ostringstream out;
  render(out, diagnostics, {});
  return out.str();
}

TopologySpec read(const std::string &file, const std::vector<std::string> &settings = {}) {
  Diagnostics diagnostics;
  std::optional<TopologySpec> topology =
      read_topology(topologies + file, {.settings = settings, .search = {}}, diagnostics);
  EXPECT_TRUE(topology) << shown(diagnostics);
  EXPECT_TRUE(diagnostics.all().empty()) << shown(diagnostics);
  return topology.value_or(TopologySpec{});
}

const std::string head = "topology = 1\nname = \"t\"\nlayout = \"deepinfer\"\n"
                         "machine.use = \"h200-nvl8-ib400\"\nmodel.use = \"deepseek-v4.1-flash\"\n";

std::optional<TopologySpec> read_text_of(const std::string &text, Diagnostics &diagnostics,
                                         const std::vector<std::string> &variants = {},
                                         const std::vector<std::string> &settings = {}) {
  return read_topology_text(text, "t.toml", variants, {.settings = settings, .search = {topologies}},
                            diagnostics);
}

TEST(Read, the_complete_example) {
  const TopologySpec t = read("deepinfer/decode-ep64.toml");
  EXPECT_EQ(*t.version, 1);
  EXPECT_EQ(*t.name, "v4.1-flash-decode-ep64");
  EXPECT_EQ(*t.layout_name, "deepinfer");
  EXPECT_EQ(*t.machine.nodes, 8);
  EXPECT_TRUE(t.machine.nodes.written);
  EXPECT_EQ(*t.machine.gpus_per_node, 8);
  EXPECT_FALSE(t.machine.gpus_per_node.written); // the used file's
  EXPECT_TRUE(t.machine.gpus_per_node.where.file.ends_with("machines/h200-nvl8-ib400.toml"));
  EXPECT_EQ(*t.machine.scale_up.gb_per_s, 450);
  EXPECT_EQ(*t.model.hidden, 5120);
  ASSERT_EQ(t.axes.size(), 2u);
  EXPECT_EQ(t.axes[0].name, "dp");
  EXPECT_EQ(t.axes[0].size->size, 64);
  EXPECT_EQ(t.axes[1].name, "ep");
  EXPECT_EQ(t.layout.groups.size(), 10u);
  EXPECT_EQ(*t.moe.placement, "eplb");
  EXPECT_EQ(*t.moe.combine_dtype, "bf16"); // the language's default
  EXPECT_FALSE(t.moe.combine_dtype.where.known());
  EXPECT_EQ(*t.workload.tokens_per_rank, std::vector<int64_t>{60});
  EXPECT_EQ(*t.workload.context, 4989);
  EXPECT_EQ(*t.workload.routing.kind, "zipf");
  EXPECT_EQ(*t.workload.routing.s, 0.6);
  EXPECT_EQ(*t.schedule.fuse, std::vector<std::string>{"auto"});
}

TEST(Read, the_model_of_the_example) {
  const ModelSpec model = read("deepinfer/decode-ep64.toml").model;
  std::vector<int64_t> ratios = {0, 0};
  ratios.insert(ratios.end(), 18, 2);
  ratios.insert(ratios.end(), 20, 1);
  EXPECT_EQ(*model.attention.compress_ratios, ratios);
  EXPECT_EQ(*model.rms_eps, 1e-20);
  EXPECT_EQ(*model.moe.routed, 384);
  EXPECT_EQ(*model.moe.swiglu_limit, 10);
  EXPECT_EQ(*model.engram.layers, (std::vector<int64_t>{1, 14}));
  EXPECT_EQ(model.engram.multipliers->at(1).at(3), 82619226485591);
}

TEST(Read, places_of_values_names_and_patterns) {
  Diagnostics diagnostics;
  const auto t =
      read_text_of(head + "[axes]\n  enp = [\"dp\", \"cp\"]\n[group]\nmine = '(rest cp) -> rest cp'\n"
                          "two = [\"(x dp) -> x dp\", \"(\\u0067 cp) -> g cp\"]\n",
                   diagnostics);
  ASSERT_TRUE(t) << shown(diagnostics);
  EXPECT_EQ(t->name.where, (SourceRange{"t.toml", 2, 8, 11}));
  EXPECT_EQ(t->machine.use.where, (SourceRange{"t.toml", 4, 15, 32}));
  EXPECT_EQ(t->axes[0].where, (SourceRange{"t.toml", 7, 3, 6}));
  EXPECT_EQ(t->axes[0].size.where, (SourceRange{"t.toml", 7, 9, 21}));
  EXPECT_EQ(t->axes[0].factor_where[1], (SourceRange{"t.toml", 7, 16, 20}));
  EXPECT_EQ(t->groups[0].where, (SourceRange{"t.toml", 9, 1, 5}));
  EXPECT_EQ(range_in_pattern(t->groups[0], 0, 6, 8),
            (SourceRange{"t.toml", 9, 15, 17})); // "cp" of the left side
  EXPECT_EQ(range_in_pattern(t->groups[1], 0, 1, 2), (SourceRange{"t.toml", 10, 10, 11}));
  EXPECT_EQ(range_in_pattern(t->groups[1], 1, 1, 2), t->groups[1].pattern_where[1]); // has an escape
}

TEST(Read, the_variant_of_the_example_is_the_baseline_file) {
  auto variant = values_of(read("deepinfer/decode-ep64.toml#tp8"));
  auto baseline = values_of(read("deepinfer/decode-tp.toml"));
  variant.erase("name");
  baseline.erase("name");
  EXPECT_EQ(differences(variant, baseline), "");
}

TEST(Read, variants_stack_and_settings_win) {
  const TopologySpec t =
      read("deepinfer/decode-ep64.toml#rack+unfused",
           {"machine.nodes=17", "workload.tokens_per_rank=[1, 0]", "moe.placement=contiguous"});
  EXPECT_EQ(*t.machine.scale_up_gpus, 72);
  EXPECT_EQ(*t.machine.nodes, 17);
  EXPECT_EQ(t.machine.nodes.where, (SourceRange{"--set", 1, 15, 17}));
  EXPECT_TRUE(t.schedule.fuse->empty());
  EXPECT_EQ(*t.workload.tokens_per_rank, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(*t.moe.placement, "contiguous");
}

TEST(Read, lists_variants) {
  EXPECT_EQ(list_variants(topologies + "deepinfer/decode-ep64.toml"),
            (std::vector<std::string>{"tp8", "rack", "unfused"}));
  EXPECT_TRUE(list_variants(topologies + "layouts/deepinfer.toml").empty());
  EXPECT_TRUE(list_variants("/no/such/file").empty());
}

TEST(Read, everything_shipped_is_accepted_with_each_of_its_variants) {
  size_t num_read = 0;
  for (const auto &entry : std::filesystem::directory_iterator(topologies + "deepinfer")) {
    const std::string name = "deepinfer/" + entry.path().filename().string();
    read(name);
    for (const std::string &variant : list_variants(entry.path().string()))
      read(name + "#" + variant);
    ++num_read;
  }
  EXPECT_GE(num_read, 7u);
}

TEST(Read, every_library_file_is_accepted_by_itself_and_named_as_its_file) {
  Diagnostics diagnostics;
  auto check_name = [](const std::string &file, const auto &spec) {
    ASSERT_TRUE(spec) << file;
    EXPECT_EQ(*spec->name + ".toml", std::filesystem::path(file).filename().string());
    EXPECT_FALSE(spec->summary->empty()) << file;
  };
  const std::vector<std::string> search = {topologies};
  for (const Listed &item : list_layouts(search))
    check_name(item.path, read_layout(item.path, diagnostics));
  for (const Listed &item : list_models(search))
    check_name(item.path, read_model(item.path, diagnostics));
  for (const Listed &item : list_machines(search))
    check_name(item.path, read_machine(item.path, diagnostics));
  EXPECT_TRUE(diagnostics.all().empty()) << shown(diagnostics);
}

TEST(Read, lists_are_sorted_and_have_summaries) {
  const std::vector<Listed> layouts = list_layouts({topologies});
  ASSERT_GE(layouts.size(), 2u);
  EXPECT_EQ(layouts[0].name, "deepinfer");
  EXPECT_NE(layouts[0].summary.find("cp innermost"), std::string::npos);
  for (size_t i = 1; i < layouts.size(); ++i)
    EXPECT_LT(layouts[i - 1].name, layouts[i].name);
  EXPECT_TRUE(list_models({"/no/such/folder"}).empty());
}

TEST(Read, all_errors_at_once_in_the_order_of_the_file) {
  Diagnostics diagnostics;
  EXPECT_FALSE(
      read_text_of("topology = 1\nname = 3\nlayout = \"deepinfr\"\nsumary = \"\"\n[machine]\nnodes = 0\n"
                   "[axes]\ndp = -1\n[moe]\nexchange = \"fuse\"\n",
                   diagnostics));
  std::vector<std::string> codes;
  int64_t line = 0;
  for (const Diagnostic &diagnostic : diagnostics.all()) {
    codes.push_back(diagnostic.code);
    EXPECT_GE(diagnostic.where.line, line);
    line = diagnostic.where.line;
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"missing-section", "wrong-type", "unknown-layout", "unknown-key",
                                             "missing-section", "missing-section", "missing-key",
                                             "out-of-range", "out-of-range", "unknown-choice"}))
      << shown(diagnostics);
}

TEST(Read, a_selected_variant_is_not_reported_twice) {
  Diagnostics diagnostics;
  EXPECT_FALSE(
      read_text_of(head + "[variant.v]\nmoe.exchange = \"x\"\naxes = { qq = 2 }\n", diagnostics, {"v"}));
  EXPECT_EQ(diagnostics.all().size(), 2u) << shown(diagnostics);
}

TEST(Read, crlf_and_a_byte_order_mark_change_nothing) {
  std::string windows = "\xEF\xBB\xBF";
  for (char c : head)
    windows += c == '\n' ? "\r\n" : std::string(1, c);
  Diagnostics diagnostics;
  const auto t = read_text_of(windows, diagnostics);
  ASSERT_TRUE(t) << shown(diagnostics);
  Diagnostics plain;
  EXPECT_EQ(differences(values_of(*t), values_of(*read_text_of(head, plain))), "");
  EXPECT_EQ(t->name.where, (SourceRange{"t.toml", 2, 8, 11}));
}

TEST(Read, an_empty_file_lacks_everything) {
  Diagnostics diagnostics;
  EXPECT_FALSE(read_text_of("", diagnostics));
  ASSERT_EQ(diagnostics.all().size(), 3u) << shown(diagnostics); // keys, [machine], [model]
  for (const Diagnostic &diagnostic : diagnostics.all())
    EXPECT_FALSE(diagnostic.where.known());
}

TEST(Read, earlier_findings_do_not_spoil_a_later_reading) {
  Diagnostics diagnostics;
  diagnostics.error("earlier", {}, "of another file");
  EXPECT_TRUE(read_text_of(head, diagnostics));
  EXPECT_TRUE(read_layout(topologies + "layouts/deepinfer.toml", diagnostics));
}

TEST(Read, a_name_with_a_hash_that_exists_is_a_file) {
  const std::string file = testing::TempDir() + "paratope#1.toml";
  std::ofstream(file) << head;
  Diagnostics diagnostics;
  EXPECT_TRUE(read_topology(file, {.settings = {}, .search = {topologies}}, diagnostics))
      << shown(diagnostics);
}

TEST(Read, library_files_may_lie_beside_the_topology) {
  const std::string folder = testing::TempDir() + "paratope_beside/";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(topologies + "layouts/deepinfer.toml", folder + "mine.toml",
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder + "t.toml")
      << "topology = 1\nname = \"t\"\nlayout = \"mine\"\n"
         "machine.use = \"h200-nvl8-ib400\"\nmodel.use = \"deepseek-v4.1-flash\"\n";
  Diagnostics diagnostics;
  const auto t = read_topology(folder + "t.toml", {.settings = {}, .search = {topologies}}, diagnostics);
  ASSERT_TRUE(t) << shown(diagnostics);
  EXPECT_EQ(t->layout.axes.size(), 5u);
}

TEST(Read, settings_are_shown_under_their_errors) {
  Diagnostics diagnostics;
  EXPECT_FALSE(read_text_of(head, diagnostics, {}, {"workload.context=16", "moe.exchange=fuse"}));
  EXPECT_EQ(shown(diagnostics),
            "--set:2:14: error: exchange expects one of auto, two-stage, fused, all-gather, got 'fuse' "
            "[unknown-choice]\n    2 | moe.exchange=fuse\n      |              ^~~~\n"
            "fix: write \"fused\"\n");
}

} // namespace
} // namespace paratope
