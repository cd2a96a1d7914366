// Sums of a stream of negative log-likelihoods: what an evaluation keeps of it, however long it is.
//
// Values come in order; value i is of the token at stream position i + 1. Thread safety: none. Invariants: 1.
// memory is 8 bytes per block of tokens, and constant for curve and tails. 2. Two streams of the same length
// have the same bins and batches, so that they can be compared pair by pair. 3. ToJson and FromJson carry
// every bit.
#ifndef BALLAST_EVAL_NLL_STATS_H_
#define BALLAST_EVAL_NLL_STATS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ballast {

inline constexpr int64_t kPerplexityBlock = 1024;  // tokens

// The predicted tokens at stream positions [from, to). Position 0 is never predicted, so the first block
// holds one value less.
struct PerplexityBlock {
  int64_t from = 0;
  int64_t to = 0;
  double perplexity = 0;
  double seconds = 0;      // spent on it: flat for a stream that never slows down (blocks only)
  double cpu_seconds = 0;  // of all threads: the same where other work shares the machine (blocks only)
  int64_t rss_bytes = 0;   // resident memory at its end; 0: unknown (blocks only)
};

// The values from index `from` on, in batches of equal width that double when there are too many.
struct TailSums {
  static constexpr int64_t kFirstWidth = 64;  // values
  static constexpr size_t kMaxBatches = 32;
  int64_t from = 0;
  int64_t count = 0;
  double sum = 0;
  int64_t width = kFirstWidth;
  std::vector<double> batches;  // sums; the last one may still be filling

  void Add(double nll);
  double perplexity() const;  // 0 without values
};

// kModel for a value, such as a perplexity, that is no finite number: the model's output is none.
Status CheckFinite(std::string_view what, double value);

class NllStats {
 public:
  // `tails`: indexes of the first value of each tail. `block` >= 1: predicted positions per block.
  explicit NllStats(const std::vector<int64_t>& tails, int64_t block = kPerplexityBlock);
  void Add(double nll);
  int64_t count() const { return count_; }
  double mean() const { return sum_ / static_cast<double>(count_); }  // REQUIRES: count() > 0
  const std::vector<TailSums>& tails() const { return tails_; }
  int64_t block() const { return blocks_.width; }
  std::vector<PerplexityBlock> Blocks() const;
  // At most kMaxBins bins of equal width (a power of two times 32 tokens): for a picture.
  std::vector<PerplexityBlock> Curve() const;

  nlohmann::json ToJson() const;
  // kInput, with nothing changed, for what ToJson of stats with the same tails and block could not have made.
  Status FromJson(const nlohmann::json& json);

 private:
  static constexpr size_t kMaxBins = 32;
  static constexpr int64_t kFirstBin = 32;  // tokens
  struct Bins {
    int64_t width = 0;         // predicted positions per bin
    std::vector<double> sums;  // (bin)
    void Add(int64_t position, double nll);
    std::vector<PerplexityBlock> Means(int64_t end) const;
  };

  int64_t count_ = 0;
  double sum_ = 0;
  std::vector<TailSums> tails_;
  Bins blocks_;
  Bins curve_{kFirstBin, {}};
};

}  // namespace ballast

#endif  // BALLAST_EVAL_NLL_STATS_H_
