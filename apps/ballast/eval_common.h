// What `eval` and `probe` share: where their tokens come from, and how they print.
#ifndef BALLAST_APPS_EVAL_COMMON_H_
#define BALLAST_APPS_EVAL_COMMON_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app.h"
#include "base/status.h"
#include "eval/probe.h"
#include "eval/tokens.h"

namespace ballast::app {

// -f TEXT or --tokens FILE.json, --limit N
struct TextFlags {
  RivalFlag text{.variable = "BALLAST_FILE"};
  RivalFlag tokens{.variable = "BALLAST_TOKENS"};
  int64_t limit = -1;  // -1: all
};
void AddTextFlags(CLI::App& app, TextFlags& flags);

// Chooses between the two; usage errors that can be seen before a model is loaded.
Status CheckTextFlags(TextFlags& flags, std::string_view command);
// Before long work: each of `written` can be written, and is no other one, nor the text, nor the model.
Status CheckOutputs(const std::vector<NamedFile>& written, const TextFlags& text, const CommonFlags& common);
// The tokens, at most `limit` of them. kInput, "nothing to score" for fewer than two.
Result<std::vector<Token>> LoadTokens(const TextFlags& flags, const Loaded& loaded);

// `text` in an SGR style such as "31", when `colour`.
std::string Styled(bool colour, std::string_view style, std::string text);

// Progress of work that may take hours: the bar on a terminal; with --verbose also a line on stderr every ten
// seconds, with the speed and the time left.
class EvalProgress {
 public:
  EvalProgress(std::string label, bool verbose);
  // Draws, and says whether to go on (false after Ctrl-C).
  bool operator()(int64_t done, int64_t total);
  void Done() { bar_.Done(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool verbose_;
  int64_t first_ = -1;         // done at the first call: what a checkpoint held does not count as speed
  Clock::time_point begin_{};  // of the first call
  Clock::time_point last_{};
  Progress bar_;
};

// The heat map of a sink map.
std::string SinkMapSvg(const SinkMap& map, const Loaded& loaded);

// Ends a command whose results are on stdout already: writes the plot (none when `path` is empty), then
// reports it and `verdict`, each when it failed. Exit code: the verdict's if that failed, else the plot's.
int Finish(const std::string& plot_path, const std::string& svg, const Status& verdict);

}  // namespace ballast::app

#endif  // BALLAST_APPS_EVAL_COMMON_H_
