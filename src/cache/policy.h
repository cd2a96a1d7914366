// Policies: what a stream keeps when its cache is full. Each is a Layout and two facts; kernels never learn
// which.
#ifndef BALLAST_CACHE_POLICY_H_
#define BALLAST_CACHE_POLICY_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "cache/layout.h"

namespace ballast {

inline constexpr int64_t kMaxContext = int64_t{1} << 32;  // tokens

enum class Policy : uint8_t {
  kSinks,      // pin the first tokens, slide a window over the rest (StreamingLLM, arXiv 2309.17453)
  kWindow,     // slide over everything: evicts the attention sinks. The bug, kept to show and measure it
  kDense,      // keep everything; full at its capacity
  kRecompute,  // re-encode the last `capacity` tokens for every new one: the quality reference, and very slow
};

std::string_view PolicyName(Policy policy);
Result<Policy> ParsePolicy(std::string_view name);  // kUsage

// Tokens whose attention share is reported where none are pinned: as many as the default pins.
inline constexpr int64_t kWatched = 4;

struct CachePlan {
  Policy policy = Policy::kSinks;
  Layout layout;
  bool evicts = true;  // false: Append refuses what does not fit (dense)
  // The first so many tokens' softmax share is reported as the sink mass, pinned or not, for as long as they
  // are visible: a stream that loses its sinks can be seen to lose them.
  int64_t watched = 0;
};

// `context` slots in all, the first `pinned` tokens kept (ignored by kWindow; kDense and kRecompute only
// report the pinned tokens' attention share). kUsage when pinned + 1 > context, or either is out of range.
Result<CachePlan> MakePlan(Policy policy, int64_t context, int64_t pinned);

}  // namespace ballast

#endif  // BALLAST_CACHE_POLICY_H_
