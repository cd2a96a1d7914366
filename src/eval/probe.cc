#include "eval/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/stream.h"
#include "eval/nll_stats.h"
#include "kernels/ops.h"

namespace ballast {
namespace {

// Share of attention on token 0 if every query spread its attention evenly over what it sees: H(n) / n.
double EvenShare(int64_t tokens) {
  double harmonic = 0;
  for (int64_t i = 1; i <= tokens; ++i) harmonic += 1.0 / static_cast<double>(i);
  return harmonic / static_cast<double>(tokens);
}

std::string Warning(int64_t tokens, double threshold) {
  const double even = EvenShare(tokens);
  if (tokens >= 64 && even < threshold) return "";
  return fmt::format(
      "short text: {} tokens; even attention that ignores content would put {:.3f} on token 0 here; use "
      "1,000 "
      "tokens or more",
      tokens, even);
}

std::string Why(const SinkMap& map, int64_t heads) {
  std::string why = fmt::format(
      "{:.1f}% of {} {}heads put more than {:g} of their attention on token 0 on average, {:.1f}% in nine "
      "queries out of ten",
      100 * map.heads_over_threshold, heads, map.local_layers.empty() ? "" : "global ", map.threshold,
      100 * map.heads_always_over);
  switch (map.verdict) {
    case SinkVerdict::kVulnerable:
      why += fmt::format(
          " (vulnerable from {:g}% or {:g}%): a window that evicts the first tokens takes their sink away; "
          "pin "
          "them",
          100 * kVulnerableShare, 100 * kVulnerableAlwaysShare);
      break;
    case SinkVerdict::kMild:
      why += fmt::format(" (mild from {:g}%): pin the first tokens, and check with `ballast eval`",
                         100 * kMildShare);
      break;
    case SinkVerdict::kNotVulnerable:
      why += fmt::format(" (under {:g}%): this model does not lean on its first token", 100 * kMildShare);
      break;
  }
  if (!map.local_layers.empty()) {
    why += fmt::format("; {} of {} layers have a trained local window and are not counted",
                       map.local_layers.size(), map.mean.size());
  }
  return why;
}

// Attention shares as they come, one series per layer and head.
class Recorder {
 public:
  Recorder(int layers, int heads, int64_t tokens)
      : heads_(heads), series_(static_cast<size_t>(layers) * static_cast<size_t>(heads)) {
    for (std::vector<float>& s : series_) s.reserve(static_cast<size_t>(tokens));
  }
  void Add(const Stream::Row& row) {
    for (size_t i = 0; i < series_.size(); ++i) {
      const int layer = static_cast<int>(i) / heads_;
      series_[i].push_back(row.SinkMass(layer, static_cast<int>(i) % heads_));
    }
  }
  void Fill(SinkMap* map) {
    const size_t heads = static_cast<size_t>(heads_);
    const size_t layers = series_.size() / heads;
    map->mean.assign(layers, std::vector<double>(heads));
    map->p10 = map->mean;
    for (size_t i = 0; i < series_.size(); ++i) {
      double sum = 0;
      for (const float share : series_[i]) sum += share;
      map->mean[i / heads][i % heads] = sum / static_cast<double>(series_[i].size());
      map->p10[i / heads][i % heads] = Quantile(series_[i], 0.1);
    }
  }

 private:
  int heads_;
  std::vector<std::vector<float>> series_;  // (layer * heads + head, query)
};

}  // namespace

std::string_view SinkVerdictName(SinkVerdict verdict) {
  switch (verdict) {
    case SinkVerdict::kVulnerable:
      return "vulnerable";
    case SinkVerdict::kMild:
      return "mild";
    case SinkVerdict::kNotVulnerable:
      return "not vulnerable";
  }
  return "";
}

double Quantile(std::vector<float>& values, double q) {
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<ptrdiff_t>(std::floor(at));
  std::nth_element(values.begin(), values.begin() + low, values.end());
  const double below = values[static_cast<size_t>(low)];
  if (low + 1 == static_cast<ptrdiff_t>(values.size())) return below;
  const double above = *std::min_element(values.begin() + low + 1, values.end());
  return below + (above - below) * (at - static_cast<double>(low));
}

void JudgeSinkMap(SinkMap* map) {
  int64_t heads = 0, over = 0, always = 0;
  for (size_t layer = 0; layer < map->mean.size(); ++layer) {
    const auto& local = map->local_layers;
    if (std::find(local.begin(), local.end(), static_cast<int>(layer)) != local.end()) continue;
    for (size_t head = 0; head < map->mean[layer].size(); ++head) {
      ++heads;
      over += map->mean[layer][head] > map->threshold;
      always += map->p10[layer][head] > map->threshold;
    }
  }
  map->heads_over_threshold = heads > 0 ? static_cast<double>(over) / static_cast<double>(heads) : 0;
  map->heads_always_over = heads > 0 ? static_cast<double>(always) / static_cast<double>(heads) : 0;
  map->verdict = SinkVerdict::kNotVulnerable;
  if (map->heads_over_threshold >= kMildShare) map->verdict = SinkVerdict::kMild;
  if (map->heads_over_threshold >= kVulnerableShare || map->heads_always_over >= kVulnerableAlwaysShare) {
    map->verdict = SinkVerdict::kVulnerable;
  }
  map->why = Why(*map, heads);
  map->warning = Warning(map->tokens, map->threshold);
}

Result<SinkMap> RunProbe(const Model& model, ThreadPool& pool, TokenSource& source,
                         const ProbeOptions& options) {
  const int64_t total = std::min(source.size(), options.limit);
  BALLAST_RETURN_IF_ERROR(CheckScorable(total));
  StreamOptions stream_options;
  stream_options.policy = Policy::kDense;
  stream_options.context = total;
  stream_options.pinned = 1;
  stream_options.kv = options.kv;
  stream_options.chunk = options.chunk;
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create(model, pool, stream_options));

  const ModelConfig& config = model.config();
  Recorder recorder(config.layers, config.heads, total);
  Stream::AppendOptions append;
  append.on_row = [&](const Stream::Row& row) { recorder.Add(row); };
  source.Rewind();
  while (stream->position() < total) {
    const int64_t most = std::min(options.chunk, total - stream->position());
    BALLAST_ASSIGN_OR_RETURN(const std::span<const Token> piece, source.Next(most));
    BALLAST_CHECK(!piece.empty());
    BALLAST_RETURN_IF_ERROR(stream->Append(piece, append));
    // Attention that is no number has no share to show; it makes the logits none too.
    const std::span<const float> logits = stream->logits();
    BALLAST_RETURN_IF_ERROR(
        CheckFinite("the sink map", double{LogSumExp(logits.data(), static_cast<int64_t>(logits.size()))}));
    if (options.on_progress && !options.on_progress(stream->position(), total)) {
      return InterruptedAfter(stream->position(), total);
    }
  }

  SinkMap map;
  map.tokens = total;
  map.threshold = options.threshold;
  const std::vector<KvCache::LayerShape> shape = model.CacheShape();
  for (size_t layer = 0; layer < shape.size(); ++layer) {
    if (shape[layer].local_window > 0) map.local_layers.push_back(static_cast<int>(layer));
  }
  recorder.Fill(&map);
  JudgeSinkMap(&map);
  return map;
}

}  // namespace ballast
