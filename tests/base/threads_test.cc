#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <set>
#include <thread>
#include <vector>

namespace ballast {
namespace {

double CpuSeconds() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

TEST(ThreadPool, RunCallsEveryWorkerOnceAndTheCallerIsWorkerZero) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    const std::thread::id caller = std::this_thread::get_id();
    std::vector<int> calls(static_cast<size_t>(threads));  // (worker), each written by that worker only
    std::vector<std::thread::id> ids(static_cast<size_t>(threads));
    pool.Run([&](int worker) {
      ++calls[static_cast<size_t>(worker)];
      ids[static_cast<size_t>(worker)] = std::this_thread::get_id();
    });
    for (const int count : calls) EXPECT_EQ(count, 1);
    EXPECT_EQ(ids[0], caller);
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), static_cast<size_t>(threads));
  }
}

// Invariant 1, and the hand-over of plain memory in both directions (tsan sees any missing barrier).
TEST(ThreadPool, RunReturnsAfterEveryWorkerHasFinished) {
  ThreadPool pool(3);
  int64_t input = 0;               // plain: written by the caller between jobs
  std::vector<int64_t> output(3);  // plain: written by the workers
  for (int64_t round = 1; round <= 3000; ++round) {
    input = round;
    pool.Run([&](int worker) {
      if (worker != 0 && round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      output[static_cast<size_t>(worker)] = input * (worker + 1);
    });
    ASSERT_EQ(output, (std::vector<int64_t>{round, 2 * round, 3 * round}));
  }
}

TEST(ThreadPool, WorkersThatSleptWakeForTheNextJob) {
  ThreadPool pool(2);
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // far beyond the spin
    pool.Run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls.load(), 40);
}

// More threads than cores, jobs too short for most of them: late workers must neither miss a job for all, nor
// do one twice, nor enter a job that is over.
TEST(ThreadPool, LateWorkersTakeNoHarm) {
  ThreadPool pool(12);
  std::vector<int64_t> runs(12);  // plain, as `items` is: tsan sees who touches them unguarded
  std::vector<int64_t> items(40);
  for (int64_t round = 1; round <= 1500; ++round) {
    pool.For(40, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++items[static_cast<size_t>(i)];
    });
    ASSERT_EQ(items, std::vector<int64_t>(40, round));
    if (round % 5 != 0) continue;
    pool.Run([&](int worker) { ++runs[static_cast<size_t>(worker)]; });
    ASSERT_EQ(runs, std::vector<int64_t>(12, round / 5));
  }
}

TEST(ThreadPool, AnIdlePoolBurnsNoCore) {
  ThreadPool pool(4);
  pool.Run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(CpuSeconds() - before, 0.1);
}

TEST(ThreadPool, ForCoversEveryItemOnceInPiecesOfAtMostTheGrain) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const int64_t n : {1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 999, 5000}) {
        std::vector<int> seen(static_cast<size_t>(n));  // (item): disjoint pieces, so plain ints will do
        std::atomic<bool> well_formed{true};
        pool.For(n, grain, [&](int64_t begin, int64_t end, int worker) {
          if (begin >= end || end - begin > grain || worker < 0 || worker >= threads) well_formed = false;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        EXPECT_TRUE(well_formed);
        EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(n), 1)) << threads << " " << n << " " << grain;
      }
    }
  }
}

TEST(ThreadPool, ForOverNothingCallsNothingAndOnePieceRunsInTheCaller) {
  ThreadPool pool(4);
  pool.For(0, 8, [](int64_t, int64_t, int) { ADD_FAILURE(); });
  pool.For(-3, 8, [](int64_t, int64_t, int) { ADD_FAILURE(); });
  std::thread::id ran;
  pool.For(8, 8, [&](int64_t, int64_t, int) { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(ThreadPool, ForDoesNotOverflowAtHugeGrains) {
  ThreadPool pool(2);
  std::atomic<int64_t> items{0};
  pool.For(10, std::numeric_limits<int64_t>::max(),
           [&](int64_t begin, int64_t end, int) { items += end - begin; });
  EXPECT_EQ(items.load(), 10);
}

// Pieces are handed out as workers come free: one slow piece must not hold back the rest of its share.
TEST(ThreadPool, ForHandsPiecesToWhoeverIsFree) {
  ThreadPool pool(2);
  std::atomic<int> others{0};
  std::atomic<bool> starved{false};
  pool.For(10, 1, [&](int64_t begin, int64_t, int) {
    if (begin != 0) {
      ++others;
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (others.load() < 9 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    starved = others.load() < 9;
  });
  EXPECT_FALSE(starved);
}

TEST(ThreadPoolDeathTest, AJobThatCallsThePoolAgainIsABugOfOurs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.Run([&](int worker) {
          if (worker == 0) pool.Run([](int) {});
        });
      },
      "internal check failed");
}

TEST(UsableCores, FollowsTheAffinityMask) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), CPU_COUNT(&all));
  std::thread([&] {  // the mask of this thread only
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &all)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableCores(), 1);
  })
      .join();
}

}  // namespace
}  // namespace ballast
