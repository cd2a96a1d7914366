#include "engine/rescue.h"

#include <algorithm>

namespace ballast {

RescuePlan PlanRescue(const Stream& stream, std::span<const Token> kept, std::span<const Token> newest,
                      int64_t pinned, Token bos) {
  RescuePlan plan;
  const bool keeps = stream.policy() == Policy::kSinks && !kept.empty();
  const int64_t position = stream.position();
  if (keeps) plan.sinks.assign(kept.begin(), kept.end());
  const int64_t room = std::min(kRescueTokens, std::max<int64_t>(1, stream.context() / 2));
  // Of a stream that is still short, the pinned tokens are among the newest.
  const int64_t after_pinned = position - static_cast<int64_t>(plan.sinks.size());
  const int64_t n =
      std::clamp<int64_t>(after_pinned, 0, std::min<int64_t>(room, static_cast<int64_t>(newest.size())));
  const std::span<const Token> text = newest.last(static_cast<size_t>(n));
  size_t taken = 0;
  if (!keeps) {
    const int64_t wanted = std::clamp<int64_t>(pinned, 0, stream.context() - 1);
    // A stream that begins with what is encoded again has its BOS there.
    if (bos >= 0 && wanted > 0 && position > n) plan.sinks.push_back(bos);
    while (static_cast<int64_t>(plan.sinks.size()) < wanted && taken + 1 < text.size()) {
      plan.sinks.push_back(text[taken++]);
    }
  }
  plan.tail.assign(text.begin() + static_cast<std::ptrdiff_t>(taken), text.end());
  return plan;
}

Status Rescue(Stream& stream, const RescuePlan& plan,
              const std::function<Status(std::span<const Token>)>& feed) {
  if (stream.policy() == Policy::kRecompute) {
    return Status::Expected(Code::kUsage, "rescue", "policy sinks, window or dense", "recompute",
                            "recompute encodes its whole window for every token already");
  }
  const int64_t position = stream.position();
  const auto sinks = static_cast<int64_t>(plan.sinks.size()), tail = static_cast<int64_t>(plan.tail.size());
  BALLAST_RETURN_IF_ERROR(stream.Repin(sinks));
  if (sinks > 0) BALLAST_RETURN_IF_ERROR(feed(plan.sinks));
  BALLAST_RETURN_IF_ERROR(stream.SkipTo(std::max(sinks, position - tail)));
  return tail > 0 ? feed(plan.tail) : Status();
}

}  // namespace ballast
