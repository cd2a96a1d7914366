#include "cache/policy.h"

#include <string>

namespace ballast {
namespace {

// Far beyond any machine, small enough that slots * bytes cannot overflow.

}  // namespace

std::string_view PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kSinks:
      return "sinks";
    case Policy::kWindow:
      return "window";
    case Policy::kDense:
      return "dense";
    case Policy::kRecompute:
      return "recompute";
  }
  return "unknown";
}

Result<Policy> ParsePolicy(std::string_view name) {
  for (Policy p : {Policy::kSinks, Policy::kWindow, Policy::kDense, Policy::kRecompute}) {
    if (PolicyName(p) == name) return p;
  }
  return Status::Expected(Code::kUsage, "--policy", "sinks, window, dense or recompute",
                          "\"" + std::string(name) + "\"");
}

Result<CachePlan> MakePlan(Policy policy, int64_t context, int64_t pinned) {
  if (context < 1 || context > kMaxContext) {
    return Status::Expected(Code::kUsage, "--context", "1 to " + std::to_string(kMaxContext) + " tokens",
                            std::to_string(context));
  }
  if (pinned < 0 || pinned > kMaxContext) {
    return Status::Expected(Code::kUsage, "--sinks", "0 to " + std::to_string(kMaxContext) + " tokens",
                            std::to_string(pinned));
  }
  CachePlan plan;
  plan.policy = policy;
  plan.evicts = policy != Policy::kDense;
  if (policy == Policy::kWindow) {
    pinned = 0;
  } else if (policy == Policy::kSinks) {
    if (pinned >= context) {
      return Status::Expected(Code::kUsage, "--context",
                              "at least " + std::to_string(pinned + 1) + " tokens (" +
                                  std::to_string(pinned) + " pinned and a window of 1)",
                              std::to_string(context), "raise --context or pin fewer tokens");
    }
  } else {
    pinned = std::min(pinned, context - 1);
  }
  plan.layout = Layout{pinned, context - pinned};
  plan.watched = std::min(pinned > 0 ? pinned : kWatched, context - 1);
  return plan;
}

}  // namespace ballast
