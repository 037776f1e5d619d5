// SPDX-License-Identifier: Apache-2.0
#include "dsl/hf/import.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dsl/spec/check.h"

namespace paratope {
namespace {

std::string shipped(const std::string &name) {
  std::ifstream file(PARATOPE_SOURCE_DIR "/tests/language/Inputs/hf/" + name);
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::vector<std::string> names = {
    "deepseek-v3.json",  "deepseek-v4-flash.json", "deepseek-v4.1-flash.json", "qwen3-235b-a22b.json",
    "mixtral-8x7b.json", "gpt-oss-120b.json",      "llama-3-70b.json"};

// "line code message" of each finding.
std::string said(const Diagnostics &diagnostics) {
  std::string text;
  for (const Diagnostic &each : diagnostics.all())
    text += fmt::format("{} {} {}\n", each.where.line, each.code, each.message);
  return text;
}

std::string edited(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Import, EveryPublicConfigurationIsAModelThatChecks) {
  for (const std::string &name : names) {
    ModelSpec model;
    Diagnostics diagnostics;
    EXPECT_TRUE(import_hf(shipped(name), name, model, diagnostics)) << name << "\n" << said(diagnostics);
    check(model, diagnostics);
    EXPECT_FALSE(diagnostics.has_errors()) << name << "\n" << said(diagnostics);
    EXPECT_EQ(*model.name + ".json", name);
    EXPECT_FALSE(model.hidden.written);
    EXPECT_EQ(model.hidden.where.file, name);
    EXPECT_GT(model.hidden.where.line, 1);
  }
}

TEST(Import, NamesAModelAfterItsFolder) {
  ModelSpec model;
  Diagnostics diagnostics;
  import_hf(shipped(names[0]), "models/Deep-3/config.json", model, diagnostics);
  EXPECT_EQ(*model.name, "Deep-3");
  import_hf(shipped(names[0]), "config.json", model, diagnostics);
  EXPECT_EQ(*model.name, "imported");
}

TEST(Import, DraftLayersRatiosAreDropped) {
  ModelSpec model;
  Diagnostics diagnostics;
  ASSERT_TRUE(import_hf(shipped("deepseek-v4-flash.json"), "a.json", model, diagnostics));
  EXPECT_EQ(model.attention.compress_ratios->size(), 43u);
  EXPECT_EQ(model.attention.compress_ratios->at(3), 128);
}

// What is not computed is said, each thing once.
TEST(Import, LeavingOutIsSaid) {
  struct Case {
    std::string name;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"deepseek-v3.json", {"32 left-out computed without rope_scaling = {type: \"yarn\""}},
      {"deepseek-v4-flash.json",
       {"without index_topk = 512", "without num_hash_layers = 3", "rope_scaling", "overlaps"}},
      {"deepseek-v4.1-flash.json",
       {"text_config.kv_source_layer_ids = [2, 8, 14, 20]", "text_config.index_topk", "vision_config",
        "engram_layer_ids"}},
      {"qwen3-235b-a22b.json", {"heads of queries and keys are not normalised"}},
      {"mixtral-8x7b.json", {}},
      {"gpt-oss-120b.json",
       {"attention_bias = true", "rope_scaling", "1.702", "the gate's logits have no bias"}},
      {"llama-3-70b.json", {}},
  };
  for (const Case &each : cases) {
    ModelSpec model;
    Diagnostics diagnostics;
    ASSERT_TRUE(import_hf(shipped(each.name), each.name, model, diagnostics)) << said(diagnostics);
    EXPECT_EQ(diagnostics.count(Severity::warning), each.parts.size()) << each.name << "\n"
                                                                       << said(diagnostics);
    for (const std::string &part : each.parts)
      EXPECT_NE(said(diagnostics).find(part), std::string::npos) << each.name << ": " << part << "\n"
                                                                 << said(diagnostics);
  }
}

TEST(Import, FaultsAreFoundAtTheirPlace) {
  struct Case {
    std::string name, from, to, expected;
  };
  const Case cases[] = {
      {"deepseek-v3.json", "\"hidden_size\": 7168", "\"hidden_size\": \"7168\"",
       "10 wrong-type hidden_size expects an integer, got string \"7168\""},
      {"deepseek-v3.json", "\"hidden_size\": 7168", "\"hidden_size\": 0",
       "10 out-of-range hidden_size expects an integer from 1 to 1048576, got 0"},
      {"deepseek-v3.json", "\"hidden_size\": 7168", "\"hiden_size\": 7168",
       "10 unknown-key hiden_size is not known of a deepseek_v3"},
      {"deepseek-v3.json", "\"hidden_size\": 7168,", "",
       "1 missing-key a deepseek_v3 has the key hidden_size"},
      {"deepseek-v3.json", "\"hidden_size\": 7168", "\"hidden_size\": null",
       "1 missing-key a deepseek_v3 has the key hidden_size"},
      {"deepseek-v3.json", "\"deepseek_v3\"", "\"deepseek_v33\"",
       "15 unknown-architecture no model of type 'deepseek_v33' can be imported"},
      {"deepseek-v3.json", "\"deepseek_v3\"", "3",
       "15 wrong-type model_type expects a string, got integer 3"},
      {"deepseek-v3.json", "\"model_type\": \"deepseek_v3\",", "",
       "1 missing-key a configuration says what it is of"},
      {"deepseek-v3.json", "\"silu\"", "\"gelu\"",
       "9 unsupported hidden_act expects \"silu\": experts and dense layers compute silu"},
      {"deepseek-v3.json", "\"noaux_tc\"", "\"greedy\"", "38 unsupported topk_method expects \"noaux_tc\": "},
      {"deepseek-v3.json", "\"sigmoid\"", "\"sigmoids\"",
       "35 unknown-choice scoring_func expects one of softmax, sigmoid, sqrtsoftplus, got 'sigmoids'"},
      {"deepseek-v3.json", "\"norm_topk_prob\": true", "\"norm_topk_prob\": 1",
       "21 wrong-type norm_topk_prob expects true or false, got integer 1"},
      {"deepseek-v3.json", "1e-06", "7",
       "31 out-of-range rms_norm_eps expects a number above 0 and at most 1"},
      {"deepseek-v3.json", "1e-06", "[]", "31 wrong-type rms_norm_eps expects a number, got an array"},
      {"deepseek-v3.json", "{\n", "[{\n", "json-syntax"},
      {"deepseek-v4-flash.json", "\"hc_sinkhorn_iters\": 20", "\"hc_sinkhorn_iters\": 5",
       "14 unsupported hc_sinkhorn_iters expects 20: 20 Sinkhorn iterations are computed, got 5"},
      {"deepseek-v4-flash.json", "0, 0,\n", "\"0\", 0,\n",
       "5 wrong-type compress_ratios[0] expects an integer"},
      {"deepseek-v4-flash.json", "\"compress_ratios\"", "\"compres_ratios\"",
       "1 missing-key the model's layers are told apart by the key compress_ratios"},
      {"deepseek-v4.1-flash.json", "\"text_config\": {", "\"text_config\": null, \"x\": {",
       "7 wrong-type a deepseek_v41 has an object text_config"},
      {"deepseek-v4.1-flash.json", "\"engram_n_heads\": 8,", "",
       "missing-key engram layers need the key text_config.engram_n_heads"},
      {"deepseek-v4.1-flash.json", "\"dtype\"", "\"hidden_size\"",
       "unknown-key hidden_size is not known of a deepseek_v41 outside"},
      {"mixtral-8x7b.json", "\"hidden_size\": 4096", "\"hidden_size\": 4097",
       "5 inconsistent-model without head_dim a head is hidden_size / num_attention_heads wide: 4097"},
      {"gpt-oss-120b.json", "\"full_attention\"", "\"linear_attention\"",
       "12 unsupported layer_types expects sliding_attention or full_attention, got string "
       "\"linear_attention\""},
      {"gpt-oss-120b.json", "\"num_hidden_layers\": 36", "\"num_hidden_layers\": 35",
       "11 inconsistent-model layer_types expects an array of 35 entries"},
      {"gpt-oss-120b.json", "\"sliding_window\": 128", "\"sliding_window\": \"128\"",
       "wrong-type sliding_window expects an integer"},
      {"qwen3-235b-a22b.json", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]",
       "12 unsupported mlp_only_layers expects []: every layer has experts, got [3]"},
      {"llama-3-70b.json", "\"rope_scaling\": null", "\"rope_parameters\": 7",
       "18 wrong-type rope_parameters expects an object, got integer 7"},
  };
  for (const Case &each : cases) {
    ModelSpec model;
    Diagnostics diagnostics;
    EXPECT_FALSE(import_hf(edited(shipped(each.name), each.from, each.to), each.name, model, diagnostics))
        << each.to;
    EXPECT_NE(said(diagnostics).find(each.expected), std::string::npos) << each.expected << "\n"
                                                                        << said(diagnostics);
  }
  ModelSpec model;
  Diagnostics diagnostics;
  EXPECT_FALSE(import_hf("[]", "a.json", model, diagnostics));
  EXPECT_EQ(said(diagnostics), "1 wrong-type a configuration is an object, got an array\n");
}

TEST(Import, AllFaultsAreFoundAtOnce) {
  std::string text = edited(shipped("deepseek-v3.json"), "\"silu\"", "\"gelu\"");
  text = edited(text, "\"v_head_dim\": 128", "\"v_head_dims\": 128");
  text = edited(text, "\"vocab_size\": 129280", "\"vocab_size\": -1");
  ModelSpec model;
  Diagnostics diagnostics;
  EXPECT_FALSE(import_hf(text, "a.json", model, diagnostics));
  EXPECT_EQ(diagnostics.count(Severity::error), 4u) << said(diagnostics); // v_head_dim is missing, too
}

TEST(Import, RopeParametersOfNewerFilesAreRead) {
  const std::string text =
      edited(shipped("llama-3-70b.json"), "\"rope_theta\": 500000.0",
             "\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 7, \"factor\": 8}");
  ModelSpec model;
  Diagnostics diagnostics;
  EXPECT_TRUE(import_hf(text, "a.json", model, diagnostics)) << said(diagnostics);
  EXPECT_EQ(*model.attention.rope_theta, 7);
  EXPECT_NE(said(diagnostics).find("computed without rope_parameters.rope_type"), std::string::npos);
}

// No damage to a file is more than a finding: each prefix, and each byte replaced by ones that the grammar
// knows.
TEST(Import, DamagedFilesAreFindings) {
  for (const std::string &name : {std::string("deepseek-v3.json"), std::string("deepseek-v4.1-flash.json"),
                                  std::string("gpt-oss-120b.json")}) {
    const std::string text = shipped(name);
    auto damage = [&](const std::string &damaged) {
      ModelSpec model;
      Diagnostics diagnostics;
      const bool good = import_hf(damaged, "a.json", model, diagnostics);
      EXPECT_EQ(good, !diagnostics.has_errors());
    };
    for (size_t size = 0; size < text.size(); ++size)
      damage(text.substr(0, size));
    for (size_t i = 0; i < text.size(); ++i)
      for (char c : {'{', '"', ']', '9', '\0', '\xff'}) {
        std::string damaged = text;
        damaged[i] = c;
        damage(damaged);
      }
  }
}

} // namespace
} // namespace paratope
