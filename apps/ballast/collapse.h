// CollapseGuard: what `run` and `chat` do when the monitor says that their stream collapses (--on-collapse).
//
// Thread safety: one thread. Invariant: a stream that stays well costs one look per token and prints nothing.
#ifndef BALLAST_APPS_COLLAPSE_H_
#define BALLAST_APPS_COLLAPSE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "app.h"
#include "engine/generate.h"
#include "engine/monitor.h"
#include "engine/rescue.h"

namespace ballast::app {

// --on-collapse warn|stop|rescue: one line on stderr; end the text, exit 5; go on behind fresh sinks.
void AddCollapseFlag(CLI::App& app, std::string& value);
Result<OnCollapse> ParseOnCollapse(const std::string& name);  // kUsage

class CollapseGuard {
 public:
  // `loaded` must outlive the guard. `pinned`: sinks that a rescue makes where the stream keeps none.
  CollapseGuard(OnCollapse action, const Loaded& loaded, int64_t pinned);

  // An empty stream: all is forgotten.
  void Begin();
  // Text that was fed: remembered for a rescue. Its rows, as they are fed, with on_row.
  void Saw(std::span<const Token> tokens);
  void OnRow(const Stream::Row& row);
  // Puts the monitor and this guard's on_verdict and on_token in; the others' on_token must be set before.
  void Watch(Stream& stream, GenerateOptions& options);

  const Monitor& monitor() const { return monitor_; }
  // Once the text was ended by this guard: kGate, with the reason.
  Status StoppedStatus() const;
  // {"state","reason","since","rescues"} for JSON.
  nlohmann::json Json() const;

 private:
  Result<bool> OnVerdict(Stream& stream, const Verdict& verdict);

  const OnCollapse action_;
  const Loaded& loaded_;
  const int64_t pinned_;
  Monitor monitor_;
  Health told_ = Health::kOk;
  std::vector<Token> first_;   // at most pinned_
  std::vector<Token> newest_;  // at least the newest kRescueTokens, at most twice as many
  int64_t rescues_ = 0;
  int64_t rescued_at_ = -1;  // stream position
  bool stopped_ = false;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_COLLAPSE_H_
