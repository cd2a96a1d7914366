// Rescue: a stream that has lost its attention sinks goes on behind fresh ones.
//
// Keys of deeper layers remember what was visible when they were computed, so the rows of a collapsed cache
// cannot be kept: the newest tokens are encoded again, behind tokens that stay pinned from then on. The
// stream keeps its count of positions; what is older than the re-encoded tokens is forgotten, as if evicted.
// This is one block of the paper's sliding window with re-computation (arXiv 2309.17453, figure 1c) and then
// streaming again. Stability, not recall. Thread safety: as the stream's.
#ifndef BALLAST_ENGINE_RESCUE_H_
#define BALLAST_ENGINE_RESCUE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/stream.h"
#include "text/tokenizer.h"

namespace ballast {

// What is done about a stream that collapses: to say so; to end its text; to rescue it.
enum class OnCollapse : uint8_t { kWarn, kStop, kRescue };

// Most tokens that a rescue encodes again: enough text to go on with, and no long pause.
inline constexpr int64_t kRescueTokens = 512;
// A rescue so soon after another one would only be the same again.
inline constexpr int64_t kRescueGap = 128;  // tokens

// What a rescue feeds: `sinks`, pinned from then on, then `tail`.
struct RescuePlan {
  std::vector<Token> sinks, tail;
};
// `kept`: the stream's pinned tokens if its policy keeps any: they stay the sinks. Else the first `pinned`
// tokens of the re-encoded text become them, behind `bos` (-1: none), which such models were trained to park
// on. `newest`: the newest tokens fed, oldest first, as many as are known; at most half the capacity and
// kRescueTokens of them are encoded again, and never one twice.
RescuePlan PlanRescue(const Stream& stream, std::span<const Token> kept, std::span<const Token> newest,
                      int64_t pinned, Token bos);

// Does it: Repin, the sinks, SkipTo, the tail. `feed` appends tokens to the stream, with the logits of the
// last. position() is as before, unless the stream was shorter than the plan. kUsage for kRecompute, which
// encodes everything again all the time; feed's errors.
Status Rescue(Stream& stream, const RescuePlan& plan,
              const std::function<Status(std::span<const Token>)>& feed);

}  // namespace ballast

#endif  // BALLAST_ENGINE_RESCUE_H_
