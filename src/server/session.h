// Session: a conversation that lives on the server: a stream, its turns and the ids it was fed.
//
// Thread safety: the engine's thread only. Invariants: 1. every token fed went through BeforeFeed /
// AfterFeed, so the ids of all visible tokens are known. 2. under Evict::kTurn the first visible unpinned
// token begins a turn, unless nothing was evicted or the newest turn alone is larger than the window. 3. what
// a reply that was cut still owes to the template is fed before anything else.
#ifndef BALLAST_SERVER_SESSION_H_
#define BALLAST_SERVER_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/monitor.h"
#include "engine/stream.h"
#include "server/prompt_plan.h"
#include "server/service.h"
#include "server/turns.h"

namespace ballast::server {

class Session {
 public:
  struct Config {
    StreamOptions stream;
    Evict evict = Evict::kToken;
    bool chat = true;         // else plain text, appended to
    bool pin_system = false;  // stream.pinned spans the system message
  };
  // `model` and `pool` must outlive the session. kUsage for options that make no sense.
  static Result<std::unique_ptr<Session>> Create(const Model& model, ThreadPool& pool, const Config& config);

  const Config& config() const { return config_; }
  Stream& stream() { return *stream_; }
  const Stream& stream() const { return *stream_; }
  TurnLog& turns() { return turns_; }
  const TurnLog& turns() const { return turns_; }

  // Tokens to feed before anything else: the end of a turn that was cut.
  std::vector<Token>& owed() { return owed_; }
  const std::vector<Token>& owed() const { return owed_; }

  // How many of the next `n` tokens may go into one step: a step never crosses the beginning of a turn that
  // may have to stay whole. `offset` of `plan` is the next token.
  int64_t Piece(const PromptPlan& plan, int64_t offset, int64_t n) const;
  // Around each step of n tokens. BeforeFeed drops whole turns where the policy says so.
  void BeforeFeed(int64_t n);
  void AfterFeed(std::span<const Token> tokens);

  // The id at a stream position. REQUIRES: it is visible, or among the newest context() tokens.
  Token TokenAt(int64_t position) const;
  // The newest ids, at most n, oldest first.
  std::vector<Token> Newest(int64_t n) const;

  // The index of the newest turn whose chain is in `wanted` (a set); -1: none.
  template <typename Set>
  int64_t FindTurn(const Set& wanted) const {
    for (size_t i = turns_.turns().size(); i > 0; --i) {
      if (wanted.contains(turns_.turns()[i - 1].chain)) return static_cast<int64_t>(i) - 1;
    }
    return -1;
  }
  // True when nothing came after turns()[index].
  bool IsNewest(size_t index) const { return index + 1 == turns_.turns().size() && !turns_.open(); }
  // Goes back to the end of turns()[index]. kInput when that is not exact.
  Status RollBackTo(size_t index);
  // Goes back to a position and floor within the open turn's beginning. kInput when that is not exact.
  Status RollBackTo(int64_t position, int64_t floor);

  // How the stream fares; told of every token that is fed or drawn.
  Monitor& monitor() { return monitor_; }
  const Monitor& monitor() const { return monitor_; }
  HealthInfo health() const { return {monitor_.verdict(), rescues_}; }
  // Encodes the newest tokens again behind sinks (engine/rescue.h); the session streams with pinned sinks
  // from then on, whatever its policy was. After an error nobody knows what the stream holds.
  Status Rescue(int64_t pinned, Token bos, const std::function<Status(std::span<const Token>)>& feed);
  int64_t rescues() const { return rescues_; }
  void set_rescues(int64_t rescues) { rescues_ = rescues; }

  // Told once, with the next reply.
  bool TakeCutNotice() { return std::exchange(cut_, false); }
  void NoteCut() { cut_ = true; }
  bool cut() const { return cut_; }
  // The newest turn is larger than the window and has lost its own beginning.
  bool turn_outgrew_window() const { return outgrew_; }

  // The chain of the system message that the conversation began with; 0: none.
  uint64_t system_chain() const { return system_chain_; }
  void set_system_chain(uint64_t chain) { system_chain_ = chain; }

  // Of the tools that the conversation began with; 0: none.
  uint32_t tools_hash() const { return tools_hash_; }
  void set_tools_hash(uint32_t hash) { tools_hash_ = hash; }

  int64_t turn_evictions() const { return turn_evictions_; }

  // For snapshots: ids as they are kept.
  const std::vector<Token>& pinned_ids() const { return pinned_ids_; }
  const std::vector<Token>& ring_ids() const { return ring_ids_; }
  void RestoreIds(std::vector<Token> pinned, std::vector<Token> ring) {
    pinned_ids_ = std::move(pinned);
    ring_ids_ = std::move(ring);
  }

  static size_t TurnCapacity(int64_t context);

 private:
  Session(const Config& config, std::unique_ptr<Stream> stream);

  Config config_;
  std::unique_ptr<Stream> stream_;
  Monitor monitor_;
  int64_t rescues_ = 0;
  TurnLog turns_;
  std::vector<Token> owed_;
  std::vector<Token> pinned_ids_;  // (pinned), by position
  std::vector<Token> ring_ids_;    // (context), by position mod context
  uint64_t system_chain_ = 0;
  uint32_t tools_hash_ = 0;
  bool cut_ = false;
  bool outgrew_ = false;
  int64_t turn_evictions_ = 0;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SESSION_H_
