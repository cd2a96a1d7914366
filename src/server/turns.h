// TurnLog: which turns of a conversation a stream holds, and where. Pure integers, no texts.
//
// A turn is one exchange: what was asked and the reply to it; a system message that stands by itself is a
// turn too. Messages are known by a chain of hashes, so that a request that repeats a conversation can be
// recognised without keeping what was said. Thread safety: none; its session owns it. Invariants: 1. turns
// are in order and do not overlap; only the last may be open. 2. at most capacity() turns are remembered, the
// newest; how many messages there were, and their chain, is always known.
#ifndef BALLAST_SERVER_TURNS_H_
#define BALLAST_SERVER_TURNS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "text/chat_format.h"

namespace ballast::server {

// The chain of a conversation: chain(0 messages) = ChainTools, then this for each message in turn.
uint64_t ChainTools(const std::string& tools);  // 0 for none
uint64_t ChainMessage(uint64_t chain, const ChatMessage& message);
// The chain after 0, 1, ..., messages.size() of them.
std::vector<uint64_t> ChainMessages(uint64_t chain, const std::vector<ChatMessage>& messages);

struct Turn {
  int64_t begin = 0;     // stream position of its first token
  int64_t end = 0;       // position after its last token
  int64_t floor = 0;     // the stream's floor when it ended
  int64_t messages = 0;  // of the whole conversation when it ended
  uint64_t chain = 0;    // of those
};

class TurnLog {
 public:
  explicit TurnLog(size_t capacity) : capacity_(capacity) {}

  void Open(int64_t begin);
  // Ends the open turn; `exchange`: not a system message by itself. REQUIRES: open().
  void Close(int64_t end, int64_t floor, uint64_t chain, int64_t messages, bool exchange = true);
  // Forgets the open turn, if any.
  void Abandon() { open_.reset(); }

  bool open() const { return open_.has_value(); }
  int64_t messages() const { return messages_; }  // in closed turns
  uint64_t chain() const { return chain_; }
  int64_t count() const { return count_; }  // exchanges ever
  const std::deque<Turn>& turns() const { return turns_; }
  size_t capacity() const { return capacity_; }

  // Where a window that must not hold anything before `need` may start: the first turn that begins there or
  // later; else none.
  std::optional<int64_t> FirstBeginFrom(int64_t need) const;
  // Where the newest turn begins; none before the first.
  std::optional<int64_t> NewestBegin() const;

  // Goes back to the moment when turns()[index] had ended.
  void RollBackTo(size_t index);

  // For snapshots.
  struct State {
    std::vector<Turn> turns;
    std::optional<int64_t> open;
    int64_t messages = 0, count = 0;
    uint64_t chain = 0;
  };
  State state() const { return {{turns_.begin(), turns_.end()}, open_, messages_, count_, chain_}; }
  void Restore(const State& state);

 private:
  size_t capacity_;
  std::deque<Turn> turns_;
  std::optional<int64_t> open_;
  int64_t messages_ = 0;
  int64_t count_ = 0;
  uint64_t chain_ = 0;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_TURNS_H_
