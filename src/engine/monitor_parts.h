// The parts of the collapse monitor: each watches one thing and knows nothing of the others. See monitor.h
// for the whole and docs/stability.md for how the constants were chosen. Thread safety: none; one stream's.
// Invariant: nothing here allocates, and all state is plain data, so that it can be copied and saved.
#ifndef BALLAST_ENGINE_MONITOR_PARTS_H_
#define BALLAST_ENGINE_MONITOR_PARTS_H_

#include <array>
#include <cstdint>

#include "text/tokenizer.h"

namespace ballast {

enum class Level : uint8_t { kNone, kHalf, kFull };  // nothing; enough for a suspicion; enough for an alarm

// Loops of any period up to kLags tokens, also inexact ones: for every lag p the share of the newest tokens
// (exponential mean over kMemory) that equal the token p before them. A loop of period p drives share p
// towards 1; plain text keeps every share low.
class RepetitionPart {
 public:
  static constexpr int kLags = 128;
  static constexpr float kMemory = 48;                     // tokens
  static constexpr float kSuspect = 0.6F, kAlarm = 0.85F;  // of the largest share

  // The tokens of a new reply are compared among themselves only.
  void Begin() { *this = RepetitionPart(); }
  void Add(Token token);
  Level level() const {
    return largest_ >= kAlarm ? Level::kFull : largest_ >= kSuspect ? Level::kHalf : Level::kNone;
  }
  float share() const { return largest_; }  // the largest over the lags

 private:
  // Written twice, so that the newest kLags are always contiguous: entry j is the token kLags - j ago.
  std::array<Token, 2 * kLags> tokens_ = Nothing();
  std::array<float, kLags> shares_{};  // (j)
  int next_ = 0;
  float largest_ = 0;

  static constexpr std::array<Token, 2 * kLags> Nothing() {
    std::array<Token, 2 * kLags> none{};
    for (Token& token : none) token = -1;
    return none;
  }
};

// What the parts have in common that compare a mean over the newest tokens with what was usual.
class AgainstUsual {
 public:
  float recent() const { return recent_; }
  float usual() const { return usual_; }

  struct State {
    float recent = 0, usual = 0;
    int64_t learnt = 0;
  };
  State state() const { return {recent_, usual_, learnt_}; }
  void Import(const State& s) { recent_ = s.recent, usual_ = s.usual, learnt_ = s.learnt; }
  // As if all had been as usual.
  void Forgive() { recent_ = usual_; }

 protected:
  static bool Within(const State& s, float most) {
    return s.recent >= 0 && s.recent <= most && s.usual >= 0 && s.usual <= most && s.learnt >= 0;
  }
  float recent_ = 0, usual_ = 0;
  int64_t learnt_ = 0;  // tokens
};

// Attention that rests on the stream's first tokens, against what it used to be. `share` is the mean softmax
// share over all heads of the layers that see the whole stream.
class SinkPart : public AgainstUsual {
 public:
  static constexpr float kMemory = 32;        // tokens, of the recent mean
  static constexpr float kLongMemory = 2048;  // tokens, of the usual mean
  static constexpr int64_t kLearn = 16;       // tokens before anything is judged
  static constexpr float kLeast = 0.02F;      // a model that rests less than this on them has nothing to lose
  static constexpr float kSuspect = 0.5F, kAlarm = 0.25F;  // recent / usual

  // `tokens` were fed; the newest one had this share.
  void Add(float share, int64_t tokens);
  Level level() const;
  bool judges() const { return learnt_ >= kLearn && usual_ >= kLeast; }
  static bool MayImport(const State& s) { return Within(s, 1.01F); }  // a share, rounded
};

// Entropy of the model's distribution in nats, the mean over the newest tokens against what was usual. Text
// that makes no sense to the model any more has nothing to predict: when a stream falls out of distribution
// for another reason than its sinks, such as a cache beyond the trained length, its entropy rises and stays.
class EntropyPart : public AgainstUsual {
 public:
  static constexpr float kMemory = 256;                   // tokens, of the recent mean
  static constexpr float kLongMemory = 4096;              // tokens, of the usual mean
  static constexpr int64_t kLearn = 256;                  // tokens before anything is judged
  static constexpr float kSuspect = 1.8F, kAlarm = 2.5F;  // nats above the usual

  // One look for `tokens` tokens; `learn`: it may count as usual.
  void Add(float entropy, int64_t tokens, bool learn);
  Level level() const;
  bool judges() const { return learnt_ >= kLearn; }
  static bool MayImport(const State& s) { return Within(s, 64); }  // nats: no vocabulary has more
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_MONITOR_PARTS_H_
