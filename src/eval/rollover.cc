#include "eval/rollover.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/ops.h"

namespace ballast {
namespace {

double NegativeLogLikelihood(std::span<const float> logits, Token next) {
  return static_cast<double>(LogSumExp(logits.data(), static_cast<int64_t>(logits.size()))) -
         static_cast<double>(logits[static_cast<size_t>(next)]);
}

Status Interrupted(int64_t done, int64_t total) {
  return Status(Code::kInterrupted,
                "interrupted after " + std::to_string(done) + " of " + std::to_string(total) + " tokens");
}

// A field of /proc/self/status, which counts in KiB; 0 when there is none.
int64_t StatusBytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(field, 0) == 0) return std::strtoll(line.c_str() + field.size(), nullptr, 10) * 1024;
  }
  return 0;
}

// Feeds pieces of a text in turn; the last token of a piece is scored when the next piece names its
// successor.
class Scorer {
 public:
  Scorer(Stream& stream, const RolloverOptions& options, int64_t tail_from, int64_t total)
      : stream_(stream), options_(options), stats_(tail_from), total_(total) {
    if (options.per_token) nll_.reserve(static_cast<size_t>(total - 1));
  }

  Status Feed(std::span<const Token> tokens) {
    // The engine checks the ids too, but only after the first of them was used as an index here.
    const int64_t vocab = stream_.model().config().vocab;
    const auto in_range = [vocab](Token id) { return id >= 0 && id < vocab; };
    if (stream_.position() > 0 && in_range(tokens.front())) {
      Add(NegativeLogLikelihood(stream_.logits(), tokens.front()));
    }
    const int64_t first = stream_.position();
    Stream::AppendOptions append;
    append.all_logits = tokens.size() > 1;
    append.on_row = [&](const Stream::Row& row) {
      const auto next = static_cast<size_t>(row.position - first + 1);
      if (next < tokens.size()) Add(NegativeLogLikelihood(row.logits, tokens[next]));
    };
    bool go_on = true;
    append.on_step = [&](int64_t) {
      go_on = !options_.on_progress || options_.on_progress(stream_.position(), total_);
      return go_on;
    };
    BALLAST_RETURN_IF_ERROR(stream_.Append(tokens, append));
    if (go_on) return Status();
    return Interrupted(stream_.position(), total_);  // Append had nothing left to stop
  }

  // Notes the cost of every block that `elapsed` seconds of feeding have finished.
  void MarkBlocks(double elapsed, bool finished) {
    while (stream_.position() >= static_cast<int64_t>(costs_.size() + 1) * kPerplexityBlock ||
           (finished && static_cast<int64_t>(costs_.size()) * kPerplexityBlock < stream_.position())) {
      costs_.push_back({elapsed - marked_, ResidentBytes()});
      marked_ = elapsed;
    }
  }
  std::vector<PerplexityBlock> Blocks() const {
    std::vector<PerplexityBlock> blocks = stats_.Blocks();
    for (size_t i = 0; i < std::min(blocks.size(), costs_.size()); ++i) {
      blocks[i].seconds = costs_[i].seconds;
      blocks[i].rss_bytes = costs_[i].rss_bytes;
    }
    return blocks;
  }

  const NllStats& stats() const { return stats_; }
  std::vector<float> TakeNll() { return std::move(nll_); }

 private:
  void Add(double nll) {
    stats_.Add(nll);
    if (options_.per_token) nll_.push_back(static_cast<float>(nll));
  }

  Stream& stream_;
  const RolloverOptions& options_;
  NllStats stats_;
  int64_t total_;
  std::vector<float> nll_;
  struct Cost {
    double seconds;
    int64_t rss_bytes;
  };
  std::vector<Cost> costs_;  // (block)
  double marked_ = 0;
};

}  // namespace

void NllStats::Bins::Add(int64_t position, double nll) {
  const auto bin = static_cast<size_t>(position / width);
  if (bin >= sums.size()) sums.resize(bin + 1);
  sums[bin] += nll;
}

