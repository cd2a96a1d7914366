// Completion: plain text on one stream, as `run` feeds and continues it.
#ifndef BALLAST_APPS_COMPLETION_H_
#define BALLAST_APPS_COMPLETION_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app.h"
#include "collapse.h"
#include "engine/generate.h"
#include "prompt_feed.h"

namespace ballast::app {

struct Outcome {
  std::string text;  // with --json, in one piece
  int64_t tokens_in = 0;
  int64_t tokens_out = 0;
  double prompt_seconds = 0;
  double reply_seconds = 0;
  StopReason reason = StopReason::kBudget;
  bool ends_line = true;  // what was shown ends with a newline, or nothing was shown
};

// Shows text as it comes, or keeps it for the JSON document. A failed write is remembered.
class Output {
 public:
  Output(bool json, Outcome* outcome) : json_(json), outcome_(outcome) {}
  bool Show(std::string_view text) {
    if (text.empty()) return true;
    outcome_->ends_line = text.back() == '\n';
    if (json_) {
      outcome_->text += text;
    } else {
      status_ = Print(text);
    }
    return status_.ok();
  }
  const Status& status() const { return status_; }

 private:
  bool json_;
  Outcome* outcome_;
  Status status_;
};

struct CompletionOptions {
  int64_t max_tokens = -1;
  std::vector<std::string> stops;
  int64_t on_idle = 0;  // ms; 0: off
  bool json = false;
};

class Completion {
 public:
  Completion(CompletionOptions options, const Tokenizer& tokenizer, Stream& stream, Sampler& sampler,
             CollapseGuard& guard)
      : options_(std::move(options)),
        tokenizer_(tokenizer),
        stream_(stream),
        sampler_(sampler),
        guard_(guard),
        cutter_(tokenizer),
        output_(options_.json, &outcome_) {}

  Status FromText(const std::string& prompt);
  // Reads `fd` to its end; `bytes` is its size, 0 when unknown.
  Status FromDescriptor(int fd, int64_t bytes, const std::string& name);
  const Outcome& Done() {
    progress_.reset();
    return outcome_;
  }

 private:
  void ShowProgress(int64_t position, int64_t done, int64_t count);
  Status Feed(const std::vector<Token>& tokens);
  Status OnPause();
  void TellWhatLeft();
  Status Generate(int64_t max_tokens);

  CompletionOptions options_;
  const Tokenizer& tokenizer_;
  Stream& stream_;
  Sampler& sampler_;
  CollapseGuard& guard_;
  TextCutter cutter_;
  Outcome outcome_;
  Output output_;
  std::unique_ptr<Progress> progress_;
  int64_t total_bytes_ = 0;
  int64_t read_bytes_ = 0;
  int64_t fed_bytes_ = 0;  // of them, as good as all are in the stream
  bool told_ = false;
  int64_t generated_to_ = 0;  // stream position when the last pause was answered
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_COMPLETION_H_
