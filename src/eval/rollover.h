// Roll-over perplexity: how well a model predicts a text while its cache fills up, and after.
//
// Purpose: offline evaluations never evict, so they stay green while a rolling cache ruins the model. This
// one streams the whole text through one Stream, as a deployment would. Definition: for tokens x[0..n),
// nll[i] = -log p(x[i + 1] | the cache after token i) = LogSumExp(logits) - logits[x[i + 1]], natural log,
// for i = 0 .. n - 2; perplexity = exp(mean nll). Thread safety: none; a run owns its stream. Invariants: 1.
// n tokens give n - 1 values. 2. The chunk size does not change them beyond rounding.
// 3. Memory does not grow with the text: some 50 bytes per block, and 4 per token when asked for.
#ifndef BALLAST_EVAL_ROLLOVER_H_
#define BALLAST_EVAL_ROLLOVER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/model_identity.h"
#include "engine/stream.h"
#include "eval/nll_stats.h"
#include "eval/tokens.h"
#include "model/model.h"

namespace ballast {

// How a run that takes hours survives being killed: from time to time it hands out its whole state as bytes,
// and another run of the same model, options and text goes on from there, bit for bit.
struct RolloverCheckpoints {
  int64_t every = 0;  // tokens; 0: none. The end is handed out too.
  std::function<Status(std::span<const uint8_t>)> save;
  std::span<const uint8_t> resume;  // what `save` was given; empty: from the beginning
  std::string name;                 // of what `resume` was read from, for messages
  ModelIdentity identity;           // kInput when `resume` is of another
};

struct RolloverOptions {
  StreamOptions stream;        // `chunk` tokens are fed at once
  std::vector<int64_t> tails;  // first indexes of the tails; empty: the capacity, where eviction starts
  int64_t block = kPerplexityBlock;
  bool per_token = false;                                        // keep every nll
  std::function<bool(int64_t done, int64_t total)> on_progress;  // false interrupts (kInterrupted)
  RolloverCheckpoints checkpoints;                               // not with per_token
};

struct RolloverRun {
  Policy policy = Policy::kSinks;
  int64_t sinks = 0;
  int64_t context = 0;
  KvType kv = KvType::kQ8;
  Compute compute = Compute::kFast;
  int64_t tokens = 0;
  double mean_nll = 0;
  double perplexity = 0;
  int64_t block = kPerplexityBlock;  // width of `blocks`
  std::vector<PerplexityBlock> blocks;
  std::vector<PerplexityBlock> curve;
  std::vector<float> nll;       // (tokens - 1), only with per_token
  std::vector<TailSums> tails;  // as asked for
  int64_t evicted_tokens = 0;
  double seconds = 0;      // feeding and scoring; loading is not in it
  double cpu_seconds = 0;  // of all threads
  int64_t resumed_at = 0;  // token from which this process went on; 0: from the beginning
  double tokens_per_second = 0;
  int64_t kv_bytes = 0;
  int64_t rss_peak_bytes = 0;  // of the process so far, so it never falls from run to run; 0: unknown

  // The tail that starts at index `from`; null when it was not asked for.
  const TailSums* Tail(int64_t from) const;
};

// What StreamOptions::context = 0 stands for.
int64_t DefaultContext(const ModelConfig& config);

// Refuses, before any work, what RunRollover would refuse after some: fewer than two tokens, a dense cache
// smaller than the text.
Status CheckRollover(const ModelConfig& config, const StreamOptions& options, int64_t tokens);

// Streams all of `source` (rewound first) through a fresh stream, or what is left of it through a resumed
// one. Errors are CheckRollover's, Stream's, those of checkpoints.save, and kInput for a checkpoint of
// another model, run or text.
Result<RolloverRun> RunRollover(const Model& model, ThreadPool& pool, TokenSource& source,
                                const RolloverOptions& options);

// Resident memory of this process in bytes, its peak and now (VmHWM, VmRSS of /proc/self/status); 0 when
// unknown.
int64_t PeakResidentBytes();
int64_t ResidentBytes();

}  // namespace ballast

#endif  // BALLAST_EVAL_ROLLOVER_H_
