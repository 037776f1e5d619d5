// SPDX-License-Identifier: Apache-2.0
//
// Posting, waiting and completing (world.h shows the picture). The order of locks: a group's mutex is never
// held while a rank's state, the report or the turnstile is taken, so that a report can be made from
// anywhere.
#include "runtime/comm/inproc/world.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/comm/inproc/group.h"

namespace paratope::comm {

using inproc::Group;
using inproc::Instance;
using inproc::Kind;
using inproc::Post;
using inproc::RankState;
using Phase = RankState::Phase;

void inproc::Turnstile::enter() {
  std::unique_lock lock(mutex);
  freed.wait(lock, [&] { return free_places > 0; });
  --free_places;
}

void inproc::Turnstile::leave() {
  std::lock_guard lock(mutex);
  ++free_places;
  freed.notify_one();
}

// One rank's end of one group.
class InprocWorld::End : public Communicator {
public:
  End(InprocWorld &the_world, Group &the_group, int64_t the_member)
      : world(the_world), group(the_group), member(the_member) {}

  int64_t rank() const override { return member; }
  int64_t size() const override { return group.size(); }
  int64_t global_rank(int64_t other) const override { return group.members[static_cast<size_t>(other)]; }

  Ticket all_reduce(const AllReduceOptions &options) override {
    check_count(options.site, "elements", options.count);
    Post post = start(Kind::all_reduce, options.site);
    post.input = options.input;
    post.output = options.output;
    post.count = options.count;
    post.reduce = options.reduce;
    return issue(std::move(post));
  }

  Ticket all_gather(const AllGatherOptions &options) override {
    check_count(options.site, "rows", options.rows);
    check_size(options.site, "rows_of", options.rows_of.size());
    Post post = start(Kind::all_gather, options.site);
    post.count = options.rows;
    post.max_rows = options.max_rows;
    post.parts.assign(options.parts.begin(), options.parts.end());
    post.counts_out = options.rows_of;
    return issue(std::move(post));
  }

  Ticket reduce_scatter(const ReduceScatterOptions &options) override {
    check_count(options.site, "row size", options.row_size);
    check_counts(options.site, "rows_of", options.rows_of);
    Post post = start(Kind::reduce_scatter, options.site);
    post.input = options.input;
    post.output = options.output;
    post.count = options.row_size;
    post.counts = options.rows_of;
    return issue(std::move(post));
  }

  Ticket all_to_all(const AllToAllOptions &options) override {
    check_counts(options.site, "send_bytes", options.send_bytes);
    check_size(options.site, "received_bytes", options.received_bytes.size());
    Post post = start(Kind::all_to_all, options.site);
    post.input = options.input;
    post.counts = options.send_bytes;
    post.output_bytes = options.output;
    post.counts_out = options.received_bytes;
    return issue(std::move(post));
  }

  Ticket barrier(const BarrierOptions &options) override { return issue(start(Kind::barrier, options.site)); }

  void complete(Ticket ticket) override;

private:
  static Post start(Kind kind, const Site &site) {
    Post post;
    post.present = true;
    post.kind = kind;
    post.site = site;
    return post;
  }

  void check_count(const Site &site, const char *what, int64_t count) const {
    if (count < 0)
      throw RuntimeError(
          fmt::format("{} {}: got {} {}, expected 0 or more", site.op, site.name, count, what));
  }
  void check_size(const Site &site, const char *what, size_t count) const {
    if (count != group.members.size())
      throw RuntimeError(fmt::format("{} {}: got {} entries of {}, expected one a member of {}: {}", site.op,
                                     site.name, count, what, group.name, group.members.size()));
  }
  void check_counts(const Site &site, const char *what, std::span<const int64_t> counts) const {
    check_size(site, what, counts.size());
    int64_t total = 0;
    for (int64_t count : counts) {
      check_count(site, what, count);
      if (__builtin_add_overflow(total, count, &total))
        throw RuntimeError(
            fmt::format("{} {}: got a sum of {} that does not fit 64 bits", site.op, site.name, what));
    }
  }

  Ticket issue(Post post);
  void note(Phase phase, const Site &site, int64_t instance);
  void work(std::unique_lock<std::mutex> &lock, Instance &instance);
  void wait(std::unique_lock<std::mutex> &lock, Instance &instance, int64_t number,
            std::chrono::steady_clock::time_point deadline);
  [[noreturn]] void fail(const std::string &report) {
    world.poison(report);
    throw RuntimeError(world.report());
  }

