// What the server counts, and the text that Prometheus reads (GET /metrics).
//
// Purpose: the engine and the HTTP layer write plain atomics; only a scrape turns them into metric families.
// Thread safety: everything may be written and read from any thread; the service keeps the counters by
// pointer and writes them from the engine's thread. Invariants: 1. writing never blocks or allocates. 2. no
// label is a session, a tenant or a text: the number of series is fixed. 3. names are ballast_*, base units,
// _total on counters.
#ifndef BALLAST_SERVER_METRICS_H_
#define BALLAST_SERVER_METRICS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/monitor.h"

namespace ballast::server {

// A histogram of at most 15 bounds, ascending; a value on a bound is in the bucket below it.
class AtomicHistogram {
 public:
  static constexpr size_t kMaxBounds = 15;
  AtomicHistogram(std::initializer_list<double> bounds);
  void Observe(double value);  // NaN is ignored
  size_t bounds() const { return size_; }
  double bound(size_t i) const { return bounds_[i]; }
  uint64_t count(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  size_t size_ = 0;
  std::array<double, kMaxBounds> bounds_{};
  std::array<std::atomic<uint64_t>, kMaxBounds + 1> counts_{};  // the last: above every bound
  std::atomic<double> sum_{0};
};

using Gauge = std::atomic<int64_t>;    // set by its writer
using Counter = std::atomic<int64_t>;  // only ever grows

// What the service knows. It sets gauges and adds to counters; nobody else writes these.
struct EngineCounters {
  Gauge requests_running{0}, requests_waiting{0};
  Counter requests_cancelled{0};                        // taken back by the client or by a drain
  Counter prompt_tokens{0};                             // of accepted requests, cached ones included
  Counter cached_tokens{0};                             // of those, found in a session
  Counter prefilled_tokens{0};                          // fed in prompts
  Counter generated_tokens{0};                          // sampled
  Gauge kv_sink_cells{0}, kv_window_cells{0};           // in use, over all resident sessions
  Gauge kv_capacity_cells{0}, kv_bytes{0};              // of all resident sessions
  Counter kv_evicted_tokens{0};                         // tokens that left a window
  Counter kv_evictions_token{0}, kv_evictions_turn{0};  // evictions by reason (one token; a whole turn)
  Counter kv_rollovers{0};                              // a session's ring came round to its start
  Gauge stream_position_max{0};                         // the longest session's position
  Gauge sessions_active{0}, sessions_idle{0}, sessions_spilled{0};
  Counter session_saves_ok{0}, session_saves_failed{0};
  Counter session_restores_ok{0}, session_restores_failed{0};
  Counter input_truncations{0};  // requests of which a part was evicted before they were answered
  Counter nonfinite_logits{0};
  std::array<Counter, kAilments> alarms{};               // by Ailment: streams that collapsed
  Counter rescues_ok{0}, rescues_failed{0}, stopped{0};  // what was done about them
  Gauge sessions_suspect{0}, sessions_collapsed{0};      // of the resident ones, now
  AtomicHistogram queue_seconds{0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60};
  AtomicHistogram step_seconds{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1};  // one batch step
  AtomicHistogram batch_streams{1, 2, 4, 8, 16, 32, 64};                                  // streams in a step
  AtomicHistogram sink_attention_ratio{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};  // sampled
};

// What the HTTP layer knows.
struct HttpCounters {
  Gauge connections{0};
  Counter connections_accepted{0}, connections_refused{0};
  Counter slow_readers_dropped{0}, clients_vanished{0};
  AtomicHistogram time_to_first_token_seconds{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
  AtomicHistogram inter_token_seconds{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5};
  AtomicHistogram request_seconds{0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300};
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  EngineCounters engine;
  HttpCounters http;
  // `route` is the pattern ("/v1/sessions/{id}"), never the path that was asked for.
  void CountRequest(const std::string& route, int status);
  std::string Text() const;  // the exposition format, version 0.0.4

 private:
  class Collector;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;  // by route and status
  std::shared_ptr<Collector> collector_;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_METRICS_H_
