// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/inproc/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/format.h>

namespace paratope::comm {
namespace {

using testing::HasSubstr;

Site site(std::string_view op, int64_t instruction = 7, int64_t step = 0) {
  return {op, "layers.3.moe", "topology.toml:12:3", instruction, step};
}

CommunicatorSpec all_of(int64_t ranks, std::string name = "ep") {
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return {std::move(name), {members}};
}

// Runs `program` on every rank; returns what each rank threw.
std::vector<std::string> run_ranks(InprocWorld &world, int64_t ranks,
                                   const std::function<void(int64_t)> &program) {
  std::vector<std::string> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      world.enter(rank);
      try {
        program(rank);
      } catch (const std::exception &error) {
        failures[static_cast<size_t>(rank)] = error.what();
      }
      world.leave(rank, failures[static_cast<size_t>(rank)]);
    });
  for (std::thread &thread : threads)
    thread.join();
  return failures;
}

void expect_no_failure(const std::vector<std::string> &failures) {
  for (const std::string &failure : failures)
    EXPECT_EQ(failure, "");
}

struct Case {
  int64_t ranks, running;
};

class Sizes : public testing::TestWithParam<Case> {
protected:
  int64_t ranks = GetParam().ranks;
  InprocWorld world{{.ranks = ranks, .timeout = std::chrono::seconds(30), .max_running = GetParam().running},
                    {all_of(ranks), all_of(ranks, "world")}};
  std::vector<std::vector<float>> vectors(size_t count, float value = 0) {
    return std::vector<std::vector<float>>(static_cast<size_t>(ranks), std::vector<float>(count, value));
  }
};

TEST_P(Sizes, AllReduceSumsInGroupOrderWithTheSameBitsOnEveryRank) {
  const std::vector<int64_t> counts = {0, 1, 5, 3001};
  std::vector<std::vector<std::vector<float>>> x;
  std::vector<std::vector<float>> expected;
  for (int64_t count : counts) {
    x.push_back(vectors(static_cast<size_t>(count)));
    expected.emplace_back(static_cast<size_t>(count));
    for (size_t r = 0; r < x.back().size(); ++r)
      for (size_t i = 0; i < x.back()[r].size(); ++i) {
        x.back()[r][i] = 1.0f / static_cast<float>(3 + r * 7 + i);
        expected.back()[i] = r == 0 ? x.back()[r][i] : expected.back()[i] + x.back()[r][i];
      }
  }
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    Communicator &comm = *world.communicator(0, r);
    for (size_t c = 0; c < counts.size(); ++c) {
      float *mine = x[c][static_cast<size_t>(r)].data();
      comm.complete(comm.all_reduce({site("all_reduce"), mine, mine, counts[c], Reduce::sum_f32}));
    }
  }));
  for (size_t c = 0; c < counts.size(); ++c)
    for (auto &each : x[c])
      EXPECT_TRUE(each == expected[c]) << counts[c];
}

TEST_P(Sizes, VoteTakesTheLargest) {
  std::vector<int64_t> votes(static_cast<size_t>(ranks), -5), result(static_cast<size_t>(ranks));
  votes.back() = 9;
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.all_reduce(
        {site("vote"), &votes[static_cast<size_t>(r)], &result[static_cast<size_t>(r)], 1, Reduce::max_i64}));
  }));
  for (int64_t each : result)
    EXPECT_EQ(each, 9);
}

TEST_P(Sizes, TheLeastOfAllIsWhatAllHave) {
  std::vector<int64_t> pages(static_cast<size_t>(ranks), INT64_MAX), result(pages.size());
  pages.back() = 9;
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.all_reduce({site("kv_blocks"), &pages[static_cast<size_t>(r)],
                                   &result[static_cast<size_t>(r)], 1, Reduce::min_i64}));
  }));
  for (int64_t each : result)
    EXPECT_EQ(each, 9);
}

