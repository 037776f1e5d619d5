// SPDX-License-Identifier: Apache-2.0
//
// A model that the drawn axes cut evenly: heads by tp, output groups by og and tp, experts' width by moe_tp,
// dense width by tp. Shipped models keep what fits and shrink what would only cost time: layers, heads and
// experts.
#include "topology.h"

#include <algorithm>
#include <numeric>

namespace paratope::random {

namespace {

struct ModelDraw {
  Rng &rng;
  Topology &t;
  const Frame &frame;
  ModelSpec &model = t.spec.model;
  AttentionModel &attention = model.attention;
  ExpertModel &moe = model.moe;
  bool shipped = !frame.model.empty();

  void run() {
    model.layers.value = rng.one_of({1, 1, 1, 2, 2, 3, 4});
    if (!shipped) {
      model.name.value = "random";
      model.hidden.value = rng.one_of({8, 20, 32, 48, 96});
      model.vocab.value = rng.one_of({7, 50, 129, 512, 1000});
      model.rms_eps.value = rng.percent(50) ? 1e-6 : 1e-20;
      model.hyper_connections.value = rng.one_of({1, 1, 2, 4, 4, 5});
    } else if (rng.percent(30)) {
      model.hyper_connections.value = rng.one_of({1, 4});
    }
    model.seed.value = rng.between(0, 1 << 20);
    if (t.is("latent"))
      latent();
    else if (t.is("mla"))
      mla();
    else
      gqa();
    per_layer();
    feed_forward();
    engram();
  }

  void widths() {
    attention.head_dim.value = rng.one_of({4, 8, 12, 16, 32});
    attention.rope_dim.value = rng.percent(10) ? 0 : 2 * rng.between(1, *attention.head_dim / 2);
    if (rng.percent(50))
      attention.rope_theta.value = 500.0;
  }

  void latent() {
    int64_t og = t.size("og"), tp = t.size("tp"), unit = std::lcm(og, tp);
    if (!shipped) {
      widths();
      attention.q_lora.value = rng.percent(30) ? 0 : rng.one_of({4, 16, 32});
      attention.o_lora.value = rng.one_of({1, 8, 16, 40});
      attention.sink.value = rng.percent(50);
    }
    bool keep = shipped && rng.percent(15) && *attention.heads % tp == 0 && *attention.o_groups % unit == 0;
    if (keep)
      return;
    attention.o_groups.value = og == 1 && rng.percent(15) ? 0 : unit * rng.between(1, unit > 8 ? 1 : 3);
    int64_t least = *attention.o_groups > 0 ? *attention.o_groups : tp;
    attention.heads.value = least * rng.between(1, least > 8 ? 1 : 3);
  }

  void mla() {
    if (!shipped) {
      attention.kv_lora.value = rng.one_of({4, 16, 24});
      attention.nope_dim.value = rng.one_of({3, 8, 16});
      attention.rope_dim.value = rng.one_of({2, 4, 8});
      attention.v_dim.value = rng.one_of({4, 7, 8});
      attention.q_lora.value = rng.percent(30) ? 0 : rng.one_of({4, 16, 32});
      attention.sink.value = rng.percent(20);
    }
    if (!shipped || rng.percent(80) || *attention.heads % t.size("tp") != 0)
      attention.heads.value = t.size("tp") * rng.between(1, 4);
  }

  void gqa() {
    int64_t tp = t.size("tp");
    if (!shipped) {
      widths();
      attention.sink.value = rng.percent(40);
    }
    bool fits = shipped && *attention.heads % tp == 0 &&
                (*attention.kv_heads % tp == 0 || tp % *attention.kv_heads == 0);
    if (fits && rng.percent(20))
      return;
    std::vector<int64_t> legal;
    for (int64_t kv : {1, 2, 3, 4, 5, 6, 8})
      if (kv % tp == 0 || tp % kv == 0)
        legal.push_back(kv);
    attention.kv_heads.value = rng.one_of(legal);
    int64_t unit = std::lcm(*attention.kv_heads, tp);
    attention.heads.value = unit * rng.between(1, unit > 8 ? 1 : 3);
  }

