// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dsl/spec/check.h"
#include "dsl/spec/describe.h"

namespace paratope {
namespace {

// Notes every key with its sentence; fails on what a reader of the language should never meet.
class Proofreader final : public FieldVisitor {
public:
  std::set<std::string> keys; // dotted

  void integer(const char *key, Field<int64_t> &field, IntegerRange range, Need need,
               const char *doc) override {
    note(key, doc);
    EXPECT_LE(range.least, range.most) << key;
    if (need == Need::optional && *field != 0) { // 0 may mean "not given"
      EXPECT_GE(*field, range.least) << key;
      EXPECT_LE(*field, range.most) << key;
    }
  }
  void number(const char *key, Field<double> &field, NumberRange range, Need need, const char *doc) override {
    note(key, doc);
    EXPECT_LE(range.least, range.most) << key;
    if (need == Need::optional) {
      EXPECT_GE(*field, range.least) << key;
    }
  }
  void boolean(const char *key, Field<bool> &, Need, const char *doc) override { note(key, doc); }
  void text(const char *key, Field<std::string> &, Need, const char *doc) override { note(key, doc); }
  void choice(const char *key, Field<std::string> &field, std::vector<std::string> choices, Need need,
              const char *doc) override {
    note(key, doc);
    EXPECT_EQ(std::set<std::string>(choices.begin(), choices.end()).size(), choices.size()) << key;
    if (need == Need::optional) {
      EXPECT_TRUE(std::find(choices.begin(), choices.end(), *field) != choices.end())
          << key << ": the default '" << *field << "' is no choice";
    }
  }
  void integers(const char *key, Field<std::vector<int64_t>> &, IntegerRange, Need,
                const char *doc) override {
    note(key, doc);
  }
  void integer_or_list(const char *key, Field<std::vector<int64_t>> &, IntegerRange, Need,
                       const char *doc) override {
    note(key, doc);
  }
  void integer_rows(const char *key, Field<std::vector<std::vector<int64_t>>> &, IntegerRange, Need,
                    const char *doc) override {
    note(key, doc);
  }
  void texts(const char *key, Field<std::vector<std::string>> &, Need, const char *doc) override {
    note(key, doc);
  }
  void text_rows(const char *key, Field<std::vector<std::vector<std::string>>> &, Need,
                 const char *doc) override {
    note(key, doc);
  }
  void auto_or_choices(const char *key, Field<std::vector<std::string>> &, std::vector<std::string>, Need,
                       const char *doc) override {
    note(key, doc);
  }
  void axis_sizes(const char *key, std::vector<NamedAxis> &, const char *doc) override { note(key, doc); }
  void groups(const char *key, std::vector<NamedGroup> &, const char *doc) override { note(key, doc); }
  void table(const char *key, Need, const char *doc,
             const std::function<void(FieldVisitor &)> &body) override {
    note(key, doc);
    const std::string outer = path;
    path += std::string(key) + ".";
    body(*this);
    path = outer;
  }

private:
  void note(const std::string &key, const std::string &doc) {
    EXPECT_TRUE(keys.insert(path + key).second) << path + key << " is described twice";
    EXPECT_GE(doc.size(), 8u) << key;
    EXPECT_TRUE(doc.ends_with('.')) << key << ": " << doc;
    for (unsigned char c : key)
      EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '_') << key;
  }
  std::string path;
};

TEST(Describe, every_key_once_with_a_sentence_and_a_legal_default) {
  TopologySpec topology;
  Proofreader reader;
  describe(reader, topology);
  for (const char *key :
       {"topology", "machine.use", "machine.gpu.memory_gb_per_s", "machine.scale_out.latency_us",
        "model.attention.compress_ratios", "model.moe.swiglu_limit", "model.engram.multipliers", "axes",
        "group", "mesh.rank_map", "moe.tp_dispatch", "attention.o_exchange", "engram.extra_ranks",
        "workload.routing.alpha", "engine.control_plane", "schedule.fuse"})
    EXPECT_TRUE(reader.keys.contains(key)) << key;
  LayoutSpec layout;
  Proofreader layout_reader;
  describe(layout_reader, layout);
  EXPECT_TRUE(layout_reader.keys.contains("world.max_of"));
}

TEST(Pattern, its_names_each_once_in_order) {
  const std::vector<std::string> names{"replica", "dp", "cp"};
  EXPECT_EQ(names_in_pattern("(replica dp cp) -> (replica cp) dp"), names);
  EXPECT_EQ(names_in_pattern("ranks -> 1 ranks"), std::vector<std::string>{"ranks"});
  EXPECT_TRUE(names_in_pattern("-> 1 2x ()").empty());
}

TEST(Pattern, a_stretch_of_it_has_a_place_in_the_file) {
  NamedGroup group;
  group.patterns.value = {"(a b) -> a b", "x"};
  group.patterns.where = {"f", 1, 1, 40};
  group.pattern_where = {{"f", 3, 10, 22}, {"f", 4, 5, 12}}; // the second was written "\u0078"
  EXPECT_EQ(range_in_pattern(group, 0, 3, 4), (SourceRange{"f", 3, 13, 14}));
  EXPECT_EQ(range_in_pattern(group, 0, 12, 99), (SourceRange{"f", 3, 22, 22})); // past the end
  EXPECT_EQ(range_in_pattern(group, 1, 0, 1), (SourceRange{"f", 4, 5, 12}));
  EXPECT_EQ(range_in_pattern(group, 2, 0, 1), group.patterns.where);
}

TEST(MentionedPath, is_relative_to_the_file_that_mentions_it) {
  EXPECT_EQ(mentioned_path({"a/b/t.toml", 1, 1, 1}, "loads.json"), "a/b/loads.json");
  EXPECT_EQ(mentioned_path({"a/b/t.toml", 1, 1, 1}, "../loads.json"), "a/loads.json");
  EXPECT_EQ(mentioned_path({"t.toml", 1, 1, 1}, "loads.json"), "loads.json");
  EXPECT_EQ(mentioned_path({"a/t.toml", 1, 1, 1}, "/x/loads.json"), "/x/loads.json");
  EXPECT_EQ(mentioned_path({"--set", 1, 1, 1}, "loads.json"), "loads.json");
}

ModelSpec gqa_model() {
  ModelSpec model;
  model.hidden.value = 64;
  model.layers.value = 4;
  model.vocab.value = 100;
  model.attention.kind.value = "gqa";
  model.attention.heads.value = 8;
  model.attention.kv_heads.value = 2;
  model.attention.head_dim.value = 16;
  model.attention.rope_dim.value = 16;
  model.moe.routed.value = 16;
  model.moe.top_k.value = 4;
  model.moe.width.value = 32;
  model.engram.layers.value = {1, 3};
  model.engram.ngram.value = 2;
  model.engram.heads.value = 1;
  model.engram.dim.value = 8;
  model.engram.vocab_per_head.value = 100;
  return model;
}

void to_latent(ModelSpec &model) {
  model.attention.kind.value = "latent";
  model.attention.kv_heads.value = 1;
}

TEST(CheckModel, a_sound_one_passes) {
  Diagnostics diagnostics;
  check(gqa_model(), diagnostics);
  EXPECT_FALSE(diagnostics.has_errors());
}

struct Breakage {
  const char *code;
  const char *says; // part of the message
  std::function<void(ModelSpec &)> apply;
};

class CheckModelRule : public testing::TestWithParam<Breakage> {};

TEST_P(CheckModelRule, one_break_gives_one_error) {
  ModelSpec model = gqa_model();
  GetParam().apply(model);
  Diagnostics diagnostics;
  check(model, diagnostics);
  ASSERT_EQ(diagnostics.all().size(), 1u);
  EXPECT_EQ(diagnostics.all()[0].code, GetParam().code);
  EXPECT_NE(diagnostics.all()[0].message.find(GetParam().says), std::string::npos)
      << diagnostics.all()[0].message;
}

INSTANTIATE_TEST_SUITE_P(
    Rules, CheckModelRule,
    testing::Values(
        Breakage{"missing-key", "head_dim", [](ModelSpec &m) { m.attention.head_dim.value = 0; }},
        Breakage{"missing-key", "v_dim",
                 [](ModelSpec &m) {
                   m.attention.kind.value = "mla";
                   m.attention.kv_lora.value = m.attention.nope_dim.value = 8;
                 }},
        Breakage{"inconsistent-model", "at most head_dim = 16, got 18",
                 [](ModelSpec &m) { m.attention.rope_dim.value = 18; }},
        Breakage{"inconsistent-model", "even rope_dim, got 15",
                 [](ModelSpec &m) { m.attention.rope_dim.value = 15; }},
        Breakage{"inconsistent-model", "kv_heads = 1, got 2",
                 [](ModelSpec &m) { m.attention.kind.value = "latent"; }},
        Breakage{"inconsistent-model", "heads = 8 is not divisible by kv_heads = 3",
                 [](ModelSpec &m) { m.attention.kv_heads.value = 3; }},
        Breakage{"inconsistent-model", "heads = 8 is not divisible by o_groups = 3",
                 [](ModelSpec &m) {
                   to_latent(m);
                   m.attention.o_groups.value = 3;
                   m.attention.o_lora.value = 4;
                 }},
        Breakage{"missing-key", "o_lora",
                 [](ModelSpec &m) {
                   to_latent(m);
                   m.attention.o_groups.value = 4;
                 }},
        Breakage{"inconsistent-model", "'gqa' has no q_lora: expected 0, got 8",
                 [](ModelSpec &m) { m.attention.q_lora.value = 8; }},
        Breakage{"inconsistent-model", "'gqa' has no o_lora",
                 [](ModelSpec &m) { m.attention.o_lora.value = 8; }},
        Breakage{"inconsistent-model", "'gqa' has no v_dim",
                 [](ModelSpec &m) { m.attention.v_dim.value = 8; }},
        Breakage{"inconsistent-model", "'latent' has no nope_dim",
                 [](ModelSpec &m) {
                   to_latent(m);
                   m.attention.nope_dim.value = 8;
                 }},
        Breakage{"inconsistent-model", "'gqa' keeps no compressed keys",
                 [](ModelSpec &m) { m.attention.compress_ratios.value = {0, 0, 1, 0}; }},
        Breakage{"empty-list", "window", [](ModelSpec &m) { m.attention.window.value = {}; }},
        Breakage{"inconsistent-model", "expected 4, got 3",
                 [](ModelSpec &m) { m.attention.compress_ratios.value = {0, 0, 0}; }},
        Breakage{"inconsistent-model", "top_k = 0", [](ModelSpec &m) { m.moe.top_k.value = 0; }},
        Breakage{"inconsistent-model", "top_k = 17", [](ModelSpec &m) { m.moe.top_k.value = 17; }},
        Breakage{"inconsistent-model", "routed = 16 is not divisible by groups = 3",
                 [](ModelSpec &m) { m.moe.groups.value = 3; }},
        Breakage{"inconsistent-model", "at most groups = 1, got 2",
                 [](ModelSpec &m) { m.moe.top_groups.value = 2; }},
        Breakage{"inconsistent-model", "1 groups of 2 experts are fewer than top_k = 4",
                 [](ModelSpec &m) { m.moe.groups.value = 8; }},
        Breakage{"missing-key", "width", [](ModelSpec &m) { m.moe.width.value = 0; }},
        Breakage{"inconsistent-model", "dense_layers = 4, got 0",
                 [](ModelSpec &m) { m.moe.routed.value = 0; }},
        Breakage{"inconsistent-model", "at most layers = 4, got 5",
                 [](ModelSpec &m) {
                   m.moe.dense_layers.value = 5;
                   m.moe.dense_width.value = 64;
                 }},
        Breakage{"missing-key", "dense_width", [](ModelSpec &m) { m.moe.dense_layers.value = 1; }},
        Breakage{"inconsistent-model", "0 to 3, got 4", [](ModelSpec &m) { m.engram.layers.value = {1, 4}; }},
        Breakage{"inconsistent-model", "got 1 after 1", [](ModelSpec &m) { m.engram.layers.value = {1, 1}; }},
        Breakage{"inconsistent-model", "expected 2, got 1",
                 [](ModelSpec &m) { m.engram.multipliers.value = {{1, 3}}; }},
        Breakage{"inconsistent-model", "expected 2, got 3",
                 [](ModelSpec &m) { m.engram.multipliers.value = {{1, 3}, {1, 3, 5}}; }},
        Breakage{"inconsistent-model", "got 4",
                 [](ModelSpec &m) { m.engram.multipliers.value = {{1, 3}, {1, 4}}; }},
        Breakage{"unknown-choice", "'safetensors:'",
                 [](ModelSpec &m) { m.weights.value = "safetensors:"; }}));

TEST(CheckModel, an_override_is_to_blame_for_a_conflict_with_the_used_file) {
  ModelSpec model = gqa_model();
  model.attention.compress_ratios = std::vector<int64_t>{0, 0, 0, 0};
  model.attention.compress_ratios.where = {"model.toml", 9, 1, 2};
  model.layers = int64_t{6};
  model.layers.where = {"topology.toml", 3, 1, 2};
  model.layers.written = true;
  Diagnostics diagnostics;
  check(model, diagnostics);
  ASSERT_EQ(diagnostics.all().size(), 1u);
  EXPECT_EQ(diagnostics.all()[0].where.file, "topology.toml");
  ASSERT_EQ(diagnostics.all()[0].notes.size(), 1u);
  EXPECT_EQ(diagnostics.all()[0].notes[0].where.file, "model.toml");
}

LayoutSpec chain_of_axes(size_t count) {
  LayoutSpec layout;
  layout.world_max_of.value = {{"a0"}};
  for (size_t i = 0; i < count; ++i) {
    NamedAxis axis;
    axis.name = fmt::format("a{}", i);
    if (i + 1 < count)
      axis.size.value.product_of = {fmt::format("a{}", i + 1)};
    else
      axis.size.value.size = 2;
    layout.axes.push_back(axis);
  }
  return layout;
}

TEST(CheckLayout, a_chain_of_products_may_be_long_but_not_endless) {
  Diagnostics diagnostics;
  check(chain_of_axes(most_axes), diagnostics);
  EXPECT_FALSE(diagnostics.has_errors());
  check(chain_of_axes(100000), diagnostics);
  ASSERT_EQ(diagnostics.all().size(), 1u);
  EXPECT_EQ(diagnostics.all()[0].code, "too-many-axes");
  EXPECT_EQ(diagnostics.all()[0].message, "expected at most 64 axes, got 100000");
}

} // namespace
} // namespace paratope