TEST_P(Sizes, AllGatherOfUnevenAndZeroRows) {
  // Rank r brings r mod 3 rows of two arrays of different widths.
  int64_t total = 0;
  for (int64_t r = 0; r < ranks; ++r)
    total += r % 3;
  auto a = vectors(6), a_out = vectors(static_cast<size_t>(total) * 3 + 1, -1);
  std::vector<std::vector<int64_t>> b(a.size(), std::vector<int64_t>(2)),
      b_out(a.size(), std::vector<int64_t>(static_cast<size_t>(total) + 1, -1));
  std::vector<std::vector<int64_t>> counts(a.size(), std::vector<int64_t>(a.size()));
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    auto i = static_cast<size_t>(r);
    std::iota(a[i].begin(), a[i].end(), static_cast<float>(100 * r));
    std::iota(b[i].begin(), b[i].end(), 1000 * r);
    GatherPart parts[] = {{a[i].data(), a_out[i].data(), 12}, {b[i].data(), b_out[i].data(), 8}};
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.all_gather({site("all_gather"), parts, r % 3, total, counts[i]}));
  }));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t row = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(counts[i][static_cast<size_t>(r)], r % 3);
      for (int64_t k = 0; k < r % 3; ++k, ++row) {
        EXPECT_EQ(a_out[i][row * 3 + 2], static_cast<float>(100 * r + 3 * k + 2));
        EXPECT_EQ(b_out[i][row], 1000 * r + k);
      }
    }
    EXPECT_EQ(a_out[i].back(), -1); // nothing past the end
  }
}

TEST_P(Sizes, ReduceScatterGivesEachItsRows) {
  std::vector<int64_t> rows(static_cast<size_t>(ranks));
  for (size_t r = 0; r < rows.size(); ++r)
    rows[r] = static_cast<int64_t>((r + 1) % 3);
  int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  auto x = vectors(static_cast<size_t>(total) * 2), y = vectors(5, -1);
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    auto i = static_cast<size_t>(r);
    std::iota(x[i].begin(), x[i].end(), static_cast<float>(r));
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.reduce_scatter({site("reduce_scatter"), x[i].data(), y[i].data(), 2, rows}));
  }));
  float at = 0, ranks_sum = static_cast<float>(ranks * (ranks - 1) / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t k = 0; k < static_cast<size_t>(rows[i]) * 2; ++k)
      EXPECT_EQ(y[i][k], static_cast<float>(ranks) * at++ + ranks_sum);
    EXPECT_EQ(y[i][static_cast<size_t>(rows[i]) * 2], -1);
  }
}

TEST_P(Sizes, AllToAllConservesBytesOverManySteps) {
  // Rank s sends (s + 2·d) mod 4 bytes to rank d, each byte naming the pair.
  auto bytes_of = [](int64_t s, int64_t d) { return (s + 2 * d) % 4; };
  auto n = static_cast<size_t>(ranks);
  std::vector<std::vector<std::byte>> in(n), out(n);
  std::vector<std::vector<int64_t>> send(n, std::vector<int64_t>(n)), received(n, std::vector<int64_t>(n));
  for (int64_t s = 0; s < ranks; ++s)
    for (int64_t d = 0; d < ranks; ++d) {
      send[static_cast<size_t>(s)][static_cast<size_t>(d)] = bytes_of(s, d);
      in[static_cast<size_t>(s)].insert(in[static_cast<size_t>(s)].end(), static_cast<size_t>(bytes_of(s, d)),
                                        static_cast<std::byte>(s * 16 + d));
    }
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    auto i = static_cast<size_t>(r);
    Communicator &comm = *world.communicator(0, r);
    for (int64_t step = 0; step < 20; ++step)
      comm.complete(
          comm.all_to_all({site("dispatch", 7, step), in[i].data(), send[i], &out[i], received[i]}));
  }));
  for (int64_t d = 0; d < ranks; ++d) {
    size_t at = 0;
    for (int64_t s = 0; s < ranks; ++s) {
      EXPECT_EQ(received[static_cast<size_t>(d)][static_cast<size_t>(s)], bytes_of(s, d));
      for (int64_t k = 0; k < bytes_of(s, d); ++k)
        EXPECT_EQ(out[static_cast<size_t>(d)][at++], static_cast<std::byte>(s * 16 + d));
    }
  }
  EXPECT_EQ(world.sent_bytes(), world.received_bytes());
  int64_t total = 0;
  for (const auto &each : send)
    total += 20 * std::accumulate(each.begin(), each.end(), int64_t{0});
  EXPECT_EQ(world.sent_bytes(), total);
}

TEST_P(Sizes, TwoCommunicatorsInFlightCompleteInEitherOrder) {
  auto a = vectors(3, 1), b = vectors(4, 2), unused = vectors(1);
  expect_no_failure(run_ranks(world, ranks, [&](int64_t r) {
    auto i = static_cast<size_t>(r);
    Communicator &ep = *world.communicator(0, r), &all = *world.communicator(1, r);
    for (int step = 0; step < 10; ++step) {
      Ticket first = ep.all_reduce({site("all_reduce"), a[i].data(), a[i].data(), 3, Reduce::sum_f32});
      Ticket second = all.all_reduce({site("all_reduce"), b[i].data(), b[i].data(), 4, Reduce::sum_f32});
      Ticket third = ep.barrier({site("barrier")});
      if (r % 2 == 0) { // different orders of completion are no deadlock
        ep.complete(third), all.complete(second), ep.complete(first);
      } else {
        ep.complete(first), ep.complete(third), all.complete(second);
      }
      std::fill(a[i].begin(), a[i].end(), 1.0f);
    }
  }));
  for (auto &each : a)
    EXPECT_EQ(each[0], 1);
}