  void per_layer() {
    auto layers = static_cast<size_t>(*model.layers);
    if (!shipped || rng.percent(40)) {
      std::vector<int64_t> windows;
      for (int64_t i = rng.between(1, 3); i > 0; --i)
        windows.push_back(rng.one_of({0, 0, 1, 2, 5, 16, 128}));
      attention.window.value = windows;
    }
    if (!t.is("latent"))
      return;
    std::vector<int64_t> ratios;
    if (shipped || rng.percent(70))
      for (size_t layer = 0; layer < layers; ++layer)
        ratios.push_back(rng.one_of({0, 1, 1, 2, 2, 3, 4}));
    attention.compress_ratios.value = ratios;
  }

  void feed_forward() {
    int64_t tp = t.size("tp"), moe_tp = t.size("moe_tp");
    if (!shipped) {
      moe.swiglu_limit.value = rng.percent(50) ? 0 : 1.5;
      moe.shared.value = frame.dense ? 0 : rng.between(0, 2);
      moe.width.value = 8;
    }
    moe.dense_layers.value = frame.dense                         ? *model.layers
                             : shipped && *moe.dense_layers == 0 ? 0
                             : rng.percent(shipped ? 60 : 25)    ? rng.between(0, *model.layers)
                                                                 : 0;
    if (*moe.dense_layers > 0 && (*moe.dense_width == 0 || 128 % tp != 0 || rng.percent(50)))
      moe.dense_width.value = tp * rng.between(1, 64 / tp);
    t.experts = !frame.dense && *moe.dense_layers < *model.layers;
    if (frame.dense)
      return;
    if (!shipped || 32 % moe_tp != 0 || rng.percent(30))
      moe.width.value = moe_tp * rng.between(1, 32 / moe_tp);
    if (shipped && rng.percent(6))
      return; // all its experts
    moe.groups.value = rng.percent(70) ? 1 : rng.one_of({2, 3, 4});
    moe.routed.value = *moe.groups * rng.one_of({1, 2, 3, 4, 6, 8});
    moe.top_groups.value = rng.between(1, *moe.groups);
    int64_t reach = *moe.groups == 1 ? *moe.routed : *moe.routed / *moe.groups * *moe.top_groups;
    moe.top_k.value = rng.between(1, std::min<int64_t>(reach, 8));
    if (!shipped || rng.percent(20)) {
      moe.score.value = rng.of<std::string>({"softmax", "sigmoid", "sqrtsoftplus"});
      moe.normalise.value = rng.percent(60);
      moe.scaling.value = rng.percent(50) ? 1.0 : 2.5;
    }
  }

  void engram() {
    EngramModel &e = model.engram;
    e.layers.value.clear();
    if (!frame.engram) {
      e.multipliers.value.clear();
      return;
    }
    for (int64_t layer = 0; layer < *model.layers; ++layer)
      if (rng.percent(60))
        e.layers.value.push_back(layer);
    if (e.layers->empty())
      e.layers.value.push_back(rng.between(0, *model.layers - 1));
    if (*e.ngram == 0 || rng.percent(30)) {
      e.ngram.value = rng.between(2, 4);
      e.heads.value = rng.one_of({1, 2, 3, 8});
      e.dim.value = rng.one_of({1, 4, 8, 40});
      e.vocab_per_head.value = rng.one_of({2, 10, 100, 256, 5000});
    }
    e.multipliers.value.clear();
    if (rng.percent(30))
      for (size_t row = 0; row < e.layers->size(); ++row) {
        e.multipliers.value.emplace_back();
        for (int64_t i = 0; i < *e.ngram; ++i)
          e.multipliers.value.back().push_back(2 * rng.between(0, int64_t{1} << 45) + 1);
      }
  }
};

} // namespace

void draw_model(Rng &rng, const Frame &frame, Topology &topology) { ModelDraw{rng, topology, frame}.run(); }

} // namespace paratope::random
