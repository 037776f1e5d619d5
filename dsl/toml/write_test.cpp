// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "dsl/diagnostic/render.h"
#include "dsl/toml/read.h"
#include "dsl/toml/spec_values.h"
#include "dsl/toml/write.h"

namespace paratope {
namespace {

const std::string topologies = PARATOPE_SOURCE_DIR "/topologies/";

TopologySpec read_back(const std::string &text) {
  Diagnostics diagnostics;
  auto topology = read_topology_text(text, topologies + "deepinfer/written.toml", {}, {}, diagnostics);
  std::ostringstream out;
  render(out, diagnostics, {});
  EXPECT_TRUE(topology) << out.str() << text;
  return topology.value_or(TopologySpec{});
}

// Every shipped topology, alone and with each of its variants.
std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(topologies + "deepinfer")) {
    names.push_back(entry.path().string());
    for (const std::string &variant : list_variants(entry.path().string()))
      names.push_back(entry.path().string() + "#" + variant);
  }
  return names;
}

TEST(Write, what_was_written_comes_back_the_same) {
  for (const std::string &name : shipped()) {
    Diagnostics diagnostics;
    const auto first = read_topology(name, {}, diagnostics);
    ASSERT_TRUE(first) << name;
    const std::string text = write_topology(*first);
    const TopologySpec second = read_back(text);
    EXPECT_EQ(differences(values_of(*first), values_of(second)), "") << name;
    EXPECT_EQ(write_topology(second), text) << name;
  }
}

TEST(Write, in_full_the_values_come_back_the_same) {
  for (const std::string &name : shipped()) {
    Diagnostics diagnostics;
    const auto first = read_topology(name, {}, diagnostics);
    ASSERT_TRUE(first) << name;
    const TopologySpec second = read_back(write_full(*first, first->layout));
    auto expected = values_of(*first, false), got = values_of(second, false);
    for (const char *use : {"machine.use", "model.use"}) // written out
      EXPECT_TRUE(expected.erase(use) && got.erase(use));
    EXPECT_EQ(differences(expected, got), "") << name;
  }
}

TEST(Write, in_full_the_layout_is_left_to_its_name_only_when_it_is_known) {
  Diagnostics diagnostics;
  const auto topology = read_topology(topologies + "deepinfer/decode-ep8.toml", {}, diagnostics);
  ASSERT_TRUE(topology);
  EXPECT_EQ(write_full(*topology, topology->layout).find("[group]"), std::string::npos);
  EXPECT_NE(write_full(*topology).find("cpu_cp = \"(rest cp) -> rest cp\""), std::string::npos);
}

TEST(Write, in_full_a_use_stays_when_there_is_nothing_else) {
  TopologySpec topology;
  topology.model.use.value = "deepseek-v3";
  EXPECT_NE(write_full(topology).find("[model]\nuse = \"deepseek-v3\"\n"), std::string::npos);
}

TEST(Write, spells_every_string_and_number) {
  TopologySpec topology;
  auto set = [](auto &field, auto value) {
    field.value = value;
    field.written = true;
  };
  set(topology.version, int64_t{1});
  set(topology.name, std::string("a \"b\" \\ c\n\t\r\x01\x7f é 日本"));
  set(topology.layout_name, std::string("deepinfer"));
  set(topology.machine.use, std::string("h200-nvl8-ib400"));
  set(topology.model.use, std::string("deepseek-v4.1-flash"));
  set(topology.workload.routing.s, 1.0 / 3);
  set(topology.workload.routing.kind, std::string("zipf"));
  set(topology.model.rms_eps, 1e-20);
  set(topology.model.moe.scaling, 2.0);
  set(topology.machine.gpu_memory_gb, 1e8);
  NamedGroup group;
  group.name = "g";
  set(group.patterns, std::vector<std::string>{"(x dp) -> x dp", "(a b) -> a b"});
  topology.groups.push_back(group);
  const TopologySpec back = read_back(write_topology(topology));
  EXPECT_EQ(*back.name, *topology.name);
  EXPECT_EQ(*back.workload.routing.s, 1.0 / 3);
  EXPECT_EQ(*back.model.rms_eps, 1e-20);
  EXPECT_EQ(*back.model.moe.scaling, 2.0);
  EXPECT_EQ(*back.machine.gpu_memory_gb, 1e8);
  EXPECT_EQ(*back.groups.at(0).patterns, *group.patterns);
}

