#include "eval/gate.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "eval/interval.h"

namespace ballast {

StreamOptions GateReference(const ModelConfig& config, const StreamOptions& judged, int64_t tokens,
                            const ReferenceChoice& choice) {
  StreamOptions reference = judged;
  const int64_t trained = config.trained_context > 0 ? config.trained_context : DefaultContext(config);
  reference.policy = choice.policy.value_or(tokens <= trained ? Policy::kDense : Policy::kSinks);
  if (choice.context > 0) {
    reference.context = choice.context;
  } else if (reference.policy == Policy::kDense) {
    reference.context = tokens;
  } else if (reference.policy == Policy::kSinks) {
    reference.context = trained;
  }
  return reference;
}

bool ServesAsReference(const RolloverRun& run, const StreamOptions& reference) {
  StreamOptions options;
  options.policy = run.policy;
  options.kv = run.kv;
  options.context = run.context;
  options.pinned = run.sinks;
  return IsReference(options, reference, run.tokens);
}

bool IsReference(const StreamOptions& run, const StreamOptions& reference, int64_t tokens) {
  if (run.policy != reference.policy || run.kv != reference.kv) return false;
  // Dense runs see every token, whatever room is left over.
  if (run.policy == Policy::kDense) return run.context >= tokens;
  return run.context == reference.context &&
         (run.policy == Policy::kWindow || run.pinned == reference.pinned);
}

std::optional<int64_t> JudgedFrom(const ModelConfig& config, const StreamOptions& options, int64_t tokens) {
  if (options.policy != Policy::kDense) return options.context;
  const int64_t trained = config.trained_context;
  if (trained <= 0 || tokens <= trained) return std::nullopt;
  return trained;
}

Status CheckGate(double limit, int64_t from, int64_t tokens) {
  if (!(limit > 0) || !std::isfinite(limit)) {
    return Status::Expected(Code::kUsage, "--gate", "a positive ratio such as 1.05",
                            fmt::format("{}", limit));
  }
  // nll[from] is the first value after an eviction, and there are tokens - 1 values.
  if (tokens < from + 2) {
    return Status::Expected(Code::kInput, "the gate: text too short to roll over",
                            fmt::format("at least {} tokens for a cache of {}", from + 2, from),
                            fmt::format("{}", tokens), "give a longer text, or a smaller cache with -c");
  }
  return Status();
}

PairedRatio ComparePaired(const TailSums& judged, const TailSums& reference) {
  BALLAST_CHECK(judged.from == reference.from && judged.count == reference.count && judged.count > 0);
  BALLAST_CHECK(judged.width == reference.width);
  PairedRatio out;
  out.tokens = judged.count;
  out.batches = judged.count / judged.width;
  out.batch_tokens = judged.width;
  const double mean = (judged.sum - reference.sum) / static_cast<double>(judged.count);
  out.ratio = std::exp(mean);
  out.low = out.high = std::numeric_limits<double>::quiet_NaN();
  if (out.batches < 2 || !std::isfinite(mean)) return out;
  std::vector<double> means(static_cast<size_t>(out.batches));
  double centre = 0;
  for (size_t i = 0; i < means.size(); ++i) {
    means[i] = (judged.batches[i] - reference.batches[i]) / static_cast<double>(judged.width);
    centre += means[i] / static_cast<double>(out.batches);
  }
  // Around the mean of all values: a last batch that is not full has no spread to show.
  const Interval spread = StudentInterval(means);
  out.low = std::exp(mean + spread.low - centre);
  out.high = std::exp(mean + spread.high - centre);
  return out;
}

GateVerdict JudgeGate(double limit, const RolloverRun& reference, const std::vector<JudgedRun>& judged) {
  BALLAST_CHECK(!judged.empty());
  GateVerdict verdict;
  verdict.limit = limit;
  verdict.conclusive = true;
  for (const auto& [run, from] : judged) {
    const TailSums* tail = run->Tail(from);
    const TailSums* other = reference.Tail(from);
    BALLAST_CHECK(tail != nullptr && other != nullptr);
    const PairedRatio paired = ComparePaired(*tail, *other);
    // A ratio that is no number is worse than any other.
    if (!verdict.judged.empty() &&
        (std::isnan(paired.ratio) || paired.ratio > verdict.Worst().paired.ratio)) {
      verdict.worst = verdict.judged.size();
    }
    if (!(paired.high <= limit)) verdict.conclusive = false;
    verdict.judged.push_back(
        {run->policy, run->context, from, paired, tail->perplexity(), other->perplexity()});
  }
  const PairedRatio& worst = verdict.Worst().paired;
  verdict.passed = worst.ratio <= limit;
  if (!verdict.passed) verdict.conclusive = worst.low > limit;  // never when the ratio is no number
  return verdict;
}

Status GateStatus(const GateVerdict& verdict, const RolloverRun& reference) {
  if (verdict.passed) return Status();
  const GateVerdict::Judged& worst = verdict.Worst();
  const char* after = worst.policy == Policy::kDense ? "beyond the trained length" : "after roll-over";
  std::string found = "no number, since the model's output is not finite";
  if (std::isfinite(worst.paired.ratio)) found = fmt::format("{:.4g} times", worst.paired.ratio);
  if (std::isfinite(worst.paired.low)) {
    found += fmt::format(" (95%: {:.4g} to {:.4g})", worst.paired.low, worst.paired.high);
  }
  return Status::Expected(Code::kGate,
                          fmt::format("gate: perplexity {} ({})", after, PolicyName(worst.policy)),
                          fmt::format("at most {:g} times that of {} at {}", verdict.limit,
                                      PolicyName(reference.policy), reference.context),
                          found);
}

}  // namespace ballast
