// Watcher: the loop of `ballast watch`: lines in, judgements out, state saved in between.
//
// Invariants: 1. a state is saved only with all results before it written, and holds the length of the
// results' file: cut back to it, the file goes on without a line twice or missing. 2. what is judged of a
// line does not depend on when it came or with which others.
#ifndef BALLAST_APPS_WATCHER_H_
#define BALLAST_APPS_WATCHER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "app.h"
#include "eval/log_source.h"
#include "eval/watch_state.h"
#include "watch_explainer.h"
#include "watch_files.h"

namespace ballast::app {

struct WatchOptions {
  WatchPaths paths;
  double save_every = 30;  // seconds
  int64_t max_lag = 0;     // bytes; 0: never skips
  bool only_alarms = false;
  int64_t explain_tokens = 0;  // 0: no explanations
  LogSourceOptions source;
  NoveltyOptions novelty;
};

class Watcher {
 public:
  // All but `options` and `model` must outlive it; `files`: opened.
  Watcher(WatchOptions options, WatchFiles& files, const Loaded& loaded, Stream& stream, std::string model)
      : options_(std::move(options)),
        files_(files),
        loaded_(loaded),
        stream_(stream),
        model_(std::move(model)),
        scorer_(*loaded.tokenizer, stream),
        judge_(options_.novelty),
        marks_(options_.paths.normal) {}

  // Opens the log and takes over the saved state, if there is one.
  Status Open();
  // Until the input ends or a signal comes (kInterrupted); the state is saved in both cases.
  Status Run();

 private:
  using Clock = std::chrono::steady_clock;
  Status Loop();
  Status OpenInput(bool resume);
  Status Restore(const std::string& image);
  Result<bool> Gather();
  Result<bool> Shed();
  Status ScoreBatch();
  Status Report(const LogLine& line, const LineSurprise& surprise, int64_t lag);
  void ReportEvents(const std::vector<LogEvent>& events, int64_t offset);
  Status SaveIfDue(bool now);
  void WriteMetrics(bool now);
  void Wait();

  WatchOptions options_;
  WatchFiles& files_;
  const Loaded& loaded_;
  Stream& stream_;
  std::string model_;  // names model, weights and compute, for the state
  LineScorer scorer_;
  NoveltyJudge judge_;
  NormalMarks marks_;
  std::unique_ptr<LogSource> source_;
  std::unique_ptr<WatchExplainer> explainer_;
  WatchProgress progress_;
  std::vector<LogLine> batch_;
  std::vector<EncodedLine> encoded_;
  std::string pending_;  // results not written yet
  bool dirty_ = false;   // more happened than was saved
  Clock::time_point saved_ = Clock::now();
  Clock::time_point measured_{};
  std::string metrics_text_;
  bool metrics_ok_ = true;  // the last ones could be written
  int input_fd_ = -1;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_WATCHER_H_
