// The requests behind one answer, and what the engine has said about them since somebody last looked.
//
// Purpose: the engine's callbacks only put news into an inbox and wake the connection; the connection takes
// them out when its socket is ready, so text that a slow reader has not taken is held as one piece, not as a
// queue of events. Thread safety: an Inbox is written by the engine's thread and emptied by one other; a
// Generation belongs to one thread. Invariants: 1. a Generation that is destroyed cancels what still runs.
// 2. held text is bounded: beyond kMaxHeldBytes the request is cancelled, its reader is too slow. 3. Take
// cuts text only between characters and gives the end only after the last text.
#ifndef BALLAST_SERVER_GENERATION_H_
#define BALLAST_SERVER_GENERATION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/metrics.h"
#include "server/service.h"

namespace ballast::server {

inline constexpr size_t kMaxHeldBytes = size_t{1} << 20;

// What came since the last Take.
struct News {
  std::optional<Usage> started;
  int64_t prompt_done = 0, prompt_total = 0;  // of the prompt; 0 of 0: nothing new
  std::string text;
  std::vector<TokenReport> tokens;
  std::optional<Finish> finish;   // nothing comes after it
  Usage usage;                    // with `finish`
  std::optional<ApiError> error;  // nothing comes after it
};

class Inbox : public Receiver {
 public:
  Inbox(std::function<void()> wake, HttpCounters* counters);
  void OnStart(const Usage& usage) override;
  void OnProgress(int64_t done, int64_t total) override;
  void OnText(std::string_view text, const std::vector<TokenReport>& tokens) override;
  void OnFinish(Finish finish, const Usage& usage) override;
  void OnError(const ApiError& error) override;

  // At most about `max_bytes` of text and kMaxTokens reports, unless `all`.
  News Take(size_t max_bytes, bool all);
  // Called once, on the engine's thread, when more is held than kMaxHeldBytes.
  void SetOverflow(std::function<void()> overflow);

 private:
  static constexpr size_t kMaxTokens = 32;
  void Measure();  // REQUIRES: mutex_
  const std::function<void()> wake_;
  HttpCounters* const counters_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> last_text_;
  std::function<void()> overflow_;
  size_t held_bytes_ = 0;
  News news_;  // its text and tokens are kept below
  std::string text_;
  std::deque<TokenReport> tokens_;
};

class Generation {
 public:
  // `bounded`: the reader may be slow, so what is held for it has a limit.
  Generation(Service& service, HttpCounters* counters, std::vector<Request> requests, bool bounded);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  void Start(const std::function<void()>& wake);
  size_t size() const { return runs_.size(); }
  // REQUIRES: Start was called.
  News Take(size_t i, size_t max_bytes, bool all);
  // Its finish or error was taken.
  bool ended(size_t i) const { return runs_[i].ended; }
  void CancelAll();

 private:
  struct Run {
    std::shared_ptr<Inbox> inbox;
    uint64_t ticket = 0;
    bool ended = false;
  };
  Service& service_;
  HttpCounters* const counters_;
  const bool bounded_;
  std::vector<Request> requests_;  // until Start
  std::vector<Run> runs_;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_GENERATION_H_
