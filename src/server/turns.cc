#include "server/turns.h"

#include <xxhash.h>

#include <algorithm>

#include "base/status.h"

namespace ballast::server {

uint64_t ChainTools(const std::string& tools) {
  return tools.empty() ? 0 : XXH3_64bits(tools.data(), tools.size());
}

uint64_t ChainMessage(uint64_t chain, const ChatMessage& message) {
  // The role's length keeps "ab" + "c" apart from "a" + "bc".
  const uint64_t head[2] = {chain, message.role.size()};
  XXH3_state_t* state = XXH3_createState();
  BALLAST_CHECK(state != nullptr);
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, head, sizeof(head));
  XXH3_64bits_update(state, message.role.data(), message.role.size());
  XXH3_64bits_update(state, message.content.data(), message.content.size());
  if (!message.extra.empty()) {
    const uint64_t size = message.content.size();
    XXH3_64bits_update(state, &size, sizeof(size));
    XXH3_64bits_update(state, message.extra.data(), message.extra.size());
  }
  const uint64_t out = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return out;
}

std::vector<uint64_t> ChainMessages(uint64_t chain, const std::vector<ChatMessage>& messages) {
  std::vector<uint64_t> out = {chain};
  for (const ChatMessage& message : messages) out.push_back(ChainMessage(out.back(), message));
  return out;
}

void TurnLog::Open(int64_t begin) { open_ = begin; }

void TurnLog::Close(int64_t end, int64_t floor, uint64_t chain, int64_t messages, bool exchange) {
  BALLAST_CHECK(open_.has_value());
  turns_.push_back({*open_, end, floor, messages, chain});
  if (turns_.size() > capacity_) turns_.pop_front();
  open_.reset();
  messages_ = messages;
  chain_ = chain;
  count_ += exchange;
}

std::optional<int64_t> TurnLog::FirstBeginFrom(int64_t need) const {
  const auto at = std::lower_bound(turns_.begin(), turns_.end(), need,
                                   [](const Turn& turn, int64_t x) { return turn.begin < x; });
  if (at != turns_.end()) return at->begin;
  if (open_ && *open_ >= need) return open_;
  return std::nullopt;
}

std::optional<int64_t> TurnLog::NewestBegin() const {
  if (open_) return open_;
  if (turns_.empty()) return std::nullopt;
  return turns_.back().begin;
}

void TurnLog::RollBackTo(size_t index) {
  BALLAST_CHECK(index < turns_.size());
  count_ -= static_cast<int64_t>(turns_.size() - 1 - index);
  turns_.resize(index + 1);
  open_.reset();
  messages_ = turns_.back().messages;
  chain_ = turns_.back().chain;
}

void TurnLog::Restore(const State& state) {
  turns_.assign(state.turns.begin(), state.turns.end());
  open_ = state.open;
  messages_ = state.messages;
  count_ = state.count;
  chain_ = state.chain;
}

}  // namespace ballast::server
