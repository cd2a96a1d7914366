// The roll-over gate: may a model be served through this cache? Compares the perplexity after roll-over with
// that of a reference on the same tokens.
//
// The reference is a dense cache where the text fits what the model was trained on. Beyond that a dense cache
// is no truth any more (the model never saw such positions), so it is `sinks` with the trained length as its
// capacity. Only policies that evict are judged. Thread safety: pure functions.
#ifndef BALLAST_EVAL_GATE_H_
#define BALLAST_EVAL_GATE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "eval/rollover.h"

namespace ballast {

// The reference for runs with the options `judged` (kv, chunk and pinned are kept) over `tokens` tokens.
StreamOptions GateReference(const ModelConfig& config, const StreamOptions& judged, int64_t tokens);

// True when `run` can stand for the reference, so that it need not run again.
bool ServesAsReference(const RolloverRun& run, const StreamOptions& reference);

// kUsage for a limit that is not a positive number; kInput when a cache of `context` never rolls over within
// `tokens` tokens or nothing is predicted after it did.
Status CheckGate(double limit, int64_t context, int64_t tokens);

struct GateVerdict {
  double ratio = 0;  // of the worst run; NaN when a perplexity is no number
  double limit = 0;
  bool passed = false;
  Policy worst = Policy::kSinks;
  std::vector<double> ratios;  // (judged run)
};
// REQUIRES: at least one judged run; all were run with the same tail_from.
GateVerdict JudgeGate(double limit, const RolloverRun& reference,
                      const std::vector<const RolloverRun*>& judged);

// The verdict as an error for people: kGate, ok when it passed.
Status GateStatus(const GateVerdict& verdict, const RolloverRun& reference);

}  // namespace ballast

#endif  // BALLAST_EVAL_GATE_H_
