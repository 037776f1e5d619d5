// SPDX-License-Identifier: Apache-2.0
//
// A random legal topology: what its file says, the file itself, and the few numbers that follow from it and
// that rules are about. The generator knows the language's rules and draws only what they allow; a topology
// of its making that the compiler refuses is a fault of one of the two.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "document.h"
#include "dsl/spec/topology.h"
#include "rng.h"

namespace paratope::random {

// The files a topology may name.
struct Library {
  std::vector<std::string> search; // directories with layouts/, models/ and machines/
  std::map<std::string, ModelSpec> models;
  std::map<std::string, MachineSpec> machines;
  std::map<std::string, LayoutSpec> layouts;
};

// Everything under `directories`. Throws std::runtime_error where a shipped file cannot be read.
Library read_library(const std::vector<std::string> &directories);

struct Topology {
  TopologySpec spec; // defaults and used files filled in; spec.axes has every axis with its number
  TopologySpec used; // what the file's defaults and used files say by themselves
  Document document;
  int64_t steps = 1;

  std::map<std::string, int64_t> sizes; // of every axis; 1 where the layout has none
  int64_t team = 1;                     // ranks dp·cp·tp
  int64_t world = 1;
  int64_t serving = 1;  // ranks with an engine: those beyond hold Engram rows only
  bool experts = false; // some layer has routed experts

  int64_t size(const std::string &axis) const;
  bool is(const std::string &kind) const { return *spec.model.attention.kind == kind; }
  bool prefill() const { return *spec.workload.phase == "prefill"; }
  bool has_engram() const { return !spec.model.engram.layers->empty(); }
  // A group's patterns: the file's own or the layout's; {} when there is no such group.
  std::vector<std::string> patterns(const std::string &group) const;
  // Group of each rank and place in it. Asserts that the patterns are good.
  std::vector<std::pair<int64_t, int64_t>> seats(const std::string &group) const;
};

Topology draw_topology(Rng &rng, const Library &library);

// Steps of draw_topology, in order. `draw_frame` chooses layout, phase and which model to fit; then the axes;
// then a model that these axes cut evenly; then the workload and the rest.
struct Frame {
  std::string model; // a shipped one, or "" for one written in place
  bool dense = false, engram = false;
};
Frame draw_frame(Rng &rng, const Library &library, Topology &topology);
void draw_mesh(Rng &rng, const Frame &frame, Topology &topology);
void draw_model(Rng &rng, const Frame &frame, Topology &topology);
void draw_rest(Rng &rng, const Library &library, Topology &topology);
void write_document(Rng &rng, Topology &topology);

// What a topology has, in words: "dp", "dp+ep", "phase=decode", … for the table of what was covered.
std::vector<std::string> features_of(const Topology &topology);
// Every word that a long run must have met.
std::vector<std::string> expected_features(const Library &library);

} // namespace paratope::random
