#include "eval/gate.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace ballast {

StreamOptions GateReference(const ModelConfig& config, const StreamOptions& judged, int64_t tokens) {
  StreamOptions reference = judged;
  const bool fits = tokens <= config.trained_context;
  reference.policy = fits ? Policy::kDense : Policy::kSinks;
  reference.context = fits ? tokens : config.trained_context;
  return reference;
}

bool ServesAsReference(const RolloverRun& run, const StreamOptions& reference) {
  if (run.policy != reference.policy || run.kv != reference.kv) return false;
  // Dense runs see every token, whatever room is left over.
  if (run.policy == Policy::kDense) return run.context >= run.tokens;
  return run.context == reference.context && run.sinks == reference.pinned;
}

Status CheckGate(double limit, int64_t context, int64_t tokens) {
  if (!(limit > 0) || !std::isfinite(limit)) {
    return Status::Expected(Code::kUsage, "--gate", "a positive ratio such as 1.1", fmt::format("{}", limit));
  }
  // nll[context] is the first value after an eviction, and there are tokens - 1 values.
  if (tokens < context + 2) {
    return Status::Expected(Code::kInput, "the gate: text too short to roll over",
                            fmt::format("at least {} tokens for a cache of {}", context + 2, context),
                            fmt::format("{}", tokens), "give a longer text, or a smaller cache with -c");
  }
  return Status();
}

GateVerdict JudgeGate(double limit, const RolloverRun& reference,
                      const std::vector<const RolloverRun*>& judged) {
  BALLAST_CHECK(!judged.empty());
  GateVerdict verdict;
  verdict.limit = limit;
  for (const RolloverRun* run : judged) {
    BALLAST_CHECK(run->tail_tokens == reference.tail_tokens && run->tail_tokens > 0);
    const double ratio = run->tail_perplexity / reference.tail_perplexity;
    // A ratio that is no number is worse than any other.
    if (verdict.ratios.empty() || std::isnan(ratio) || ratio > verdict.ratio) {
      verdict.ratio = ratio;
      verdict.worst = run->policy;
    }
    verdict.ratios.push_back(ratio);
  }
  verdict.passed = verdict.ratio <= limit;
  return verdict;
}

Status GateStatus(const GateVerdict& verdict, const RolloverRun& reference) {
  if (verdict.passed) return Status();
  return Status::Expected(Code::kGate,
                          fmt::format("gate: perplexity after roll-over ({})", PolicyName(verdict.worst)),
                          fmt::format("at most {:g} times that of {} at {}", verdict.limit,
                                      PolicyName(reference.policy), reference.context),
                          fmt::format("{:.4g} times", verdict.ratio));
}

}  // namespace ballast
