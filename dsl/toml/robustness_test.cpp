// SPDX-License-Identifier: Apache-2.0
//
// No bytes crash the reader: every shipped file cut at every byte, and with random bytes changed. Run under
// the sanitizers this is the test that counts.
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dsl/diagnostic/render.h"
#include "dsl/toml/read.h"
#include "dsl/toml/write.h"

namespace paratope {
namespace {

const std::string topologies = PARATOPE_SOURCE_DIR "/topologies/";

std::string text_of(const std::filesystem::path &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> files_in(const std::string &folder) {
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(topologies + folder))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// What must hold whatever was read: a value or an error, and errors fit to be shown.
void expect_sound(bool has_value, const Diagnostics &diagnostics, const std::string &context) {
  EXPECT_NE(has_value, diagnostics.has_errors()) << context;
  for (const Diagnostic &diagnostic : diagnostics.all()) {
    EXPECT_FALSE(diagnostic.code.empty()) << context;
    EXPECT_FALSE(diagnostic.message.empty()) << context;
    EXPECT_FALSE(diagnostic.message.ends_with('.')) << context << ": " << diagnostic.message;
    EXPECT_FALSE(diagnostic.where.file.empty()) << context;
    if (diagnostic.where.known()) {
      EXPECT_GE(diagnostic.where.column, 1) << context;
      EXPECT_GE(diagnostic.where.end_column, diagnostic.where.column)
          << context << ": " << diagnostic.message;
    }
  }
}

void read_and_judge(const std::string &text, const std::string &file, const std::string &context) {
  Diagnostics diagnostics;
  diagnostics.add_source(file, text); // what is shown is what was read
  const auto topology = read_topology_text(text, file, {}, {}, diagnostics);
  expect_sound(topology.has_value(), diagnostics, context);
  std::ostringstream shown;
  render(shown, diagnostics, {});
  if (topology) {
    EXPECT_FALSE(write_topology(*topology).empty());
  }
}

std::string mutated(std::string text, std::mt19937 &random) {
  constexpr std::string_view favourites = "\"'[]{}=.,#\n\r\\0-\xEF\xFF\x00";
  for (uint32_t changes = 1 + random() % 6; changes > 0 && !text.empty(); --changes) {
    const size_t at = random() % text.size();
    const char byte = random() % 2 ? favourites[random() % favourites.size()] : static_cast<char>(random());
    switch (random() % 4) {
    case 0:
      text.insert(at, 1, byte);
      break;
    case 1:
      text.erase(at, 1 + random() % 8);
      break;
    case 2: // a piece of itself, somewhere else
      text.insert(at, text.substr(random() % text.size(), random() % 40));
      break;
    default:
      text[at] = byte;
    }
  }
  return text;
}

class Topology : public testing::TestWithParam<std::string> {};

TEST_P(Topology, cut_at_every_byte) {
  const std::string text = text_of(GetParam());
  for (size_t size = 0; size <= text.size(); ++size)
    read_and_judge(text.substr(0, size), GetParam(), "cut at " + std::to_string(size));
}

TEST_P(Topology, with_random_changes) {
  const std::string text = text_of(GetParam());
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    read_and_judge(mutated(text, random), GetParam(), "seed " + std::to_string(seed));
  }
}

std::string test_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Shipped, Topology, testing::ValuesIn(files_in("deepinfer")), test_name);

// Library files are read from disk, where users' editors cut them.
template <class Read> void mutate_library(const std::string &folder, const Read &read) {
  const std::string damaged = testing::TempDir() + "paratope_damaged_" + folder + ".toml";
  for (const std::string &file : files_in(folder)) {
    const std::string text = text_of(file);
    auto judge = [&](const std::string &bytes, const std::string &context) {
      std::ofstream(damaged, std::ios::binary) << bytes;
      Diagnostics diagnostics;
      const bool has_value = read(damaged, diagnostics).has_value();
      expect_sound(has_value, diagnostics, file + " " + context);
    };
    for (size_t size = 0; size <= text.size(); ++size)
      judge(text.substr(0, size), "cut at " + std::to_string(size));
    for (uint32_t seed = 0; seed < 500; ++seed) {
      std::mt19937 random(seed);
      judge(mutated(text, random), "seed " + std::to_string(seed));
    }
  }
}

TEST(Robustness, layouts) { mutate_library("layouts", read_layout); }
TEST(Robustness, models) { mutate_library("models", read_model); }
TEST(Robustness, machines) { mutate_library("machines", read_machine); }

TEST(Robustness, settings) {
  std::mt19937 random(7);
  const std::string text = text_of(topologies + "deepinfer/decode-ep8.toml");
  for (int i = 0; i < 1500; ++i) {
    Diagnostics diagnostics;
    ReadOptions options;
    options.settings = {mutated("workload.routing.kind=\"zipf\"", random),
                        mutated("axes={ep=[\"dp\",'cp']}", random)};
    const auto topology = read_topology_text(text, topologies + "deepinfer/x.toml", {}, options, diagnostics);
    expect_sound(topology.has_value(), diagnostics, options.settings[0] + " and " + options.settings[1]);
    std::ostringstream shown;
    render(shown, diagnostics, {});
  }
}

// Twenty thousand of each thing there can be many of: cost is in proportion to size.
TEST(Robustness, floods) {
  const std::string head = text_of(topologies + "deepinfer/decode-ep8.toml");
  auto flood = [&](const std::string &before, auto &&item) {
    std::string text = head + before;
    for (int i = 0; i < 20000; ++i)
      text += item(i);
    return text;
  };
  const std::vector<std::string> floods = {
      flood("[variant.x.axes]\n", [](int i) { return fmt::format("a{} = [\"zz\"]\n", 20000 - i); }),
      flood("[group]\n", [](int i) { return fmt::format("g{} = \"(a{} b) -> a b\"\n", 20000 - i, i); }),
      flood("[engram]\n", [](int i) { return fmt::format("k{} = {}\n", i, i); }),
      flood("", [](int i) { return fmt::format("[variant.v{}]\nmoe = {{ exchange = \"x\" }}\n", i); }),
      flood("[mesh]\nrank_map = [", [](int i) { return fmt::format("{}, ", i / 2); }) + "]\n",
      flood("[mesh]\nrank_map = [", [](int i) { return fmt::format("\"{}\",\n", i); }) + "]\n",
  };
  for (const std::string &text : floods)
    for (const std::vector<std::string> &variants :
         {std::vector<std::string>{}, std::vector<std::string>{"x"}}) {
      Diagnostics diagnostics;
      const auto topology =
          read_topology_text(text, topologies + "deepinfer/x.toml", variants, {}, diagnostics);
      expect_sound(topology.has_value(), diagnostics, text.substr(head.size(), 40));
    }
}

} // namespace
} // namespace paratope
