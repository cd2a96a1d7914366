// What `eval` and `probe` share: where their tokens come from, and how they print.
#ifndef BALLAST_APPS_EVAL_COMMON_H_
#define BALLAST_APPS_EVAL_COMMON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app.h"
#include "base/status.h"
#include "eval/tokens.h"

namespace ballast::app {

// -f TEXT or --tokens FILE.json, --limit N
struct TextFlags {
  std::string text;
  std::string tokens;
  int64_t limit = -1;  // -1: all
};
void AddTextFlags(CLI::App& app, TextFlags& flags);

// Usage errors that can be seen before a model is loaded.
Status CheckTextFlags(const TextFlags& flags, std::string_view command);
// The tokens, at most `limit` of them. kInput, "nothing to score" for fewer than two.
Result<std::vector<Token>> LoadTokens(const TextFlags& flags, const Loaded& loaded);

// Colour on stdout: a terminal, and the user has not asked for none.
bool StdoutHasColour();
// `text` in an SGR style such as "31", when `colour`.
std::string Styled(bool colour, std::string_view style, std::string text);
// 12345 -> "12,345"
std::string Grouped(int64_t n);
// 1536 -> "1.5 KiB"
std::string BytesText(int64_t bytes);

// A progress bar with the time left in it, for work that may take hours.
class EvalProgress {
 public:
  explicit EvalProgress(std::string label) : label_(std::move(label)), bar_(label_) {}
  // Draws, and says whether to go on (false after Ctrl-C).
  bool operator()(int64_t done, int64_t total);
  void Done() { bar_.Done(); }

 private:
  std::string label_;
  Progress bar_;
};

// Status for a plot that could not be written: results were printed already.
Status WritePlot(const std::string& path, const std::string& svg);

}  // namespace ballast::app

#endif  // BALLAST_APPS_EVAL_COMMON_H_
