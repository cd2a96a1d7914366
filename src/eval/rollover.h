// Roll-over perplexity: how well a model predicts a text while its cache fills up, and after.
//
// Purpose: offline evaluations never evict, so they stay green while a rolling cache ruins the model. This
// one streams the whole text through one Stream, as a deployment would. Definition: for tokens x[0..n),
// nll[i] = -log p(x[i + 1] | the cache after token i) = LogSumExp(logits) - logits[x[i + 1]], natural log,
// for i = 0 .. n - 2; perplexity = exp(mean nll). Thread safety: none; a run owns its stream. Invariants: 1.
// n tokens give n - 1 values. 2. The chunk size does not change them beyond rounding.
// 3. Memory does not grow with the text: some 50 bytes per block of 1024 tokens, and 4 per token when asked
// for.
#ifndef BALLAST_EVAL_ROLLOVER_H_
#define BALLAST_EVAL_ROLLOVER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/stream.h"
#include "eval/tokens.h"
#include "model/model.h"

namespace ballast {

inline constexpr int64_t kPerplexityBlock = 1024;  // tokens

// The predicted tokens at stream positions [from, to). Position 0 is never predicted, so the first block
// holds one value less.
struct PerplexityBlock {
  int64_t from = 0;
  int64_t to = 0;
  double perplexity = 0;
  double seconds = 0;     // spent on it: flat for a stream that never slows down (blocks only)
  int64_t rss_bytes = 0;  // resident memory at its end; 0: unknown (blocks only)
};

// Sums of a stream of nll values. `tail_from`: the index of the first value counted as the tail.
class NllStats {
 public:
  explicit NllStats(int64_t tail_from) : tail_from_(tail_from) {}
  void Add(double nll);
  int64_t count() const { return count_; }
  double mean() const { return sum_ / static_cast<double>(count_); }  // REQUIRES: count() > 0
  int64_t tail_count() const { return tail_count_; }
  double tail_mean() const {
    return tail_sum_ / static_cast<double>(tail_count_);
  }  // REQUIRES: tail_count() > 0
  std::vector<PerplexityBlock> Blocks() const;
  // At most kMaxBins bins of equal width (a power of two times 32 tokens): for a picture.
  std::vector<PerplexityBlock> Curve() const;

 private:
  static constexpr size_t kMaxBins = 32;
  static constexpr int64_t kFirstBin = 32;  // tokens
  struct Bins {
    int64_t width = 0;         // predicted positions per bin
    std::vector<double> sums;  // (bin)
    void Add(int64_t position, double nll);
    std::vector<PerplexityBlock> Means(int64_t end) const;
  };

  int64_t tail_from_;
  int64_t count_ = 0;
  double sum_ = 0;
  int64_t tail_count_ = 0;
  double tail_sum_ = 0;
  Bins blocks_{kPerplexityBlock, {}};
  Bins curve_{kFirstBin, {}};
};

struct RolloverOptions {
  StreamOptions stream;    // `chunk` tokens are fed at once
  int64_t tail_from = -1;  // first index of the tail (see NllStats); -1: the capacity, where eviction starts
  bool per_token = false;  // keep every nll
  std::function<bool(int64_t done, int64_t total)> on_progress;  // false interrupts (kInterrupted)
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
  std::vector<PerplexityBlock> blocks;
  std::vector<PerplexityBlock> curve;
  std::vector<float> nll;      // (tokens - 1), only with per_token
  int64_t tail_tokens = 0;     // values from tail_from on
  double tail_perplexity = 0;  // of those; 0 when there are none
  int64_t evicted_tokens = 0;
  double seconds = 0;  // feeding and scoring; loading is not in it
  double tokens_per_second = 0;
  int64_t kv_bytes = 0;
  int64_t rss_peak_bytes = 0;  // of the process so far, so it never falls from run to run; 0: unknown
};

// What StreamOptions::context = 0 stands for.
int64_t DefaultContext(const ModelConfig& config);

// Refuses, before any work, what RunRollover would refuse after some: fewer than two tokens, a dense cache
// smaller than the text.
Status CheckRollover(const ModelConfig& config, const StreamOptions& options, int64_t tokens);

// Streams all of `source` (rewound first) through a fresh stream. Errors are CheckRollover's and Stream's.
Result<RolloverRun> RunRollover(const Model& model, ThreadPool& pool, TokenSource& source,
                                const RolloverOptions& options);

// Resident memory of this process in bytes, its peak and now (VmHWM, VmRSS of /proc/self/status); 0 when
// unknown.
int64_t PeakResidentBytes();
int64_t ResidentBytes();

}  // namespace ballast

#endif  // BALLAST_EVAL_ROLLOVER_H_
