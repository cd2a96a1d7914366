#include "eval/throughput.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "engine/batch.h"
#include "eval/rollover.h"

namespace ballast {
namespace {

constexpr int64_t kWarmUp = 8;             // steps before the clock counts
constexpr int64_t kEarlyPosition = 10000;  // what a late position is compared with

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Token IdAt(const Model& model, int64_t i) {
  const int64_t vocab = std::min<int64_t>(model.config().vocab, 40000);
  return static_cast<Token>(vocab > 300 ? 100 + i * 7919 % (vocab - 200) : i * 7 % vocab);
}

std::vector<Token> Ids(const Model& model, int64_t from, int64_t n) {
  std::vector<Token> ids(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) ids[i] = IdAt(model, from + i);
  return ids;
}

// What one repetition after another gave.
struct Samples {
  std::vector<double> rates;    // tokens per second, one per repetition
  std::vector<double> seconds;  // per step, all repetitions

  void Finish(Throughput& out) {
    std::sort(rates.begin(), rates.end());
    std::sort(seconds.begin(), seconds.end());
    out.median = rates[rates.size() / 2];
    out.min = rates.front();
    out.max = rates.back();
    out.p50 = 1e3 * seconds[seconds.size() / 2];
    out.p99 = 1e3 * seconds[std::min(seconds.size() - 1, seconds.size() * 99 / 100)];
    out.worst = 1e3 * seconds.back();
    out.rss_bytes = ResidentBytes();
  }
};

Throughput Describe(const std::string& test, const ThroughputOptions& options, const Stream& stream) {
  Throughput out;
  out.test = test;
  out.tokens = options.tokens;
  out.depth = stream.live();
  out.position = stream.position();
  out.context = stream.context();
  out.kv = options.stream.kv;
  out.policy = stream.policy();
  out.kv_bytes = stream.kv_bytes();
  return out;
}

Status Tell(const ThroughputOptions& options, double share) {
  if (!options.on_progress || options.on_progress(share)) return Status();
  return Status(Code::kInterrupted, "interrupted");
}

// Feeds tokens up to stream position `to`.
Status FeedTo(Stream& stream, int64_t to, const ThroughputOptions& options) {
  const int64_t from = stream.position();
  while (stream.position() < to) {
    const int64_t n = std::min<int64_t>(1024, to - stream.position());
    BALLAST_RETURN_IF_ERROR(stream.Append(Ids(stream.model(), stream.position(), n)));
    BALLAST_RETURN_IF_ERROR(
        Tell(options, static_cast<double>(stream.position() - from) / static_cast<double>(to - from)));
  }
  return Status();
}

// Decodes warm-up and measured tokens; adds the latter to `samples`.
Status Decode(Stream& stream, const ThroughputOptions& options, Samples& samples) {
  double total = 0;
  for (int64_t i = -kWarmUp; i < options.tokens; ++i) {
    const Token token[] = {IdAt(stream.model(), stream.position())};
    const auto begin = Clock::now();
    BALLAST_RETURN_IF_ERROR(stream.Append(token));
    const double seconds = Since(begin);
    if (i < 0) continue;
    samples.seconds.push_back(seconds);
    total += seconds;
  }
  samples.rates.push_back(static_cast<double>(options.tokens) / total);
  return Tell(options, 1);
}

}  // namespace

Result<Throughput> MeasurePrefill(const Model& model, ThreadPool& pool, const ThroughputOptions& options,
                                  int64_t n) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
  Throughput out = Describe("prefill", options, *stream);
  out.tokens = n;
  const std::vector<Token> ids = Ids(model, 0, n);
  Samples samples;
  for (int64_t rep = -1; rep < options.reps; ++rep) {  // the first touches the memory
    stream->Reset();
    const auto begin = Clock::now();
    BALLAST_RETURN_IF_ERROR(stream->Append(ids));
    const double seconds = Since(begin);
    BALLAST_RETURN_IF_ERROR(
        Tell(options, static_cast<double>(rep + 2) / static_cast<double>(options.reps + 1)));
    if (rep < 0) continue;
    samples.rates.push_back(static_cast<double>(n) / seconds);
    samples.seconds.push_back(seconds / static_cast<double>(n));
  }
  samples.Finish(out);
  return out;
}

Result<Throughput> MeasureDecode(const Model& model, ThreadPool& pool, const ThroughputOptions& options,
                                 int64_t depth) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
  BALLAST_RETURN_IF_ERROR(FeedTo(*stream, depth, options));
  Throughput out = Describe("decode", options, *stream);
  Samples samples;
  for (int64_t rep = 0; rep < options.reps; ++rep) {
    if (depth == 0) stream->Reset();
    BALLAST_RETURN_IF_ERROR(Decode(*stream, options, samples));
  }
  samples.Finish(out);
  return out;
}

Result<std::vector<Throughput>> MeasureStream(const Model& model, ThreadPool& pool,
                                              const ThroughputOptions& options, int64_t position) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
  const int64_t full = stream->context();
  std::vector<int64_t> stops = {position > kEarlyPosition ? std::max(full, kEarlyPosition) : full};
  if (position > stops[0]) stops.push_back(position);
  std::vector<Throughput> all;
  for (const int64_t stop : stops) {
    BALLAST_RETURN_IF_ERROR(FeedTo(*stream, stop, options));
    Throughput out = Describe("stream", options, *stream);
    Samples samples;
    for (int64_t rep = 0; rep < options.reps; ++rep) {
      BALLAST_RETURN_IF_ERROR(Decode(*stream, options, samples));
    }
    samples.Finish(out);
    all.push_back(std::move(out));
  }
  return all;
}

Result<Throughput> MeasureSessions(const Model& model, ThreadPool& pool, const ThroughputOptions& options,
                                   int64_t sessions, int64_t depth) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int64_t s = 0; s < sessions; ++s) {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
    BALLAST_RETURN_IF_ERROR(FeedTo(*stream, depth, options));
    streams.push_back(std::move(stream));
  }
  Throughput out = Describe("sessions", options, *streams[0]);
  out.sessions = sessions;
  out.kv_bytes = sessions * streams[0]->kv_bytes();
  Batch batch(model, pool);
  std::vector<Token> tokens(static_cast<size_t>(sessions));
  std::vector<Batch::Entry> entries(static_cast<size_t>(sessions));
  Samples samples;
  for (int64_t rep = 0; rep < options.reps; ++rep) {
    double total = 0;
    for (int64_t i = -kWarmUp; i < options.tokens; ++i) {
      for (size_t s = 0; s < entries.size(); ++s) {
        tokens[s] = IdAt(model, streams[s]->position() + static_cast<int64_t>(s));
        entries[s].stream = streams[s].get();
        entries[s].tokens = {&tokens[s], 1};
        entries[s].logits = true;
      }
      const auto begin = Clock::now();
      batch.Step(entries);
      const double seconds = Since(begin);
      for (const Batch::Entry& entry : entries) BALLAST_RETURN_IF_ERROR(entry.status);
      if (i < 0) continue;
      samples.seconds.push_back(seconds);
      total += seconds;
    }
    samples.rates.push_back(static_cast<double>(options.tokens * sessions) / total);
    BALLAST_RETURN_IF_ERROR(Tell(options, static_cast<double>(rep + 1) / static_cast<double>(options.reps)));
  }
  samples.Finish(out);
  return out;
}

}  // namespace ballast