INSTANTIATE_TEST_SUITE_P(
    Inproc, Sizes, testing::Values(Case{1, 0}, Case{2, 0}, Case{3, 0}, Case{64, 0}, Case{3, 1}, Case{64, 2}),
    [](const auto &each) {
      return fmt::format("{}ranks{}", each.param.ranks, each.param.running ? "limited" : "");
    });

TEST(InprocWorld, RanksOutsideAGroupHaveNoEnd) {
  InprocWorld world({.ranks = 3}, {{"tp", {{0, 2}}}});
  EXPECT_EQ(world.communicator(0, 1), nullptr);
  EXPECT_EQ(world.communicator(0, 2)->rank(), 1);
  EXPECT_EQ(world.communicator(0, 2)->global_rank(0), 0);
}

TEST(InprocWorld, DeadlineReportNamesWhoHasNotArrived) {
  InprocWorld world({.ranks = 3, .timeout = std::chrono::milliseconds(100)}, {all_of(3), all_of(3, "tp")});
  std::vector<float> x(3);
  std::atomic<bool> stop{false};
  auto failures = run_ranks(world, 3, [&](int64_t r) {
    float *mine = &x[static_cast<size_t>(r)];
    Communicator &tp = *world.communicator(1, r), &ep = *world.communicator(0, r);
    tp.complete(tp.all_reduce({site("all_reduce", 3), mine, mine, 1, Reduce::sum_f32}));
    if (r == 1) { // computes for ever, as far as the others can tell
      while (!world.poisoned())
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      stop = true;
      return;
    }
    ep.complete(ep.barrier({site("barrier", 41, 6)}));
  });
  EXPECT_TRUE(stop);
  EXPECT_THAT(failures[0], HasSubstr("no answer within 0.1 s: rank "));
  EXPECT_THAT(
      failures[0],
      HasSubstr("waits at barrier #0 of group ep (step 6, instruction 41 layers.3.moe, topology.toml:12:3)"));
  EXPECT_THAT(failures[0], HasSubstr("not arrived: rank 1\n"));
  EXPECT_THAT(
      failures[0],
      HasSubstr("rank 1: computing, after all_reduce #0 of group tp (step 0, instruction 3 layers.3.moe"));
  EXPECT_EQ(failures[0], failures[2]);
}

TEST(InprocWorld, ARankThatEndsEarlyIsNoticedBeforeTheDeadline) {
  InprocWorld world({.ranks = 3, .timeout = std::chrono::hours(1)}, {all_of(3)});
  auto failures = run_ranks(world, 3, [&](int64_t r) {
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.barrier({site("barrier")}));
    if (r != 2)
      comm.complete(comm.barrier({site("barrier")}));
  });
  EXPECT_THAT(failures[0], HasSubstr("waits at barrier #1 of group ep"));
  EXPECT_THAT(failures[0], HasSubstr("for a rank that has ended"));
  EXPECT_THAT(failures[0], HasSubstr("not arrived: rank 2\n  rank 2: finished"));
  EXPECT_EQ(failures[0], world.report());
  EXPECT_EQ(failures[1], world.report());
  EXPECT_EQ(failures[2], "");
}

TEST(InprocWorld, AThrowingRankStopsAll) {
  InprocWorld world({.ranks = 64, .timeout = std::chrono::hours(1)}, {all_of(64)});
  auto failures = run_ranks(world, 64, [&](int64_t r) {
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.barrier({site("barrier")}));
    if (r == 5)
      throw std::runtime_error("token id 70000 out of range");
    comm.complete(comm.barrier({site("barrier")}));
  });
  EXPECT_EQ(failures[5], "token id 70000 out of range");
  for (size_t r = 0; r < failures.size(); ++r)
    if (r != 5) {
      EXPECT_EQ(failures[r], world.report());
    }
  EXPECT_THAT(world.report(),
              HasSubstr("rank 5 failed: token id 70000 out of range\n  rank 5: failed, after barrier #0"));
}

