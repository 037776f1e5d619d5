// SPDX-License-Identifier: Apache-2.0
//
// What is said when a collective cannot complete. One report for the whole world, made by whoever notices
// first:
//
//     no answer within 2.0 s: rank 0 waits at dispatch #3 of group ep (step 0, instruction 41 layers.3.moe,
//     v4.toml:12:3)
//       not arrived: rank 2
//       rank 2: computing, after all_reduce #7 of group tp (step 0, instruction 38 layers.3.attn,
//       v4.toml:9:1) ranks 0 1 3: waiting at dispatch #3 of group ep (…)
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/comm/inproc/group.h"

namespace paratope::comm {
namespace {

constexpr size_t max_ranks_listed = 16;

std::string ranks_text(const std::vector<int64_t> &ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size() && i < max_ranks_listed; ++i)
    text += fmt::format(" {}", ranks[i]);
  if (ranks.size() > max_ranks_listed)
    text += fmt::format(" and {} more", ranks.size() - max_ranks_listed);
  return text;
}

std::string site_text(const Site &site, std::string_view group, int64_t instance) {
  return fmt::format("{} #{} of group {} {}", site.op, instance, group, inproc::place_text(site));
}

std::string state_text(const inproc::RankState &state) {
  using Phase = inproc::RankState::Phase;
  std::string after = state.instance < 0 ? "before its first collective"
                                         : "after " + site_text(state.site, state.group, state.instance);
  switch (state.phase) {
  case Phase::starting:
    return "not started";
  case Phase::computing:
    return "computing, " + after;
  case Phase::waiting:
    return "waiting at " + site_text(state.site, state.group, state.instance);
  case Phase::finished:
    return "finished, " + after;
  case Phase::failed:
    return "failed, " + after;
  }
  return "";
}

} // namespace

std::string inproc::place_text(const Site &site) {
  std::string text = site.step < 0 ? fmt::format("(load, instruction {}", site.instruction)
                                   : fmt::format("(step {}, instruction {}", site.step, site.instruction);
  if (!site.name.empty())
    text += fmt::format(" {}", site.name);
  if (!site.where.empty())
    text += fmt::format(", {}", site.where);
  return text + ")";
}

// Where every rank is, equal states in one line; those in `first` before the others.
std::string InprocWorld::states_text(const std::vector<int64_t> &first) const {
  std::map<std::pair<bool, std::string>, std::vector<int64_t>> by_state;
  for (size_t r = 0; r < states.size(); ++r) {
    auto rank = static_cast<int64_t>(r);
    bool later = std::find(first.begin(), first.end(), rank) == first.end();
    std::lock_guard lock(states[r]->mutex);
    by_state[{later, state_text(*states[r])}].push_back(rank);
  }
  std::string text;
  for (const auto &[state, ranks] : by_state)
    text += fmt::format("\n  {}: {}", ranks_text(ranks), state.second);
  return text;
}

std::string InprocWorld::deadline_report(const inproc::Group &group, int64_t rank, int64_t instance,
                                         const std::vector<int64_t> &missing, bool ended) const {
  std::string here;
  {
    const inproc::RankState &state = *states[static_cast<size_t>(rank)];
    std::lock_guard lock(state.mutex);
    here = site_text(state.site, group.name, instance);
  }
  double seconds = std::chrono::duration<double>(options.timeout).count();
  std::string report = ended
                           ? fmt::format("rank {} waits at {} for a rank that has ended", rank, here)
                           : fmt::format("no answer within {:g} s: rank {} waits at {}", seconds, rank, here);
  return report + fmt::format("\n  not arrived: {}", ranks_text(missing)) + states_text(missing);
}

std::string InprocWorld::failure_report(int64_t rank, const std::string &failure) const {
  return fmt::format("rank {} failed: {}", rank, failure) + states_text({rank});
}

void InprocWorld::poison(const std::string &report) {
  {
    std::lock_guard lock(report_mutex);
    if (is_poisoned.load())
      return;
    first_report = report;
    is_poisoned.store(true, std::memory_order_release);
  }
  for (auto &group : groups) {
    std::lock_guard lock(group->mutex);
    for (auto &instance : group->instances)
      instance->changed.notify_all();
  }
}

std::string InprocWorld::report() const {
  std::lock_guard lock(report_mutex);
  return first_report;
}

} // namespace paratope::comm
