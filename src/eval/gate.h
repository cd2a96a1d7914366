// The roll-over gate: may a model be served through this cache? Compares the perplexity after roll-over with
// that of a reference on the same tokens.
//
// Reference, unless chosen: a dense cache where the text fits what the model was trained on. Beyond that a
// dense cache is no truth any more (the model never saw such positions), so it is `sinks` with the trained
// length as its capacity. Judged: every policy that evicts, from its first eviction on; and a dense cache
// from the trained length on, which is where it can go wrong. Thread safety: pure functions.
//
// The verdict goes by the point ratio exp(mean of nll - reference nll over the same tokens), which is the
// same for the same tokens whatever their noise. Its confidence interval says how far another stretch of such
// a text could lie off: when the limit lies inside it, the verdict is called inconclusive, and wants more
// text.
#ifndef BALLAST_EVAL_GATE_H_
#define BALLAST_EVAL_GATE_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/rollover.h"

namespace ballast {

struct ReferenceChoice {
  std::optional<Policy> policy;  // none: as described above
  int64_t context = 0;           // 0: what the policy suggests, see GateReference
};

// The reference for runs with the options `judged` (kv, chunk and pinned are kept) over `tokens` tokens.
// Without a capacity, `dense` holds the text, `sinks` the trained length, `window` and `recompute` what
// `judged` holds.
StreamOptions GateReference(const ModelConfig& config, const StreamOptions& judged, int64_t tokens,
                            const ReferenceChoice& choice = {});

// True when `run` can stand for the reference, so that it need not run again.
bool ServesAsReference(const RolloverRun& run, const StreamOptions& reference);

// The same of a run that is planned (its context resolved).
bool IsReference(const StreamOptions& run, const StreamOptions& reference, int64_t tokens);

// Index of the first nll to be judged of a run with these options (their context resolved); none for a dense
// cache within the trained length, which is not judged.
std::optional<int64_t> JudgedFrom(const ModelConfig& config, const StreamOptions& options, int64_t tokens);

// kUsage for a limit that is not a positive number; kInput when nothing of `tokens` tokens is predicted from
// index `from` on.
Status CheckGate(double limit, int64_t from, int64_t tokens);

// The ratio of two perplexities over the same tokens, and its 95% interval. Method: differences of the two
// nll per token, averaged in up to 32 batches of equal width (at least 64 tokens: neighbours depend on each
// other, batches hardly), Student's t over the batch means. A last batch that is not full counts in the
// ratio, not in the spread.
inline constexpr std::string_view kIntervalMethod = "paired batch means, Student t, 95%";
struct PairedRatio {
  double ratio = 0;          // NaN when a perplexity is no number
  double low = 0, high = 0;  // NaN with fewer than two full batches
  int64_t tokens = 0;        // compared
  int64_t batches = 0;       // full ones
  int64_t batch_tokens = 0;  // width of one
};
// REQUIRES: equal `from`, count > 0 and width.
PairedRatio ComparePaired(const TailSums& judged, const TailSums& reference);

struct GateVerdict {
  double limit = 0;
  bool passed = false;
  bool conclusive = false;  // the limit lies outside the intervals that decide; never without numbers
  struct Judged {
    Policy policy = Policy::kSinks;
    int64_t context = 0;
    int64_t from = 0;  // first index
    PairedRatio paired;
    double perplexity = 0;            // over the compared tokens
    double reference_perplexity = 0;  // over the same
  };
  std::vector<Judged> judged;
  size_t worst = 0;  // index of the one with the highest ratio
  const Judged& Worst() const { return judged[worst]; }
};

struct JudgedRun {
  const RolloverRun* run = nullptr;
  int64_t from = 0;  // JudgedFrom
};
// REQUIRES: at least one judged run; run and reference have the tail at `from`.
GateVerdict JudgeGate(double limit, const RolloverRun& reference, const std::vector<JudgedRun>& judged);

// The verdict as an error for people: kGate, ok when it passed.
Status GateStatus(const GateVerdict& verdict, const RolloverRun& reference);

}  // namespace ballast

#endif  // BALLAST_EVAL_GATE_H_
