// WatchExplainer: the model's own sentence about a line, from a stream of its own.
#ifndef BALLAST_APPS_WATCH_EXPLAINER_H_
#define BALLAST_APPS_WATCH_EXPLAINER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "app.h"
#include "engine/chat_prompter.h"

namespace ballast::app {

// The stream that reads the log is never touched. The same line gives the same sentence. Costs one short
// prompt and at most `max_tokens`. Empty when a signal came meanwhile.
class WatchExplainer {
 public:
  static Result<std::unique_ptr<WatchExplainer>> Create(const Loaded& loaded, int64_t max_tokens);
  Result<std::string> Explain(std::string_view line);

 private:
  explicit WatchExplainer(const Loaded& loaded) : loaded_(loaded) {}
  Result<std::vector<Token>> Prompt(const std::string& line) const;
  const Loaded& loaded_;
  int64_t max_tokens_ = 0;
  std::optional<ChatPrompter> prompter_;  // none: a model without turns
  std::unique_ptr<Stream> stream_;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_WATCH_EXPLAINER_H_
