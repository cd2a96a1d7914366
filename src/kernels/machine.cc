#include "kernels/machine.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/mmap.h"
#include "kernels/matmul_impl.h"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/machine.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads `bytes` (a multiple of 1024) and returns something that depends on all of them.
uint64_t SumBytesT(const uint8_t* data, size_t bytes) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  const uint64_t* at = reinterpret_cast<const uint64_t*>(data);
  const uint64_t* end = at + bytes / sizeof(uint64_t);
  for (; at < end; at += 4 * lanes) {
    a = hn::Add(a, hn::Load(d, at));
    b = hn::Add(b, hn::Load(d, at + lanes));
    c = hn::Add(c, hn::Load(d, at + 2 * lanes));
    e = hn::Add(e, hn::Load(d, at + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(SumBytesT);

namespace {

volatile uint64_t keep;  // what a measurement computed, so that it is computed

// Seconds of the fastest of `passes` runs of `job` on every thread.
template <class Job>
double Fastest(ThreadPool& pool, int passes, const Job& job) {
  double best = 1e30;
  for (int pass = 0; pass < passes; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    pool.Run(job);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{256} << 20;  // several times any last-level cache of a small machine
  Result<Arena> arena = Arena::Allocate(kBytes);
  if (!arena.ok()) return 0;
  const size_t share = kBytes / static_cast<size_t>(pool.threads()) / 4096 * 4096;
  uint8_t* data = arena->data();
  pool.Run([=](int worker) { std::memset(data + worker * share, worker + 1, share); });
  const double seconds = Fastest(pool, 6, [=](int worker) {
    const uint64_t sum = HWY_DYNAMIC_DISPATCH(SumBytesT)(data + worker * share, share);
    if (sum == 1) keep = sum;
  });
  return static_cast<double>(share) * pool.threads() / seconds;
}

double MeasureByteMultiplyAdds(ThreadPool& pool) {
  constexpr int64_t kRounds = 2'000'000;
  const int64_t per_round = RunByteDots(0, 1).count;
  if (per_round == 0) return 0;
  const double seconds = Fastest(pool, 6, [](int worker) {
    const int32_t sum = RunByteDots(worker, kRounds).sum;
    if (sum == 1) keep = static_cast<uint64_t>(sum);
  });
  return static_cast<double>(kRounds * per_round) * pool.threads() / seconds;
}

Pauses MeasurePauses(ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLongest = std::chrono::seconds(1);
  std::vector<Pauses> found(static_cast<size_t>(pool.threads()));
  pool.Run([&](int worker) {
    Pauses mine;
    const Clock::time_point begin = Clock::now();
    for (Clock::time_point last = begin; last - begin < kLongest;) {
      const Clock::time_point now = Clock::now();
      const double ms = std::chrono::duration<double, std::milli>(now - last).count();
      if (ms >= 1) mine.per_second += 1;
      mine.longest_ms = std::max(mine.longest_ms, ms);
      last = now;
    }
    found[static_cast<size_t>(worker)] = mine;
  });
  Pauses all;
  for (const Pauses& one : found) {
    all.per_second += one.per_second / static_cast<double>(found.size());
    all.longest_ms = std::max(all.longest_ms, one.longest_ms);
  }
  return all;
}

}  // namespace ballast
#endif  // HWY_ONCE
