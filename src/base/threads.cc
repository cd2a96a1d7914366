#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/status.h"

namespace ballast {
namespace {

// How long a worker (or the caller, at the end of a job) spins before it sleeps. The gaps between the jobs of
// one token (a norm, a rotation) are a few microseconds; a futex wake costs more than that.
constexpr std::chrono::microseconds kSpin{20};

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Waits until `word` differs from `old`; acquires what was released with the new value, and returns it.
template <class Word>
Word AwaitChange(const std::atomic<Word>& word, Word old, bool spin) {
  Word now = word.load(std::memory_order_acquire);
  if (now != old) return now;
  if (spin) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        now = word.load(std::memory_order_acquire);
        if (now != old) return now;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < deadline);
  }
  while ((now = word.load(std::memory_order_acquire)) == old) word.wait(old, std::memory_order_acquire);
  return now;
}

}  // namespace

// A job is announced by `epoch`. A worker takes part by raising `gate`, which says whether that job is open
// and who is inside; the caller closes it and waits for those. Both words lie on lines of their own, since
// both are polled.
struct ThreadPool::Shared {
  static constexpr uint64_t kOpen = uint64_t{1} << 31;  // below it: workers inside; above: the job's epoch
  static constexpr uint64_t kInside = kOpen - 1;

  explicit Shared(bool may_spin) : spin(may_spin) {}

  alignas(64) std::atomic<uint32_t> epoch{0};  // grows by one per job, after the gate has opened
  std::atomic<bool> ending{false};
  alignas(64) std::atomic<uint64_t> gate{0};
  std::atomic<uint32_t> done{0};                       // workers that have done a job for all
  const FunctionRef<void(int worker)>* job = nullptr;  // this and the next change only while nobody is inside
  bool for_all = false;
  std::atomic<bool> busy{false};  // guards the contract: one caller, no nesting
  const bool spin;
  std::vector<std::thread> workers;

  void Work(int worker) {
    for (uint32_t seen = 0;;) {
      seen = AwaitChange(epoch, seen, spin);
      if (ending.load(std::memory_order_acquire)) return;
      if (!Enter(seen)) continue;  // over before this worker could begin
      (*job)(worker);
      if (for_all) {
        done.fetch_add(1, std::memory_order_release);
        done.notify_one();
      }
      const uint64_t before = gate.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & kOpen) == 0 && (before & kInside) == 1) gate.notify_one();  // the last to leave
    }
  }

  bool Enter(uint32_t wanted) {
    uint64_t now = gate.load(std::memory_order_relaxed);
    while ((now & kOpen) != 0 && now >> 32 == wanted) {
      if (gate.compare_exchange_weak(now, now + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  void Announce() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void Start(const FunctionRef<void(int worker)>* next, bool all) {
    job = next;
    for_all = all;
    done.store(0, std::memory_order_relaxed);
    gate.store(uint64_t{epoch.load(std::memory_order_relaxed) + 1} << 32 | kOpen, std::memory_order_release);
    Announce();
  }

  void Finish() {
    if (for_all) {
      for (uint32_t n = done.load(std::memory_order_acquire); n != workers.size();)
        n = AwaitChange(done, n, spin);
    }
    uint64_t now = gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while ((now & kInside) != 0) now = AwaitChange(gate, now, spin);
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  BALLAST_CHECK(threads >= 1);
  // With more threads than cores a spinning one only keeps the working one from its core.
  shared_ = std::make_unique<Shared>(threads <= UsableCores());
  const auto workers = static_cast<size_t>(threads - 1);
  shared_->workers.reserve(workers);
  for (int worker = 1; worker < threads; ++worker) {
    shared_->workers.emplace_back([shared = shared_.get(), worker] { shared->Work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->ending.store(true, std::memory_order_release);
  shared_->Announce();
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::Run(FunctionRef<void(int worker)> job) { Share(job, true); }

void ThreadPool::Share(FunctionRef<void(int worker)> job, bool all) {
  BALLAST_CHECK(!shared_->busy.exchange(true, std::memory_order_acquire));
  if (threads_ > 1) shared_->Start(&job, all);
  job(0);
  if (threads_ > 1) shared_->Finish();
  shared_->busy.store(false, std::memory_order_release);
}

void ThreadPool::For(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end, int worker)> fn) {
  if (n <= 0) return;
  grain = std::clamp<int64_t>(grain, 1, n);
  if (threads_ == 1 || grain == n) {
    for (int64_t begin = 0; begin < n; begin += std::min(grain, n - begin)) {
      fn(begin, begin + std::min(grain, n - begin), 0);
    }
    return;
  }
  const int64_t pieces = n / grain + (n % grain != 0 ? 1 : 0);
  std::atomic<int64_t> next{0};  // the first piece that nobody has taken
  const auto take = [&](int worker) {
    for (;;) {
      const int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      const int64_t begin = piece * grain;
      fn(begin, begin + std::min(grain, n - begin), worker);
    }
  };
  Share(take, false);
}

}  // namespace ballast
