// Watchers: who looks at which session's cache, and what they have not been shown yet.
//
// Thread safety: the engine's thread only. Invariants: 1. at most ten views a second for each watcher. 2. a
// session nobody watches costs nothing.
#ifndef BALLAST_SERVER_WATCH_H_
#define BALLAST_SERVER_WATCH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "server/service.h"
#include "server/session_table.h"
#include "text/tokenizer.h"

namespace ballast::server {

class Watchers {
 public:
  explicit Watchers(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // `ended` is told when the session is no more.
  void Add(uint64_t watch, SlotPtr slot, std::function<bool(const CacheView&)> view,
           std::function<void(ApiError)> ended);
  void Remove(uint64_t watch);
  bool Watches(const Slot& slot) const;

  // After a step that fed `tokens` tokens to the session.
  void Fed(const Slot& slot, const Batch::Entry& entry, int64_t tokens);
  // A token was sampled from these logits.
  void Sampled(const Slot& slot, Token token, std::span<const float> logits);

  // The session cannot be shown any more.
  void End(const Slot& slot, const ApiError& why);

  // The session went back to `position`: what is fed from there on is new.
  void WentBack(const Slot& slot, int64_t position);

  // Shows what is due.
  void Show();
  std::optional<Clock::time_point> Deadline() const;

 private:
  struct Watcher {
    SlotPtr slot;
    std::function<bool(const CacheView&)> view;
    std::function<void(ApiError)> ended;
    Clock::time_point shown{};
    bool ever = false;
    int64_t position = 0;           // shown up to here
    int64_t version = -1;           // of the slot, when last shown
    std::vector<double> sink_mass;  // (layer, head): sum over the steps since
    int64_t steps = 0;
    double bits = 0;
    int64_t sampled = 0;
    int64_t fed = 0;  // tokens since
  };
  CacheView Make(Watcher& w) const;
  static bool Changed(const Watcher& w);

  const Tokenizer& tokenizer_;
  std::map<uint64_t, Watcher> watchers_;
};

// log2 of the probability that softmax(logits) gives `token`, negated.
double SurpriseBits(std::span<const float> logits, Token token);
// log of the sum of exp(logits).
double LogSumExp(std::span<const float> logits);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_WATCH_H_
