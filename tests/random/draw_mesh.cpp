// SPDX-License-Identifier: Apache-2.0
//
// Axes, groups and placement of a random topology. Draws by construction:
//
//     team = dp·cp·tp        cp only in prefill, and not with tp
//     enp  left out, a divisor of the team, or a multiple of it (then the world grows)
//     ep·moe_tp, og          divisors of the ranks that serve
#include "topology.h"

#include <algorithm>
#include <numeric>

namespace paratope::random {

static std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0)
      found.push_back(d);
  return found;
}

// A divisor of n, 1 as often as all others together.
static int64_t some_divisor(Rng &rng, int64_t n, int64_t percent_one = 35) {
  std::vector<int64_t> all = divisors(n);
  return rng.percent(percent_one) ? 1 : rng.one_of(all);
}

static bool layout_has(const Topology &t, const std::string &axis) {
  return std::any_of(t.spec.layout.axes.begin(), t.spec.layout.axes.end(),
                     [&](const NamedAxis &each) { return each.name == axis; });
}

static void add_group(Topology &t, const std::string &name, const std::vector<std::string> &patterns) {
  NamedGroup &group = t.spec.groups.emplace_back();
  group.name = name;
  group.patterns.value = patterns;
}

// Axes that the layout lacks come with the groups that give them a meaning.
static void own_axes(Rng &rng, Topology &t, bool dense) {
  bool everyone_serves = t.serving == t.world;
  if (!layout_has(t, "moe_tp") && !dense && rng.percent(12)) {
    int64_t rest = t.serving / t.sizes["ep"];
    t.sizes["moe_tp"] = some_divisor(rng, rest, 10);
    if (everyone_serves && rng.percent(50)) {
      add_group(t, "ep", {"(ep edp moe_tp) -> (edp moe_tp) ep"});
      add_group(t, "moe_tp", {"(ep edp moe_tp) -> (ep edp) moe_tp"});
      add_group(t, "experts", {"(ep edp moe_tp) -> edp (ep moe_tp)"});
    } else {
      add_group(t, "ep", {"(edp ep moe_tp) -> (edp moe_tp) ep"});
      add_group(t, "moe_tp", {"(edp ep moe_tp) -> (edp ep) moe_tp"});
      add_group(t, "experts", {"(edp ep moe_tp) -> edp (ep moe_tp)"});
    }
  } else if (!layout_has(t, "moe_tp") && everyone_serves && rng.percent(12)) {
    add_group(t, "ep", {"(ep edp) -> edp ep"}); // every edp-th rank where the layout takes neighbours
  }
  if (!layout_has(t, "og") && t.size("tp") == 1 && t.is("latent") && rng.percent(25)) {
    t.sizes["og"] = some_divisor(rng, t.serving, 20);
    add_group(t, "og",
              {everyone_serves && rng.percent(50) ? "(og rest) -> rest og" : "(rest og) -> rest og"});
  } else if (layout_has(t, "og") && t.sizes["og"] > 1 && everyone_serves && rng.percent(15)) {
    add_group(t, "og", {"(og rest) -> rest og"});
  }
  if (*t.spec.layout_name == "deepinfer" && everyone_serves && rng.percent(6)) { // engines of strided ranks
    for (const char *name : {"dp", "cpu_dp"})
      add_group(t, name, {"(replica cp dp) -> (replica cp) dp"});
    for (const char *name : {"cp", "cpu_cp"})
      add_group(t, name, {"(replica cp dp) -> (replica dp) cp"});
  }
  if (rng.percent(12)) { // groups that no step uses are built all the same
    int64_t part = rng.one_of(divisors(t.world));
    t.sizes["part"] = part;
    if (rng.percent(50))
      add_group(t, "parts", {"(rest part) -> rest part"});
    else
      add_group(t, "parts", {"(part rest) -> rest part", "a b -> b a", "part rest -> part rest"});
  }
}

static void draw_enp(Rng &rng, const Frame &frame, int64_t most, Topology &t) {
  int64_t kind = rng.between(1, 100);
  t.sizes["enp"] = t.team;
  if (kind <= 25) {
    t.sizes["enp"] = rng.one_of(divisors(t.team));
  } else if (kind <= 55 && t.team * 2 <= std::max<int64_t>(most, 6) &&
             *t.spec.layout_name != "tensor-parallel") {
    int64_t times = rng.between(2, std::min<int64_t>(4, std::max<int64_t>(most, 6) / t.team));
    t.sizes["enp"] = t.team * times;
  }
  t.world = std::max(t.team, t.sizes["enp"]);
  t.spec.engram.extra_ranks.value = rng.percent(60) ? "table-only" : "serve";
  bool rows_only = t.world > t.team && frame.engram && *t.spec.engram.extra_ranks == "table-only";
  t.serving = rows_only ? t.team : t.world;
}

void draw_mesh(Rng &rng, const Frame &frame, Topology &t) {
  int64_t limit = rng.between(1, 100), most = limit <= 25 ? 4 : limit <= 65 ? 8 : limit <= 97 ? 16 : 32;
  bool tp = layout_has(t, "tp") && rng.percent(65), cp = layout_has(t, "cp") && !tp && t.prefill();
  do {
    t.sizes["dp"] = rng.one_of({1, 1, 2, 2, 3, 4, 5, 6, 8, 16});
    t.sizes["tp"] = tp ? rng.one_of({1, 2, 2, 3, 4, 4, 6, 8}) : 1;
    t.sizes["cp"] = cp ? rng.one_of({1, 2, 2, 3, 4, 4, 5, 8}) : 1;
    t.team = t.sizes["dp"] * t.sizes["tp"] * t.sizes["cp"];
  } while (t.team > most);
  draw_enp(rng, frame, most, t);

  t.sizes["ep"] = t.sizes["moe_tp"] = t.sizes["og"] = 1;
  // Where the layout's own groups stride over the whole world, they would reach ranks that only hold rows.
  bool strided = *t.spec.layout_name == "engine-outer" && t.serving < t.world;
  if (!frame.dense && !strided) {
    t.sizes["ep"] = some_divisor(rng, t.serving, 20);
    if (layout_has(t, "moe_tp"))
      t.sizes["moe_tp"] = some_divisor(rng, t.serving / t.sizes["ep"], 40);
  }
  if (layout_has(t, "og") && !strided && t.is("latent") && t.sizes["tp"] == 1)
    t.sizes["og"] = some_divisor(rng, t.serving, 40);
  own_axes(rng, t, frame.dense);

  if (t.serving == t.world && t.world > 1 && rng.percent(4)) {
    std::vector<int64_t> map(static_cast<size_t>(t.world));
    std::iota(map.begin(), map.end(), int64_t{0});
    rng.shuffle(map);
    t.spec.mesh.rank_map.value = map;
  }
  if (rng.percent(4))
    t.spec.mesh.rank_offset.value = rng.between(0, 64);

  for (const auto &[name, size] : t.sizes) {
    bool own = name == "part" || std::any_of(t.spec.groups.begin(), t.spec.groups.end(),
                                             [&](const NamedGroup &group) { return group.name == name; });
    if (!layout_has(t, name) && !own)
      continue;
    NamedAxis &axis = t.spec.axes.emplace_back();
    axis.name = name;
    axis.size.value.size = size;
  }
}

} // namespace paratope::random
