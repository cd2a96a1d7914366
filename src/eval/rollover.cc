#include "eval/rollover.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/stream_snapshot.h"
#include "kernels/ops.h"

namespace ballast {
namespace {

using nlohmann::json;

double NegativeLogLikelihood(std::span<const float> logits, Token next) {
  return static_cast<double>(LogSumExp(logits.data(), static_cast<int64_t>(logits.size()))) -
         static_cast<double>(logits[static_cast<size_t>(next)]);
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

// Both clocks since the beginning of a run, those of the process it goes on from included.
struct Clocks {
  double wall = 0, cpu = 0;  // seconds
};
Clocks Now() {
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9};
}

// Identifies a text by its ids (FNV-1a).
class TextHash {
 public:
  void Add(std::span<const Token> ids) {
    for (const Token id : ids) value_ = (value_ ^ static_cast<uint32_t>(id)) * 0x100000001b3u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

// Feeds pieces of a text in turn; the last token of a piece is scored when the next piece names its
// successor.
class Scorer {
 public:
  Scorer(std::unique_ptr<Stream> stream, const RolloverOptions& options, int64_t total)
      : stream_(std::move(stream)),
        options_(options),
        stats_(options.tails.empty() ? std::vector<int64_t>{stream_->context()} : options.tails,
               options.block),
        total_(total) {
    if (options.per_token) nll_.reserve(static_cast<size_t>(total - 1));
  }

  Status Feed(std::span<const Token> tokens) {
    // The engine checks the ids too, but only after the first of them was used as an index here.
    const int64_t vocab = stream_->model().config().vocab;
    const auto in_range = [vocab](Token id) { return id >= 0 && id < vocab; };
    if (stream_->position() > 0 && in_range(tokens.front())) {
      Add(NegativeLogLikelihood(stream_->logits(), tokens.front()));
    }
    const int64_t first = stream_->position();
    Stream::AppendOptions append;
    append.all_logits = tokens.size() > 1;
    append.on_row = [&](const Stream::Row& row) {
      const auto next = static_cast<size_t>(row.position - first + 1);
      if (next < tokens.size()) Add(NegativeLogLikelihood(row.logits, tokens[next]));
    };
    bool go_on = true;
    append.on_step = [&](int64_t) {
      go_on = !options_.on_progress || options_.on_progress(stream_->position(), total_);
      return go_on;
    };
    BALLAST_RETURN_IF_ERROR(stream_->Append(tokens, append));
    hash_.Add(tokens);
    if (go_on) return Status();
    return InterruptedAfter(stream_->position(), total_);  // Append had nothing left to stop
  }

  // Notes the cost of every block that was finished by now.
  void MarkBlocks(bool finished) {
    const Clocks now = Elapsed();
    const int64_t block = options_.block;
    while (stream_->position() >= static_cast<int64_t>(costs_.size() + 1) * block ||
           (finished && static_cast<int64_t>(costs_.size()) * block < stream_->position())) {
      costs_.push_back({now.wall - marked_.wall, now.cpu - marked_.cpu, ResidentBytes()});
      marked_ = now;
    }
  }

  Status Checkpoint() const {
    json costs = json::array();
    for (const Cost& c : costs_) costs.push_back({c.wall, c.cpu, c.rss_bytes});
    const Clocks now = Elapsed();
    const json note = {{"stats", stats_.ToJson()}, {"text", hash_.value()}, {"costs", std::move(costs)},
                       {"wall", now.wall},         {"cpu", now.cpu},        {"marked_wall", marked_.wall},
                       {"marked_cpu", marked_.cpu}};
    const std::vector<uint8_t> bytes = json::to_cbor(note);
    BALLAST_ASSIGN_OR_RETURN(const Arena image, EncodeStream(*stream_, options_.checkpoints.identity, bytes));
    return options_.checkpoints.save({image.data(), image.size()});
  }

  // Takes over what Checkpoint wrote, and passes over the tokens it had fed.
  Status Resume(ThreadPool& pool, TokenSource& source) {
    BALLAST_ASSIGN_OR_RETURN(
        StreamImage image, DecodeStream(options_.checkpoints.resume, stream_->model(), pool, options_.stream,
                                        options_.checkpoints.identity));
    const Status bad = Status::Expected(Code::kInput, "checkpoint", "one of this evaluation", "another");
    const json note = json::from_cbor(image.note, true, false);
    uint64_t text = 0;
    try {
      BALLAST_RETURN_IF_ERROR(stats_.FromJson(note.at("stats")));
      text = note.at("text").get<uint64_t>();
      for (const json& c : note.at("costs")) {
        costs_.push_back({c.at(0).get<double>(), c.at(1).get<double>(), c.at(2).get<int64_t>()});
      }
      before_ = {note.at("wall").get<double>(), note.at("cpu").get<double>()};
      marked_ = {note.at("marked_wall").get<double>(), note.at("marked_cpu").get<double>()};
    } catch (const json::exception&) {
      return bad;
    }
    const int64_t position = image.stream->position();
    if (position < 1 || stats_.count() != position - 1) return bad;
    if (source.size() < position) {
      return Status::Expected(Code::kInput, "checkpoint: text",
                              "at least " + std::to_string(position) + " tokens",
                              std::to_string(source.size()));
    }
    while (source.size() >= position && skipped_ < position) {
      BALLAST_ASSIGN_OR_RETURN(const std::span<const Token> piece, source.Next(position - skipped_));
      if (piece.empty()) break;
      hash_.Add(piece);
      skipped_ += static_cast<int64_t>(piece.size());
    }
    if (skipped_ != position || hash_.value() != text) {
      return Status::Expected(Code::kInput, "checkpoint: text", "the one that it was made of", "another");
    }
    stream_ = std::move(image.stream);
    return Status();
  }

  std::vector<PerplexityBlock> Blocks() const {
    std::vector<PerplexityBlock> blocks = stats_.Blocks();
    for (size_t i = 0; i < std::min(blocks.size(), costs_.size()); ++i) {
      blocks[i].seconds = costs_[i].wall;
      blocks[i].cpu_seconds = costs_[i].cpu;
      blocks[i].rss_bytes = costs_[i].rss_bytes;
    }
    return blocks;
  }

  Clocks Elapsed() const {
    const Clocks now = Now();
    return {before_.wall + now.wall - begin_.wall, before_.cpu + now.cpu - begin_.cpu};
  }
  const Stream& stream() const { return *stream_; }
  const NllStats& stats() const { return stats_; }
  int64_t resumed_at() const { return skipped_; }
  std::vector<float> TakeNll() { return std::move(nll_); }

 private:
  void Add(double nll) {
    stats_.Add(nll);
    if (options_.per_token) nll_.push_back(static_cast<float>(nll));
  }

  std::unique_ptr<Stream> stream_;
  const RolloverOptions& options_;
  NllStats stats_;
  int64_t total_;
  std::vector<float> nll_;
  TextHash hash_;
  int64_t skipped_ = 0;
  struct Cost {
    double wall, cpu;
    int64_t rss_bytes;
  };
  std::vector<Cost> costs_;  // (block)
  const Clocks begin_ = Now();
  Clocks before_;
  Clocks marked_;
};

RolloverRun Describe(Scorer& scorer, const RolloverOptions& options) {
  const Stream& stream = scorer.stream();
  const NllStats& stats = scorer.stats();
  RolloverRun run;
  run.policy = stream.policy();
  run.sinks = stream.pinned();
  run.context = stream.context();
  run.kv = options.stream.kv;
  run.compute = stream.model().compute();
  run.tokens = stats.count() + 1;
  run.mean_nll = stats.mean();
  run.perplexity = std::exp(run.mean_nll);
  run.block = options.block;
  run.blocks = scorer.Blocks();
  run.curve = stats.Curve();
  run.nll = scorer.TakeNll();
  run.tails = stats.tails();
  run.evicted_tokens = stream.evicted();
  const Clocks elapsed = scorer.Elapsed();
  run.seconds = elapsed.wall;
  run.cpu_seconds = elapsed.cpu;
  run.resumed_at = scorer.resumed_at();
  run.tokens_per_second = run.seconds > 0 ? static_cast<double>(run.tokens) / run.seconds : 0;
  run.kv_bytes = stream.kv_bytes();
  run.rss_peak_bytes = PeakResidentBytes();
  return run;
}

}  // namespace

const TailSums* RolloverRun::Tail(int64_t from) const {
  for (const TailSums& tail : tails) {
    if (tail.from == from) return &tail;
  }
  return nullptr;
}

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
  const RolloverCheckpoints& checkpoints = options.checkpoints;
  BALLAST_CHECK(options.block >= 1 && !(options.per_token && checkpoints.every > 0));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
  Scorer scorer(std::move(stream), options, source.size());
  source.Rewind();
  if (!checkpoints.resume.empty()) {
    BALLAST_RETURN_IF_ERROR(scorer.Resume(pool, source).In(checkpoints.name));
  }
  int64_t saved = scorer.stream().position();
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::span<const Token> piece, source.Next(options.stream.chunk));
    if (piece.empty()) break;
    BALLAST_RETURN_IF_ERROR(scorer.Feed(piece));
    scorer.MarkBlocks(false);
    const int64_t position = scorer.stream().position();
    if (checkpoints.every > 0 && position - saved >= checkpoints.every && position < source.size()) {
      BALLAST_RETURN_IF_ERROR(scorer.Checkpoint());
      saved = position;
    }
  }
  BALLAST_CHECK(scorer.stats().count() == source.size() - 1);
  // Before the last block's cost is marked: a longer text may go on from here.
  if (checkpoints.every > 0 && scorer.stream().position() > saved) {
    BALLAST_RETURN_IF_ERROR(scorer.Checkpoint());
  }
  scorer.MarkBlocks(true);
  return Describe(scorer, options);
}

int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }
int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }

}  // namespace ballast
