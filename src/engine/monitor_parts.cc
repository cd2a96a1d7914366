#include "engine/monitor_parts.h"

#include <algorithm>
#include <cmath>

namespace ballast {

void RepetitionPart::Add(Token token) {
  constexpr float kStep = 1 / kMemory;
  const Token* window = tokens_.data() + next_;
  float largest = 0;
  for (int j = 0; j < kLags; ++j) {
    const float same = window[j] == token ? 1.0F : 0.0F;
    shares_[static_cast<size_t>(j)] += kStep * (same - shares_[static_cast<size_t>(j)]);
    largest = std::max(largest, shares_[static_cast<size_t>(j)]);
  }
  largest_ = largest;
  const auto at = static_cast<size_t>(next_);
  tokens_[at] = tokens_[at + kLags] = token;
  next_ = (next_ + 1) % kLags;
}

void SinkPart::Add(float share, int64_t tokens) {
  if (!std::isfinite(share) || tokens <= 0) return;
  // Of a large step one token was seen, and a single token's share is noisy: it stands for a few, not for
  // all.
  constexpr float kMostForOne = 16;
  const auto n = static_cast<float>(tokens);
  recent_ += (1 - std::exp(-std::min(n, kMostForOne) / kMemory)) * (share - recent_);
  // What has left the cache has no share at all: nothing is to be learnt from that.
  if (share <= 0) return;
  // The newest quarter of a young stream: where attention is spread evenly, the share of a few tokens falls
  // as the cache fills, and a mean over the whole stream would take that for a loss.
  const float memory = std::max(n, std::min(kLongMemory, (static_cast<float>(learnt_) + n) / 4));
  usual_ += n / memory * (share - usual_);
  if (learnt_ == 0) recent_ = share;
  learnt_ += tokens;
}

Level SinkPart::level() const {
  if (!judges()) return Level::kNone;
  return recent_ < kAlarm * usual_ ? Level::kFull : recent_ < kSuspect * usual_ ? Level::kHalf : Level::kNone;
}

void EntropyPart::Add(float entropy, int64_t tokens, bool learn) {
  if (learnt_ == 0) recent_ = usual_ = entropy;
  const auto n = static_cast<float>(tokens);
  recent_ += std::min(1.0F, n / kMemory) * (entropy - recent_);
  if (!learn) return;
  learnt_ += tokens;
  usual_ += n / std::min(kLongMemory, static_cast<float>(learnt_)) * (entropy - usual_);
}

Level EntropyPart::level() const {
  if (!judges()) return Level::kNone;
  const float above = recent_ - usual_;
  return above > kAlarm ? Level::kFull : above > kSuspect ? Level::kHalf : Level::kNone;
}

}  // namespace ballast
