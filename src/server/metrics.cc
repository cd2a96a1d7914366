#include "server/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ballast::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  void Gauge(const char* name, const char* help, const std::atomic<int64_t>& value, Labels labels = {}) {
    Family(name, help, MetricType::Gauge).metric.push_back(Labelled(std::move(labels)));
    families_.back().metric.back().gauge.value = static_cast<double>(value.load(std::memory_order_relaxed));
  }
  void Counter(const char* name, const char* help, int64_t value, Labels labels = {}) {
    Family(name, help, MetricType::Counter).metric.push_back(Labelled(std::move(labels)));
    families_.back().metric.back().counter.value = static_cast<double>(value);
  }
  void Counter(const char* name, const char* help, const std::atomic<int64_t>& value, Labels labels = {}) {
    Counter(name, help, value.load(std::memory_order_relaxed), std::move(labels));
  }
  void Histogram(const char* name, const char* help, const AtomicHistogram& histogram) {
    ClientMetric metric;
    uint64_t total = 0;
    for (size_t i = 0; i <= histogram.bounds(); ++i) {
      total += histogram.count(i);
      const double bound =
          i < histogram.bounds() ? histogram.bound(i) : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({total, bound});
    }
    metric.histogram.sample_count = total;
    metric.histogram.sample_sum = histogram.sum();
    Family(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  static ClientMetric Labelled(Labels labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    return metric;
  }
  // Neighbouring series of one name share a family.
  MetricFamily& Family(const char* name, const char* help, MetricType type) {
    if (families_.empty() || families_.back().name != name) families_.push_back({name, help, type, {}});
    return families_.back();
  }
  std::vector<MetricFamily> families_;
};

void CollectRequests(const EngineCounters& e, Families* out) {
  out->Gauge("ballast_requests_running", "Requests being answered", e.requests_running);
  out->Gauge("ballast_requests_waiting", "Requests in the queue", e.requests_waiting);
  out->Counter("ballast_requests_cancelled_total", "Requests taken back before their end",
               e.requests_cancelled);
  out->Counter("ballast_prompt_tokens_total", "Tokens of accepted prompts, cached ones included",
               e.prompt_tokens);
  out->Counter("ballast_prompt_tokens_cached_total", "Of those, tokens that a session already held",
               e.cached_tokens);
  out->Counter("ballast_prefill_tokens_total", "Prompt tokens fed to the model", e.prefilled_tokens);
  out->Counter("ballast_generated_tokens_total", "Tokens sampled", e.generated_tokens);
  out->Counter("ballast_input_truncations_total", "Requests of which a part was evicted before the answer",
               e.input_truncations);
  out->Counter("ballast_nonfinite_logits_total", "Logits that were NaN or infinite", e.nonfinite_logits);
  out->Histogram("ballast_queue_time_seconds", "From acceptance to the first step", e.queue_seconds);
  out->Histogram("ballast_step_seconds", "One forward step over the batch", e.step_seconds);
  out->Histogram("ballast_step_streams", "Streams that took part in a step", e.batch_streams);
}

void CollectCache(const EngineCounters& e, Families* out) {
  const int64_t used = e.kv_sink_cells + e.kv_window_cells;
  const std::atomic<int64_t> free{e.kv_capacity_cells > used ? e.kv_capacity_cells - used : 0};
  const char* cells = "Cache cells of all resident sessions by what they hold";
  out->Gauge("ballast_kv_cells", cells, e.kv_sink_cells, {{"state", "sink"}});
  out->Gauge("ballast_kv_cells", cells, e.kv_window_cells, {{"state", "window"}});
  out->Gauge("ballast_kv_cells", cells, free, {{"state", "free"}});
  out->Gauge("ballast_kv_capacity_cells", "Cache cells of all resident sessions", e.kv_capacity_cells);
  out->Gauge("ballast_kv_bytes", "Bytes of cached keys and values", e.kv_bytes);
  out->Counter("ballast_kv_evicted_tokens_total", "Tokens that left a window", e.kv_evicted_tokens);
  const char* evictions = "Evictions by what was dropped";
  out->Counter("ballast_kv_evictions_total", evictions, e.kv_evictions_token, {{"reason", "token"}});
  out->Counter("ballast_kv_evictions_total", evictions, e.kv_evictions_turn, {{"reason", "turn"}});
  out->Counter("ballast_kv_rollovers_total", "Times that a session's ring came round", e.kv_rollovers);
  out->Gauge("ballast_stream_position_tokens_max", "The longest session's position", e.stream_position_max);
  out->Histogram("ballast_sink_attention_ratio", "Attention spent on the pinned tokens, sampled",
                 e.sink_attention_ratio);
}

void CollectSessions(const EngineCounters& e, Families* out) {
  const char* sessions = "Sessions by state";
  out->Gauge("ballast_sessions", sessions, e.sessions_active, {{"state", "active"}});
  out->Gauge("ballast_sessions", sessions, e.sessions_idle, {{"state", "idle"}});
  out->Gauge("ballast_sessions", sessions, e.sessions_spilled, {{"state", "spilled"}});
  const char* saves = "Snapshots written by result";
  out->Counter("ballast_session_saves_total", saves, e.session_saves_ok, {{"result", "ok"}});
  out->Counter("ballast_session_saves_total", saves, e.session_saves_failed, {{"result", "failed"}});
  const char* restores = "Snapshots read by result";
  out->Counter("ballast_session_restores_total", restores, e.session_restores_ok, {{"result", "ok"}});
  out->Counter("ballast_session_restores_total", restores, e.session_restores_failed, {{"result", "failed"}});
}

void CollectHealth(const EngineCounters& e, Families* out) {
  const char* alarms = "Streams that were seen to collapse by reason";
  for (int i = 1; i < kAilments; ++i) {
    std::string reason(AilmentName(static_cast<Ailment>(i)));
    std::replace(reason.begin(), reason.end(), ' ', '_');
    std::replace(reason.begin(), reason.end(), '-', '_');
    out->Counter("ballast_collapse_alarms_total", alarms, e.alarms[static_cast<size_t>(i)],
                 {{"reason", reason}});
  }
  const char* actions = "What was done about a collapse";
  out->Counter("ballast_collapse_actions_total", actions, e.rescues_ok, {{"action", "rescued"}});
  out->Counter("ballast_collapse_actions_total", actions, e.rescues_failed, {{"action", "rescue_failed"}});
  out->Counter("ballast_collapse_actions_total", actions, e.stopped, {{"action", "stopped"}});
  const char* unwell = "Resident sessions that are not well";
  out->Gauge("ballast_sessions_unwell", unwell, e.sessions_suspect, {{"state", "suspect"}});
  out->Gauge("ballast_sessions_unwell", unwell, e.sessions_collapsed, {{"state", "collapsed"}});
}

void CollectHttp(const HttpCounters& h, Families* out) {
  out->Gauge("ballast_http_connections", "Open connections", h.connections);
  out->Counter("ballast_http_connections_total", "Connections accepted", h.connections_accepted);
  out->Counter("ballast_http_connections_refused_total", "Connections beyond the cap", h.connections_refused);
  out->Counter("ballast_http_slow_readers_dropped_total", "Clients that did not read their answer in time",
               h.slow_readers_dropped);
  out->Counter("ballast_http_clients_vanished_total", "Clients that left before their answer's end",
               h.clients_vanished);
  out->Histogram("ballast_http_request_duration_seconds", "From the request's last byte to its answer's last",
                 h.request_seconds);
  out->Histogram("ballast_time_to_first_token_seconds", "From the request's last byte to its first text",
                 h.time_to_first_token_seconds);
  out->Histogram("ballast_inter_token_latency_seconds", "Between two texts of one answer",
                 h.inter_token_seconds);
}

}  // namespace