  InprocWorld &world;
  Group &group;
  int64_t member;
};

void InprocWorld::End::note(Phase phase, const Site &site, int64_t instance) {
  RankState &state = *world.states[static_cast<size_t>(global_rank(member))];
  std::lock_guard lock(state.mutex);
  state.phase = phase;
  state.site = site;
  state.group = group.name;
  state.instance = instance;
}

Ticket InprocWorld::End::issue(Post post) {
  if (world.poisoned())
    throw RuntimeError(world.report());
  std::string conflict, mine, theirs;
  int64_t other_rank = -1, number;
  Site site = post.site;
  {
    std::lock_guard lock(group.mutex);
    number = group.next[static_cast<size_t>(member)]++;
    while (number - group.first >= static_cast<int64_t>(group.instances.size())) {
      if (group.spare.empty()) {
        group.instances.push_back(std::make_unique<Instance>());
        group.instances.back()->posts.resize(group.members.size());
      } else {
        group.instances.push_back(std::move(group.spare.back()));
        group.spare.pop_back();
      }
    }
    Instance &instance = *group.instances[static_cast<size_t>(number - group.first)];
    if (instance.posted > 0) {
      auto other =
          std::find_if(instance.posts.begin(), instance.posts.end(), [](const Post &p) { return p.present; });
      conflict = inproc::mismatch(post, *other);
      if (!conflict.empty()) {
        other_rank = group.members[static_cast<size_t>(other - instance.posts.begin())];
        mine = post.text() + " " + inproc::place_text(site);
        theirs = other->text() + " " + inproc::place_text(other->site);
      }
    }
    if (conflict.empty()) {
      for (int64_t bytes : post.kind == Kind::all_to_all ? post.counts : std::span<const int64_t>())
        instance.bytes_sent += bytes;
      instance.posts[static_cast<size_t>(member)] = std::move(post);
      if (++instance.posted == group.size())
        instance.changed.notify_one(); // one sleeper starts the work and wakes the others
    }
  }
  if (!conflict.empty())
    fail(fmt::format(
        "collective #{} of group {} does not match ({}):\n  rank {} issued {}\n  rank {} issued {}", number,
        group.name, conflict, global_rank(member), mine, other_rank, theirs));
  note(Phase::computing, site, number);
  return {number};
}

// Runs slices until none is left. A few at a time: a slice of a small collective is shorter than a lock.
void InprocWorld::End::work(std::unique_lock<std::mutex> &lock, Instance &instance) {
  while (instance.next_slice < group.size()) {
    int64_t first = instance.next_slice;
    int64_t last = std::min(group.size(), first + std::max<int64_t>(1, group.size() / 8));
    instance.next_slice = last;
    if (last < group.size())
      instance.changed.notify_one();
    lock.unlock();
    int64_t bytes = 0;
    for (int64_t slice = first; slice < last; ++slice)
      bytes += inproc::run_slice(instance.posts, slice);
    lock.lock();
    instance.bytes_received += bytes;
    instance.slices_done += last - first;
    if (instance.slices_done == group.size())
      instance.changed.notify_all();
  }
}

void InprocWorld::End::wait(std::unique_lock<std::mutex> &lock, Instance &instance, int64_t number,
                            std::chrono::steady_clock::time_point deadline) {
  std::vector<int64_t> missing;
  auto list_missing = [&] {
    missing.clear();
    for (size_t m = 0; m < instance.posts.size(); ++m)
      if (!instance.posts[m].present)
        missing.push_back(group.members[m]);
  };
  int64_t num_left = world.num_left.load();
  if (num_left > 0 && instance.posted < group.size()) {
    list_missing();
    lock.unlock();
    std::erase_if(missing, [&](int64_t rank) { // a failed rank is about to poison the world itself
      RankState &state = *world.states[static_cast<size_t>(rank)];
      std::lock_guard state_lock(state.mutex);
      return state.phase != Phase::finished;
    });
    if (!missing.empty())
      fail(world.deadline_report(group, global_rank(member), number, missing, true));
    lock.lock();
    if (instance.posted == group.size() || world.num_left.load() != num_left)
      return;
  }
  if (world.poisoned())
    return;
  bool yields = world.turnstile != nullptr;
  if (yields) {
    // Before it sleeps, so that whoever it waits for can run. The lock is given up for the turnstile's sake
    // only after waking: nobody waits for a turn with a group locked.
    world.turnstile->leave();
  }
  bool expired = false;
  if (instance.posted == group.size())
    instance.changed.wait(lock); // only for a slice that another member is running; that ends, or poisons
  else
    expired = instance.changed.wait_until(lock, deadline) == std::cv_status::timeout &&
              instance.posted < group.size() && !world.poisoned();
  if (expired)
    list_missing();
  if (yields || expired) {
    lock.unlock();
    if (yields)
      world.turnstile->enter();
    if (expired)
      fail(world.deadline_report(group, global_rank(member), number, missing, false));
    lock.lock();
  }
}

void InprocWorld::End::complete(Ticket ticket) {
  std::unique_lock lock(group.mutex);
  if (ticket.instance < group.first || ticket.instance >= group.next[static_cast<size_t>(member)])
    throw RuntimeError(fmt::format("group {}: got collective #{}, which is not in flight on rank {}",
                                   group.name, ticket.instance, global_rank(member)));
  Instance &instance = *group.instances[static_cast<size_t>(ticket.instance - group.first)];
  Site site = instance.posts[static_cast<size_t>(member)].site;
  bool waited = false;
  auto deadline = std::chrono::steady_clock::now() + world.options.timeout;
  while (instance.slices_done < group.size()) {
    if (world.poisoned()) {
      lock.unlock();
      throw RuntimeError(world.report());
    }
    if (instance.posted == group.size() && instance.next_slice < group.size()) {
      try {
        work(lock, instance);
      } catch (const std::exception &error) {
        fail(fmt::format("rank {}: {}", global_rank(member), error.what())); // the lock is not held here
      }
      continue;
    }
    if (!waited) {
      waited = true;
      lock.unlock();
      note(Phase::waiting, site, ticket.instance);
      lock.lock();
      continue;
    }
    wait(lock, instance, ticket.instance, deadline);
  }
  bool conserved = instance.bytes_sent == instance.bytes_received;
  int64_t bytes_sent = instance.bytes_sent, bytes_received = instance.bytes_received;
  bool last = ++instance.completed == group.size();
  // Instances leave in order; the oldest may have to wait for a slower one to be completed before it.
  while (!group.instances.empty() && group.instances.front()->completed == group.size()) {
    Instance &done = *group.instances.front();
    for (Post &post : done.posts)
      post.present = false;
    done.posted = done.next_slice = done.slices_done = done.completed = 0;
    done.bytes_sent = done.bytes_received = 0;
    group.spare.push_back(std::move(group.instances.front()));
    group.instances.pop_front();
    ++group.first;
  }
  lock.unlock();
  if (!conserved)
    fail(fmt::format("{} #{} of group {}: got {} bytes received, expected the {} sent", site.op,
                     ticket.instance, group.name, bytes_received, bytes_sent));
  if (last) {
    world.sent += bytes_sent;
    world.received += bytes_received;
  }
  if (waited)
    note(Phase::computing, site, ticket.instance);
}

InprocWorld::InprocWorld(InprocOptions the_options, std::vector<CommunicatorSpec> specs)
    : options(the_options) {
  if (options.max_running > 0)
    turnstile = std::make_unique<inproc::Turnstile>(options.max_running);
  for (int64_t rank = 0; rank < options.ranks; ++rank)
    states.push_back(std::make_unique<RankState>());
  for (CommunicatorSpec &spec : specs) {
    ends.emplace_back(static_cast<size_t>(options.ranks));
    for (std::vector<int64_t> &members : spec.groups) {
      auto group = std::make_unique<Group>();
      group->name = spec.name;
      group->members = std::move(members);
      group->next.resize(group->members.size());
      for (int64_t member = 0; member < group->size(); ++member)
        ends.back()[static_cast<size_t>(group->members[static_cast<size_t>(member)])] =
            std::make_unique<End>(*this, *group, member);
      groups.push_back(std::move(group));
    }
  }
}

InprocWorld::~InprocWorld() = default;

Communicator *InprocWorld::communicator(int64_t comm, int64_t rank) {
  return ends[static_cast<size_t>(comm)][static_cast<size_t>(rank)].get();
}

void InprocWorld::enter(int64_t rank) {
  if (turnstile)
    turnstile->enter();
  RankState &state = *states[static_cast<size_t>(rank)];
  std::lock_guard lock(state.mutex);
  state.phase = Phase::computing;
}

void InprocWorld::leave(int64_t rank, const std::string &failure) {
  {
    RankState &state = *states[static_cast<size_t>(rank)];
    std::lock_guard lock(state.mutex);
    state.phase = failure.empty() ? Phase::finished : Phase::failed;
    state.failure = failure;
  }
  if (turnstile)
    turnstile->leave();
  ++num_left;
  if (!failure.empty()) {
    if (!poisoned())
      poison(failure_report(rank, failure));
    return;
  }
  for (auto &group : groups) { // whoever waits for this rank now learns that it will not come
    std::lock_guard lock(group->mutex);
    for (auto &instance : group->instances)
      instance->changed.notify_all();
  }
}

} // namespace paratope::comm
