// ThreadPool: a fixed team of workers that run one job together.
//
// Purpose: split a kernel over cores. Workers spin briefly for the next job, then sleep, so an idle process
// burns no core. Thread safety: one caller at a time per pool (the engine's thread); a job must not call the
// pool again.
// Invariants: 1. Run() and For() return after every worker that took part has finished; nobody waits for one
// that has not begun when all pieces are taken (on a busy machine that can be a time slice later). 2. Results
// must not depend on who takes part: jobs write disjoint outputs, each computed the same way whoever computes
// it.
#ifndef BALLAST_BASE_THREADS_H_
#define BALLAST_BASE_THREADS_H_

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace ballast {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 means no worker is started. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls job(worker) once for each worker in [0, threads()), concurrently; worker 0 is the caller.
  void Run(FunctionRef<void(int worker)> job);

  // Calls fn(begin, end, worker) over disjoint pieces that cover [0, n), handed out dynamically in pieces of
  // at most `grain` items. Runs inline when one piece is enough. Not every worker need get one.
  void For(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end, int worker)> fn);

 private:
  struct Shared;
  // Runs job on the caller and on the workers: on all of them, or on those that come before the caller is
  // done.
  void Share(FunctionRef<void(int worker)> job, bool all);
  int threads_;
  std::unique_ptr<Shared> shared_;
};

// The number of cores this process may use: its CPU affinity, cut by the cgroup quota; at least 1.
int UsableCores();

}  // namespace ballast

#endif  // BALLAST_BASE_THREADS_H_
