#include "eval/trial.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "engine/batch.h"
#include "engine/rescue.h"
#include "kernels/ops.h"

namespace ballast {
namespace {

constexpr int64_t kLoopTokens = 128;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The newest tokens of a stream, in a buffer that is cut now and then.
class Newest {
 public:
  void Add(Token token) {
    if (tokens_.size() == kMost) tokens_.erase(tokens_.begin(), tokens_.begin() + kMost / 2);
    tokens_.push_back(token);
  }
  std::span<const Token> view() const { return tokens_; }

 private:
  static constexpr size_t kMost = 4 * kRescueTokens;
  std::vector<Token> tokens_;
};

// One stream under watch.
struct Watched {
  explicit Watched(const Model& model) : monitor(model) {}
  std::unique_ptr<Stream> stream;
  Monitor monitor;
  Newest newest;
  Verdict before;

  // After a token was fed: notes extremes and a new alarm. True: it is a new one.
  bool Look(int64_t index, TrialRun& run) {
    const Verdict& verdict = monitor.verdict();
    const SinkPart& sinks = monitor.sinks();
    if (sinks.judges())
      run.lowest_share = std::min(run.lowest_share, double{sinks.recent()} / double{sinks.usual()});
    if (monitor.entropy().judges()) {
      run.highest_rise =
          std::max(run.highest_rise, double{monitor.entropy().recent()} - double{monitor.entropy().usual()});
    }
    const Verdict was = std::exchange(before, verdict);
    if (verdict.state != Health::kCollapsed) return false;
    if (was.state == Health::kCollapsed && was.reason == verdict.reason) return false;
    const Loop loop = FindLoop(newest.view());
    run.alarms.push_back(
        {index, stream->position() - 1, verdict.since, verdict.reason, loop.period, loop.share, loop.tokens});
    return true;
  }
};

Status CheckTokens(const Model& model, std::span<const Token> tokens) {
  const int64_t vocab = model.config().vocab;
  for (const Token token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return Status::Expected(Code::kInput, "token", "an id from 0 to " + std::to_string(vocab - 1),
                            std::to_string(token));
  }
  return Status();
}

}  // namespace

Loop FindLoop(std::span<const Token> tokens) {
  Loop best;
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t n = std::min(kLoopTokens, size);
  for (int64_t period = 1; period <= std::min(kLoopTokens, size - 1); ++period) {
    int64_t same = 0;
    for (int64_t i = std::max(size - n, period); i < size; ++i) {
      same += tokens[static_cast<size_t>(i)] == tokens[static_cast<size_t>(i - period)];
    }
    const double share = static_cast<double>(same) / static_cast<double>(n);
    if (share > best.share) best = {period, share, 0};
  }
  int64_t same = 0;
  for (int64_t back = 1; back + best.period <= size && best.period > 0; ++back) {
    same +=
        tokens[static_cast<size_t>(size - back)] == tokens[static_cast<size_t>(size - back - best.period)];
    if (same * 5 >= back * 4) best.tokens = back;
  }
  return best;
}

Result<TrialRun> RunFedTrial(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
                             TokenSource& source, const TrialOptions& options) {
  Watched w(model);
  BALLAST_ASSIGN_OR_RETURN(w.stream, Stream::Create(model, pool, options.stream));
  TrialRun run;
  run.context = w.stream->context();
  run.nll.reserve(static_cast<size_t>(std::max<int64_t>(0, source.size() - 1)));
  const double begin = Now();
  const auto look = [&](std::span<const float> logits, Token next) {
    const double began = Now();
    w.monitor.Drawn(logits, next, false);
    run.monitor_seconds += Now() - began;
    run.nll.push_back(LogSumExp(logits.data(), static_cast<int64_t>(logits.size())) -
                      logits[static_cast<size_t>(next)]);
  };
  std::vector<Token> kept;
  const Vocab& vocab = tokenizer.vocab();
  const auto feed = [&](std::span<const Token> tokens) { return w.stream->Append(tokens); };
  source.Rewind();
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::span<const Token> piece, source.Next(options.stream.chunk));
    if (piece.empty()) break;
    BALLAST_RETURN_IF_ERROR(CheckTokens(model, piece));
    const int64_t first = w.stream->position();
    if (first > 0) look(w.stream->logits(), piece.front());
    bool alarmed = false;
    Stream::AppendOptions append;
    append.all_logits = true;
    append.on_row = [&](const Stream::Row& row) {
      const auto at = static_cast<size_t>(row.position - first);
      w.newest.Add(piece[at]);
      if (row.position < w.stream->pinned()) kept.push_back(piece[at]);
      const double began = Now();
      w.monitor.Fed(row.position + 1, 1, row.sink_mass, row.layer_stride);
      run.monitor_seconds += Now() - began;
      const size_t alarms = run.alarms.size();
      if (w.Look(0, run)) run.alarms.back().position = row.position;
      alarmed = alarmed || (run.alarms.size() > alarms && run.alarms.back().reason == Ailment::kSinkLoss);
      if (at + 1 < piece.size()) look(row.logits, piece[at + 1]);
    };
    BALLAST_RETURN_IF_ERROR(w.stream->Append(piece, append));
    if (alarmed && options.rescue) {
      const RescuePlan plan =
          PlanRescue(*w.stream, kept, w.newest.view(), options.stream.pinned, vocab.add_bos ? vocab.bos : -1);
      BALLAST_RETURN_IF_ERROR(Rescue(*w.stream, plan, feed));
      kept = plan.sinks;
      w.monitor.Rescued();
      w.before = Verdict();
      run.rescues.push_back(w.stream->position());
    }
    if (options.on_progress && !options.on_progress(w.stream->position(), source.size())) {
      return InterruptedAfter(w.stream->position(), source.size());
    }
  }
  run.tokens = w.stream->position();
  run.other_seconds = Now() - begin - run.monitor_seconds;
  return run;
}