// Each pair of posts that are not one collective, and what the report says about both.
TEST(InprocWorld, MismatchedCollectivesAreReportedWithBothSides) {
  std::vector<float> x(8), y(8);
  std::vector<int64_t> ones = {1, 1}, twos = {2, 1}, counts(2);
  GatherPart narrow[] = {{x.data(), y.data(), 4}}, wide[] = {{x.data(), y.data(), 8}};
  using Issue = std::function<Ticket(Communicator &)>;
  auto reduce = [&](int64_t count, Reduce how) -> Issue {
    return [&, count, how](Communicator &c) {
      return c.all_reduce({site("all_reduce", 9), x.data(), y.data(), count, how});
    };
  };
  auto gather = [&](std::span<const GatherPart> parts) -> Issue {
    return [&, parts](Communicator &c) { return c.all_gather({site("all_gather"), parts, 1, 2, counts}); };
  };
  auto scatter = [&](int64_t row_size, const std::vector<int64_t> &rows) -> Issue {
    return [&, row_size](Communicator &c) {
      return c.reduce_scatter({site("reduce_scatter"), x.data(), y.data(), row_size, rows});
    };
  };
  Issue barrier = [](Communicator &c) { return c.barrier({site("barrier", 12)}); };
  struct {
    Issue a, b;
    const char *why, *one, *other;
  } cases[] = {
      {reduce(4, Reduce::sum_f32), barrier, "different collectives",
       "issued all_reduce of 4 f32 (sum) (step 0, instruction 9", "issued barrier (step 0, instruction 12"},
      {reduce(4, Reduce::sum_f32), reduce(5, Reduce::sum_f32), "different element counts", "of 4 f32",
       "of 5 f32"},
      {reduce(1, Reduce::sum_f32), reduce(1, Reduce::max_i64), "different reductions", "f32 (sum)",
       "i64 (max)"},
      {gather(narrow), gather(wide), "different row sizes", "rows of [4] bytes", "rows of [8] bytes"},
      {scatter(1, ones), scatter(2, ones), "different row sizes", "of 1 f32", "of 2 f32"},
      {scatter(1, ones), scatter(1, twos), "different row counts", "[1, 1] rows", "[2, 1] rows"},
  };
  for (const auto &each : cases) {
    InprocWorld world({.ranks = 2, .timeout = std::chrono::hours(1)}, {all_of(2)});
    auto failures = run_ranks(world, 2, [&](int64_t r) {
      Communicator &comm = *world.communicator(0, r);
      comm.complete((r == 0 ? each.a : each.b)(comm));
    });
    EXPECT_EQ(failures[0], failures[1]);
    EXPECT_THAT(failures[0], HasSubstr("collective #0 of group ep does not match"));
    EXPECT_THAT(failures[0], HasSubstr(each.why));
    EXPECT_THAT(failures[0], HasSubstr(each.one));
    EXPECT_THAT(failures[0], HasSubstr(each.other));
  }
}

TEST(InprocWorld, AGatherLargerThanItsOutputIsAnError) {
  InprocWorld world({.ranks = 2, .timeout = std::chrono::hours(1)}, {all_of(2)});
  std::vector<float> x(2), y(4);
  std::vector<int64_t> counts[2] = {std::vector<int64_t>(2), std::vector<int64_t>(2)};
  auto failures = run_ranks(world, 2, [&](int64_t r) {
    GatherPart parts[] = {{x.data(), y.data(), 4}};
    Communicator &comm = *world.communicator(0, r);
    comm.complete(comm.all_gather({site("all_gather"), parts, 2, 3, counts[r]}));
  });
  EXPECT_THAT(failures[0], HasSubstr("got 4 rows from all members, expected at most 3"));
}

TEST(InprocWorld, CountsThatCannotBeRightAreErrors) {
  InprocWorld world({.ranks = 1}, {all_of(1)});
  Communicator &comm = *world.communicator(0, 0);
  std::vector<int64_t> none, negative = {-1}, one = {1};
  std::vector<std::byte> out;
  auto message = [](const auto &call) -> std::string {
    try {
      call();
    } catch (const RuntimeError &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { comm.all_reduce({site("all_reduce"), nullptr, nullptr, -1}); }),
              HasSubstr("got -1 elements, expected 0 or more"));
  EXPECT_THAT(message([&] { comm.all_to_all({site("dispatch"), nullptr, negative, &out, one}); }),
              HasSubstr("got -1 send_bytes"));
  EXPECT_THAT(message([&] { comm.all_to_all({site("dispatch"), nullptr, none, &out, one}); }),
              HasSubstr("got 0 entries of send_bytes, expected one a member of ep: 1"));
  EXPECT_THAT(message([&] { comm.complete({3}); }),
              HasSubstr("got collective #3, which is not in flight on rank 0"));
}

} // namespace
} // namespace paratope::comm
