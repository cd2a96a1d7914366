// Throughput: how fast a model runs, measured the way it is used.
//
// Purpose: the work behind `ballast bench`. Tokens are pseudo-random ids, so that every run and every engine
// gets the same; what they are does not change how long they take. Thread safety: the pool's caller.
#ifndef BALLAST_EVAL_THROUGHPUT_H_
#define BALLAST_EVAL_THROUGHPUT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/stream.h"
#include "model/model.h"

namespace ballast {

struct Throughput {
  std::string test;      // "prefill", "decode", "stream", "sessions"
  int64_t tokens = 0;    // measured, per repetition (and session)
  int64_t depth = 0;     // tokens in the cache when measuring began
  int64_t position = 0;  // stream position when measuring began
  int64_t context = 0;
  int64_t sessions = 1;
  KvType kv = KvType::kQ8;
  Policy policy = Policy::kSinks;
  double median = 0, min = 0, max = 0;  // tokens per second over the repetitions; of all sessions together
  double p50 = 0, p99 = 0, worst = 0;   // ms per step of one token (and session); prefill: ms per token
  int64_t kv_bytes = 0;                 // of all sessions
  int64_t rss_bytes = 0;                // of the process, afterwards
};

struct ThroughputOptions {
  StreamOptions stream;
  int64_t tokens = 64;  // decoded per repetition
  int64_t reps = 3;
  std::function<bool(double share)> on_progress;  // false interrupts (kInterrupted)
};

// Reads `n` tokens into an empty stream; only the last one's logits are computed.
Result<Throughput> MeasurePrefill(const Model& model, ThreadPool& pool, const ThroughputOptions& options,
                                  int64_t n);
// One token at a time after `depth` tokens.
Result<Throughput> MeasureDecode(const Model& model, ThreadPool& pool, const ThroughputOptions& options,
                                 int64_t depth);
// One token at a time past roll-over, every step evicting one: first where the cache has just filled up (or
// at position 10,000 if `position` is beyond that), and once more at stream position `position` when that is
// later. All tokens between are really fed.
Result<std::vector<Throughput>> MeasureStream(const Model& model, ThreadPool& pool,
                                              const ThroughputOptions& options, int64_t position);
// `sessions` streams, each after `depth` tokens, one token of each per step.
Result<Throughput> MeasureSessions(const Model& model, ThreadPool& pool, const ThroughputOptions& options,
                                   int64_t sessions, int64_t depth);

}  // namespace ballast

#endif  // BALLAST_EVAL_THROUGHPUT_H_
