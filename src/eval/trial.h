// Trial: does the collapse monitor notice, and is it quiet when nothing is wrong?
//
// Purpose: the work behind `ballast trial`. A text is fed through a stream, or many streams write freely, and
// the monitor of engine/monitor.h looks on as it does in run, chat and serve, though at every token's logits.
// Thread safety: the pool's caller. Invariant: the same options and seeds give the same alarms.
#ifndef BALLAST_EVAL_TRIAL_H_
#define BALLAST_EVAL_TRIAL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/monitor.h"
#include "engine/sampler.h"
#include "engine/stream.h"
#include "eval/tokens.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ballast {

struct Alarm {
  int64_t stream = 0;
  int64_t position = 0;  // of the token at which the verdict became kCollapsed, for this reason
  int64_t since = 0;     // first suspected
  Ailment reason = Ailment::kNone;
  // The newest 128 tokens as a loop: the period that most of them agree with, and the share that do. An
  // alarm of repetition is confirmed when at least 7 in 10 do.
  int64_t loop_period = 0;
  double loop_share = 0;
  int64_t loop_tokens = 0;  // since the loop began to repeat itself: how late an alarm of repetition came
};
inline constexpr double kConfirmedLoop = 0.7;

struct TrialOptions {
  StreamOptions stream;
  bool rescue = false;  // at an alarm of sink loss: see engine/rescue.h (fed texts only)
  std::function<bool(int64_t done, int64_t total)> on_progress;  // false interrupts (kInterrupted)
};

struct TrialRun {
  std::vector<Alarm> alarms;
  int64_t tokens = 0;       // fed or generated, of all streams
  int64_t context = 0;      // capacity: where the cache rolls over
  double lowest_share = 1;  // of the recent to the usual attention on the first tokens, over the run
  double highest_rise = 0;  // nats: of the recent over the usual entropy
  // Fed texts.
  std::vector<float> nll;        // (tokens - 1): see rollover.h
  std::vector<int64_t> rescues;  // positions
  // Cost: seconds of monitoring and of everything else.
  double monitor_seconds = 0, other_seconds = 0;
};

// Feeds all of `source` (rewound first).
Result<TrialRun> RunFedTrial(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
                             TokenSource& source, const TrialOptions& options);

struct FreeTrialOptions : TrialOptions {
  SamplerOptions sampler;             // stream i draws with seed + i; tokens that end a turn are banned
  std::vector<std::string> openings;  // stream i begins with openings[i mod size]
  int64_t streams = 1;
  int64_t length = 1024;  // tokens of each
};
// `streams` streams write `length` tokens each, side by side. kUsage without an opening.
Result<TrialRun> RunFreeTrial(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
                              const FreeTrialOptions& options);

// The period from 1 to 128 at which most of the newest 128 of `tokens` equal the token that much earlier; the
// share that does; and of how many newest tokens, as many as possible, at least 4 in 5 do.
struct Loop {
  int64_t period = 0;
  double share = 0;
  int64_t tokens = 0;
};
Loop FindLoop(std::span<const Token> tokens);

}  // namespace ballast

#endif  // BALLAST_EVAL_TRIAL_H_