std::vector<PerplexityBlock> NllStats::Bins::Means(int64_t end) const {
  std::vector<PerplexityBlock> out;
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) * width;
    const int64_t to = std::min(from + width, end);
    const int64_t values = to - std::max<int64_t>(from, 1);
    out.push_back({from, to, std::exp(sums[i] / static_cast<double>(values))});
  }
  return out;
}

void NllStats::Add(double nll) {
  const int64_t position = count_ + 1;  // of the predicted token
  sum_ += nll;
  if (count_ >= tail_from_) {
    tail_sum_ += nll;
    ++tail_count_;
  }
  ++count_;
  blocks_.Add(position, nll);
  if (static_cast<size_t>(position / curve_.width) >= kMaxBins) {
    std::vector<double> merged((curve_.sums.size() + 1) / 2);
    for (size_t i = 0; i < curve_.sums.size(); ++i) merged[i / 2] += curve_.sums[i];
    curve_ = {curve_.width * 2, std::move(merged)};
  }
  curve_.Add(position, nll);
}

std::vector<PerplexityBlock> NllStats::Blocks() const { return blocks_.Means(count_ + 1); }
std::vector<PerplexityBlock> NllStats::Curve() const { return curve_.Means(count_ + 1); }

int64_t DefaultContext(const ModelConfig& config) {
  return config.trained_context > 0 ? std::min<int64_t>(8192, config.trained_context) : 8192;
}

Status CheckRollover(const ModelConfig& config, const StreamOptions& options, int64_t tokens) {
  BALLAST_RETURN_IF_ERROR(CheckScorable(tokens));
  const int64_t context = options.context > 0 ? options.context : DefaultContext(config);
  if (options.policy == Policy::kDense && context < tokens) {
    return Status::Expected(Code::kInput, "dense cache", "at most " + std::to_string(context) + " tokens",
                            std::to_string(tokens),
                            "a dense cache never evicts: give it more room, or use --policy sinks");
  }
  return Status();
}

Result<RolloverRun> RunRollover(const Model& model, ThreadPool& pool, TokenSource& source,
                                const RolloverOptions& options) {
  BALLAST_RETURN_IF_ERROR(CheckRollover(model.config(), options.stream, source.size()));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
  const int64_t tail_from = options.tail_from >= 0 ? options.tail_from : stream->context();
  Scorer scorer(*stream, options, tail_from, source.size());
  source.Rewind();
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::span<const Token> piece, source.Next(options.stream.chunk));
    if (piece.empty()) break;
    BALLAST_RETURN_IF_ERROR(scorer.Feed(piece));
    scorer.MarkBlocks(elapsed(), false);
  }
  scorer.MarkBlocks(elapsed(), true);

  const NllStats& stats = scorer.stats();
  BALLAST_CHECK(stats.count() == source.size() - 1);
  RolloverRun run;
  run.policy = stream->policy();
  run.sinks = stream->pinned();
  run.context = stream->context();
  run.kv = options.stream.kv;
  run.compute = model.compute();
  run.tokens = source.size();
  run.mean_nll = stats.mean();
  run.perplexity = std::exp(run.mean_nll);
  run.blocks = scorer.Blocks();
  run.curve = stats.Curve();
  run.nll = scorer.TakeNll();
  run.tail_tokens = stats.tail_count();
  run.tail_perplexity = run.tail_tokens > 0 ? std::exp(stats.tail_mean()) : 0;
  run.evicted_tokens = stream->evicted();
  run.seconds = elapsed();
  run.tokens_per_second = run.seconds > 0 ? static_cast<double>(run.tokens) / run.seconds : 0;
  run.kv_bytes = stream->kv_bytes();
  run.rss_peak_bytes = PeakResidentBytes();
  return run;
}

int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }
int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }

}  // namespace ballast