namespace {

// Streams that write, and what they draw with.
struct Writers {
  std::vector<std::unique_ptr<Watched>> streams;
  std::vector<Sampler> samplers;
  std::vector<Token> next;
  std::vector<double> seconds;  // of monitoring, by stream
};

Status Begin(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
             const FreeTrialOptions& options, Writers& writers) {
  if (options.openings.empty() || options.streams < 1 || options.length < 1) {
    return Status::Expected(Code::kUsage, "a trial", "an opening, streams and tokens", "none");
  }
  SamplerOptions sampling = options.sampler;
  for (Token id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.EndsTurn(id)) sampling.logit_bias[id] = -std::numeric_limits<double>::infinity();
  }
  for (int64_t i = 0; i < options.streams; ++i) {
    auto watched = std::make_unique<Watched>(model);
    BALLAST_ASSIGN_OR_RETURN(watched->stream, Stream::Create(model, pool, options.stream));
    sampling.seed = options.sampler.seed.value_or(0) + static_cast<uint64_t>(i);
    BALLAST_ASSIGN_OR_RETURN(Sampler sampler,
                             Sampler::Create(sampling, model.config().vocab, watched->stream->context()));
    const std::vector<Token> ids =
        TokenizeText(tokenizer, options.openings[static_cast<size_t>(i) % options.openings.size()]);
    if (ids.empty()) return Status::Expected(Code::kInput, "an opening", "at least one token", "none");
    BALLAST_RETURN_IF_ERROR(watched->stream->Append(ids));
    for (const Token id : ids) sampler.Observe(id);
    watched->monitor.BeginReply();
    writers.streams.push_back(std::move(watched));
    writers.samplers.push_back(std::move(sampler));
  }
  writers.next.resize(static_cast<size_t>(options.streams));
  writers.seconds.resize(static_cast<size_t>(options.streams));
  return Status();
}

// Draws every stream's next token; kModel when one's logits are broken.
Status Draw(Writers& writers, ThreadPool& pool) {
  const auto count = static_cast<int64_t>(writers.streams.size());
  std::vector<Status> status(writers.streams.size());
  pool.For(count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      Watched& w = *writers.streams[at];
      const Result<Token> token = writers.samplers[at].Sample(w.stream->logits());
      status[at] = token.status();
      if (!token.ok()) continue;
      writers.samplers[at].Observe(*token);
      const double began = Now();
      w.monitor.Drawn(w.stream->logits(), *token);
      writers.seconds[at] += Now() - began;
      writers.next[at] = *token;
      w.newest.Add(*token);
    }
  });
  for (const Status& s : status) BALLAST_RETURN_IF_ERROR(s);
  return Status();
}

}  // namespace

Result<TrialRun> RunFreeTrial(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
                              const FreeTrialOptions& options) {
  Writers writers;
  BALLAST_RETURN_IF_ERROR(Begin(model, tokenizer, pool, options, writers));
  TrialRun run;
  run.context = writers.streams.front()->stream->context();
  Batch batch(model, pool);
  std::vector<Batch::Entry> entries(writers.streams.size());
  const double begin = Now();
  for (int64_t step = 0; step < options.length; ++step) {
    BALLAST_RETURN_IF_ERROR(Draw(writers, pool));
    for (size_t i = 0; i < entries.size(); ++i) {
      entries[i].stream = writers.streams[i]->stream.get();
      entries[i].tokens = {&writers.next[i], 1};
      entries[i].logits = true;
    }
    batch.Step(entries);
    for (size_t i = 0; i < entries.size(); ++i) {
      BALLAST_RETURN_IF_ERROR(entries[i].status);
      Watched& w = *writers.streams[i];
      const double began = Now();
      w.monitor.Fed(w.stream->position(), 1, entries[i].sink_mass, entries[i].layer_stride);
      writers.seconds[i] += Now() - began;
      w.Look(static_cast<int64_t>(i), run);
    }
    run.tokens += static_cast<int64_t>(entries.size());
    if (options.on_progress && !options.on_progress(step + 1, options.length)) {
      return InterruptedAfter(step + 1, options.length);
    }
  }
  for (const double seconds : writers.seconds) run.monitor_seconds += seconds;
  run.other_seconds = Now() - begin - run.monitor_seconds;
  return run;
}

}  // namespace ballast
