// SPDX-License-Identifier: Apache-2.0
//
// `[model] hf = …` as a topology sees it: beside `use`, under variants and settings, and on the way back to
// text.
#include <filesystem>

#include <gtest/gtest.h>

#include "dsl/spec/check.h"
#include "dsl/toml/read.h"
#include "dsl/toml/spec_values.h"
#include "dsl/toml/write.h"

namespace paratope {
namespace {

const std::string root = PARATOPE_SOURCE_DIR;
const std::string configs = root + "/tests/language/Inputs/hf/";

std::string topology(const std::string &model, const std::string &more = "") {
  return "topology = 1\nname = \"t\"\nlayout = \"deepinfer\"\n[machine]\nuse = "
         "\"h200-nvl8-ib400\"\n[model]\n" +
         model + "\n" + more;
}

struct Reading {
  std::optional<TopologySpec> spec;
  std::string said; // "file:line:column code message", a line each
};

Reading read(const std::string &text, std::vector<std::string> settings = {},
             std::vector<std::string> variants = {}) {
  Diagnostics diagnostics;
  ReadOptions options{.settings = std::move(settings), .search = {root + "/topologies"}};
  Reading reading{read_topology_text(text, configs + "t.toml", variants, options, diagnostics), ""};
  for (const Diagnostic &each : diagnostics.all()) {
    reading.said += fmt::format("{}:{}:{} {} {}\n", each.where.file.substr(each.where.file.rfind('/') + 1),
                                each.where.line, each.where.column, each.code, each.message);
    for (const Note &note : each.notes)
      reading.said += fmt::format("  note {}:{} {}\n", note.where.line, note.where.column, note.message);
  }
  return reading;
}

// Every key that both a public configuration and the shipped model state has the same value in both.
TEST(ImportedModel, EqualsTheShippedOne) {
  for (const std::string name : {"deepseek-v3", "deepseek-v4.1-flash", "qwen3-235b-a22b", "mixtral-8x7b",
                                 "gpt-oss-120b", "llama-3-70b"}) {
    Diagnostics diagnostics;
    std::optional<ModelSpec> shipped = read_model(root + "/topologies/models/" + name + ".toml", diagnostics);
    Reading reading = read(topology("hf = \"" + name + ".json\""));
    ASSERT_TRUE(shipped && reading.spec) << name << "\n" << reading.said;
    SpecValues ours, theirs;
    ours.marks = theirs.marks = false;
    describe(ours, reading.spec->model);
    describe(theirs, *shipped);
    for (const char *key : {"hf", "summary"}) // no key of the other
      ours.values.erase(key), theirs.values.erase(key);
    if (name == "deepseek-v4.1-flash") // model data that a configuration does not have
      theirs.values["engram.multipliers"] = ours.values["engram.multipliers"];
    EXPECT_EQ(differences(ours.values, theirs.values), "") << name;
  }
}

TEST(ImportedModel, KeysBesideItWin) {
  Reading reading = read(topology("hf = \"mixtral-8x7b.json\"\nhidden = 64\nattention.heads = 8"));
  ASSERT_TRUE(reading.spec) << reading.said;
  EXPECT_EQ(*reading.spec->model.hidden, 64);
  EXPECT_TRUE(reading.spec->model.hidden.written);
  EXPECT_FALSE(reading.spec->model.layers.written);
  EXPECT_EQ(*reading.spec->model.attention.heads, 8);
  EXPECT_EQ(*reading.spec->model.attention.head_dim, 128); // as the configuration has it
}

TEST(ImportedModel, IsWrittenAsItWasAndInFull) {
  Reading reading = read(topology("hf = \"qwen3-235b-a22b.json\"\nseed = 3"));
  ASSERT_TRUE(reading.spec) << reading.said;
  const std::string written = write_topology(*reading.spec);
  EXPECT_NE(written.find("hf = \"qwen3-235b-a22b.json\""), std::string::npos);
  EXPECT_EQ(written.find("hidden"), std::string::npos) << written;
  Reading again = read(written);
  ASSERT_TRUE(again.spec) << again.said;
  EXPECT_EQ(differences(values_of(*reading.spec), values_of(*again.spec)), "");

  const std::string full = write_full(*reading.spec, reading.spec->layout);
  EXPECT_EQ(full.find("hf ="), std::string::npos);
  Reading plain = read(full);
  ASSERT_TRUE(plain.spec) << plain.said << full;
  reading.spec->model.hf.value.clear();
  reading.spec->machine.use.value.clear();
  EXPECT_EQ(differences(values_of(*reading.spec, false), values_of(*plain.spec, false)), "");
}

TEST(ImportedModel, SettingsAndVariantsTurnToIt) {
  const std::string used = topology("use = \"deepseek-v3\"", "[variant.m]\nmodel.hf = \"mixtral-8x7b.json\"\n"
                                                             "[variant.v]\nmodel.use = \"llama-3-70b\"\n");
  Reading set = read(used, {"model.hf=" + configs + "mixtral-8x7b.json"});
  ASSERT_TRUE(set.spec) << set.said;
  EXPECT_EQ(*set.spec->model.name, "mixtral-8x7b");
  EXPECT_TRUE(set.spec->model.use->empty());
  Reading variant = read(used, {}, {"m"});
  ASSERT_TRUE(variant.spec) << variant.said;
  EXPECT_EQ(*variant.spec->model.moe.routed, 8);
  Reading back = read(topology("hf = \"mixtral-8x7b.json\""), {"model.use=llama-3-70b"});
  ASSERT_TRUE(back.spec) << back.said;
  EXPECT_EQ(*back.spec->model.layers, 80);
  EXPECT_TRUE(back.spec->model.hf->empty());
}

TEST(ImportedModel, FaultsSayWhereTheFileIsNamed) {
  EXPECT_NE(
      read(topology("use = \"deepseek-v3\"\nhf = \"mixtral-8x7b.json\""))
          .said.find("t.toml:8:6 two-sources a model is read from one file, got use = 'deepseek-v3' and hf = "
                     "'mixtral-8x7b.json'"),
      std::string::npos);
  EXPECT_NE(read(topology("hf = \"missing.json\"")).said.find("t.toml:7:6 file-not-found hf: no such file: "),
            std::string::npos);
  EXPECT_NE(read(topology("hf = \"../hf\"")).said.find("t.toml:7:6 file-not-found"), std::string::npos);
  EXPECT_NE(read(topology("hf = \"t.toml.json\"", "[variant.a]\nmodel.hf = \"no.json\""))
                .said.find("t.toml:9:12 file-not-found"),
            std::string::npos);
  const Reading number = read(topology("hf = 3"));
  EXPECT_NE(number.said.find("t.toml:7:6 wrong-type hf expects a string, got the integer 3"),
            std::string::npos)
      << number.said;
  const Reading wrong = read(topology("hf = \"../broken-model.toml\""));
  EXPECT_NE(wrong.said.find("broken-model.toml:1:1 json-syntax"), std::string::npos) << wrong.said;
  EXPECT_NE(wrong.said.find("note 7:6 '../broken-model.toml' is used here"), std::string::npos) << wrong.said;
  // Values that do not go together are at the configuration's place, and say who named it.
  const Reading disagree = read(topology("hf = \"mixtral-8x7b.json\"\nmoe.groups = 3"));
  EXPECT_NE(disagree.said.find("8:14 inconsistent-model"), std::string::npos) << disagree.said;
  // A model's own file names no other.
  Diagnostics diagnostics;
  EXPECT_FALSE(read_model(configs + "../hf/model-with-hf.toml", diagnostics));
}

// A directory of weights lies beside the file that names it; of a setting, where the command is run.
TEST(ImportedModel, WeightsAreBelowTheFileThatNamesThem) {
  const std::string here = std::filesystem::current_path().string();
  Reading file = read(topology("hf = \"mixtral-8x7b.json\"\nweights = \"safetensors:../w\""));
  ASSERT_TRUE(file.spec) << file.said;
  EXPECT_EQ(placed_weights(file.spec->model), "safetensors:" + root + "/tests/language/Inputs/w");
  Reading set = read(topology("hf = \"mixtral-8x7b.json\""), {"model.weights=safetensors:w"});
  ASSERT_TRUE(set.spec) << set.said;
  EXPECT_EQ(placed_weights(set.spec->model), "safetensors:" + here + "/w");
  Reading absolute = read(topology("hf = \"mixtral-8x7b.json\"\nweights = \"safetensors:/w/x\""));
  EXPECT_EQ(placed_weights(absolute.spec->model), "safetensors:/w/x");
  EXPECT_EQ(placed_weights(read(topology("use = \"llama-3-70b\"")).spec->model), "synthetic");
}

} // namespace
} // namespace paratope