// Sets fields to random legal values, and some not at all.
class RandomFiller final : public FieldVisitor {
public:
  explicit RandomFiller(uint32_t seed) : random(seed) {}

  void integer(const char *, Field<int64_t> &field, IntegerRange range, Need, const char *) override {
    set(field, number_in(range));
  }
  void number(const char *, Field<double> &field, NumberRange range, Need, const char *) override {
    const double most = std::min(range.most, range.least + 1e6);
    set(field, std::uniform_real_distribution<double>(std::nextafter(range.least, most), most)(random));
  }
  void boolean(const char *, Field<bool> &field, Need, const char *) override {
    set(field, random() % 2 == 0);
  }
  void text(const char *, Field<std::string> &, Need, const char *) override {} // names of files, mostly
  void choice(const char *, Field<std::string> &field, std::vector<std::string> choices, Need,
              const char *) override {
    set(field, choices[random() % choices.size()]);
  }
  void integers(const char *, Field<std::vector<int64_t>> &field, IntegerRange each, Need,
                const char *) override {
    set(field, list_in(each, random() % 4));
  }
  void integer_or_list(const char *, Field<std::vector<int64_t>> &field, IntegerRange each, Need,
                       const char *) override {
    set(field, list_in(each, 1 + random() % 4));
  }
  void integer_rows(const char *, Field<std::vector<std::vector<int64_t>>> &field, IntegerRange each, Need,
                    const char *) override {
    set(field, {list_in(each, 2), list_in(each, 0)});
  }
  void texts(const char *, Field<std::vector<std::string>> &field, Need, const char *) override {
    set(field, words());
  }
  void text_rows(const char *, Field<std::vector<std::vector<std::string>>> &field, Need,
                 const char *) override {
    set(field, {words(), words()});
  }
  void auto_or_choices(const char *, Field<std::vector<std::string>> &field, std::vector<std::string> choices,
                       Need, const char *) override {
    std::vector<std::string> some(choices.begin(),
                                  choices.begin() + static_cast<long>(random() % choices.size()));
    set(field, random() % 2 ? std::vector<std::string>{"auto"} : some);
  }
  void axis_sizes(const char *, std::vector<NamedAxis> &, const char *) override {}
  void groups(const char *, std::vector<NamedGroup> &, const char *) override {}
  void table(const char *, Need, const char *, const std::function<void(FieldVisitor &)> &body) override {
    body(*this);
  }

private:
  template <class T> void set(Field<T> &field, T value) {
    if (random() % 3 == 0)
      return;
    field.value = std::move(value);
    field.written = true;
  }
  int64_t number_in(const IntegerRange &range) {
    return std::uniform_int_distribution<int64_t>(range.least, range.most)(random);
  }
  std::vector<int64_t> list_in(const IntegerRange &each, size_t size) {
    std::vector<int64_t> list(size);
    for (int64_t &item : list)
      item = number_in(each);
    return list;
  }
  std::vector<std::string> words() {
    std::vector<std::string> list(random() % 3);
    for (std::string &word : list)
      for (uint32_t i = random() % 6; i > 0; --i)
        word += static_cast<char>(random() % 128);
    return list;
  }
  std::mt19937 random;
};

TEST(Write, random_specs_come_back_the_same) {
  Diagnostics diagnostics;
  const auto base = read_topology(topologies + "deepinfer/decode-ep8.toml", {}, diagnostics);
  ASSERT_TRUE(base);
  for (uint32_t seed = 0; seed < 500; ++seed) {
    TopologySpec topology = *base;
    RandomFiller filler(seed);
    describe(filler, topology.moe);
    describe(filler, topology.attention);
    describe(filler, topology.engram);
    describe(filler, topology.engine);
    describe(filler, topology.schedule);
    describe(filler, topology.workload);
    topology.workload.phase.value = "decode"; // the kinds that call for no other key
    topology.workload.routing.kind.value = "zipf";
    topology.workload.phase.written = topology.workload.routing.kind.written = true;
    EXPECT_EQ(differences(values_of(topology), values_of(read_back(write_topology(topology)))), "") << seed;
  }
}

} // namespace
} // namespace paratope