AtomicHistogram::AtomicHistogram(std::initializer_list<double> bounds) {
  for (double bound : bounds) {
    if (size_ < kMaxBounds) bounds_[size_++] = bound;
  }
}

void AtomicHistogram::Observe(double value) {
  if (std::isnan(value)) return;
  size_t bucket = 0;
  while (bucket < size_ && value > bounds_[bucket]) ++bucket;
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

class Metrics::Collector : public prometheus::Collectable {
 public:
  explicit Collector(const Metrics& metrics) : metrics_(metrics) {}
  std::vector<MetricFamily> Collect() const override {
    Families out;
    const std::atomic<int64_t> one{1};
    out.Gauge("ballast_build_info", "The running version", one, {{"version", BALLAST_SERVER_VERSION}});
    CollectRequests(metrics_.engine, &out);
    CollectCache(metrics_.engine, &out);
    CollectSessions(metrics_.engine, &out);
    CollectHealth(metrics_.engine, &out);
    CollectHttp(metrics_.http, &out);
    const std::lock_guard lock(metrics_.mutex_);
    for (const auto& [key, count] : metrics_.requests_) {
      out.Counter("ballast_http_requests_total", "Requests answered by route and status", count,
                  {{"route", key.first}, {"status", std::to_string(key.second)}});
    }
    return out.Take();
  }

 private:
  const Metrics& metrics_;
};

Metrics::Metrics() : collector_(std::make_shared<Collector>(*this)) {}
Metrics::~Metrics() = default;

void Metrics::CountRequest(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, status}];
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(collector_->Collect()); }

}  // namespace ballast::server
