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
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old, bool spin) {
  uint32_t now = word.load(std::memory_order_acquire);
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

// Every hand-over goes through `epoch` (caller -> workers) and `pending` (workers -> caller). They lie on
// lines of their own, since both are polled.
struct ThreadPool::Shared {
  explicit Shared(bool may_spin) : spin(may_spin) {}

  alignas(64) std::atomic<uint32_t> epoch{0};          // grows by one per job
  const FunctionRef<void(int worker)>* job = nullptr;  // null: the workers shall end
  alignas(64) std::atomic<uint32_t> pending{0};        // workers that have not finished the job
  std::atomic<bool> busy{false};                       // guards the contract: one caller, no nesting
  const bool spin;
  std::vector<std::thread> workers;

  void Work(int worker) {
    uint32_t seen = 0;
    for (;;) {
      // A worker cannot miss an epoch: the caller starts none before all have finished the last.
      seen = AwaitChange(epoch, seen, spin);
      if (job == nullptr) return;
      (*job)(worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void Start(const FunctionRef<void(int worker)>* next) {
    job = next;
    pending.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void Finish() {
    for (uint32_t left = pending.load(std::memory_order_acquire); left != 0;) {
      left = AwaitChange(pending, left, spin);
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  BALLAST_CHECK(threads >= 1);
  // With more threads than cores a spinning one only keeps the working one from its core.
  shared_ = std::make_unique<Shared>(threads <= UsableCores());
  shared_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    shared_->workers.emplace_back([shared = shared_.get(), worker] { shared->Work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->Start(nullptr);
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::Run(FunctionRef<void(int worker)> job) {
  BALLAST_CHECK(!shared_->busy.exchange(true, std::memory_order_acquire));
  if (!shared_->workers.empty()) shared_->Start(&job);
  job(0);
  if (!shared_->workers.empty()) shared_->Finish();
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
  Run([&](int worker) {
    for (;;) {
      const int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      const int64_t begin = piece * grain;
      fn(begin, begin + std::min(grain, n - begin), worker);
    }
  });
}

}  // namespace ballast
