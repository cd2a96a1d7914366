// Monitor: notices a stream's collapse while it happens, from what every step has anyway.
//
// Purpose: a stream that has lost its attention sinks, loops, or computes nonsense goes on without an error,
// so somebody must look. One monitor per stream is told of every step; it keeps a verdict. Four parts (see
// monitor_parts.h): non-finite logits; the attention on the stream's first tokens against what was usual; the
// share of repeated tokens at every period; the entropy of the model's own distribution against what was
// usual. Thread safety: one thread at a time per monitor. Invariants: 1. telling it a token asks for no
// memory. 2. the verdict depends on nothing but what it was told. 3. an alarm stays until its cause has been
// gone for kHold tokens; what is usual is not learnt from a stream that is unwell.
#ifndef BALLAST_ENGINE_MONITOR_H_
#define BALLAST_ENGINE_MONITOR_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/monitor_parts.h"
#include "engine/stream.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ballast {

enum class Health : uint8_t { kOk, kSuspect, kCollapsed };
enum class Ailment : uint8_t { kNone, kNonFinite, kSinkLoss, kRepetition, kOutOfDistribution };
inline constexpr int kAilments = 5;

std::string_view HealthName(Health health);     // "ok", "suspect", "collapsed"
std::string_view AilmentName(Ailment ailment);  // "", "non-finite", "sink loss", "repetition", ...

struct Verdict {
  Health state = Health::kOk;
  Ailment reason = Ailment::kNone;
  int64_t since = -1;  // stream position where this trouble was first suspected; -1: state is kOk
};

class Monitor {
 public:
  static constexpr int64_t kHold = 64;     // tokens
  static constexpr int64_t kSustain = 32;  // tokens for which a part must cry before it is an alarm

  // `model` is only read here.
  explicit Monitor(const Model& model);

  // A reply begins: its repetition is judged by itself, since a chat may well answer the same twice.
  void BeginReply();
  // `token` was drawn from `logits`, or (`generated` false) follows them in a text that was given, whose
  // repetition is nobody's fault. Every stride()-th row of logits is looked at.
  void Drawn(std::span<const float> logits, Token token, bool generated = true);
  // `tokens` were fed up to stream position `position` (of the next token), the newest with these softmax
  // shares of the stream's first tokens (see Stream::Row; null: unknown).
  void Fed(int64_t position, int64_t tokens, const float* sink_mass, int64_t layer_stride);
  // No token could be drawn: the logits are no numbers.
  void Broken();
  // The stream was rescued: all is well until shown otherwise; what is usual stays known.
  void Rescued();

  const Verdict& verdict() const { return verdict_; }
  int64_t stride() const { return stride_; }
  // For people and traces.
  const SinkPart& sinks() const { return sinks_; }
  const RepetitionPart& repetition() const { return repetition_; }
  const EntropyPart& entropy() const { return entropy_; }

  // What is worth keeping of a stream that is put away: all but the newest tokens' repetition.
  struct State {
    SinkPart::State sinks;
    EntropyPart::State entropy;
    Verdict verdict;
  };
  State state() const { return {sinks_.state(), entropy_.state(), verdict_}; }
  // kInput, with nothing changed, for numbers that no monitor has.
  Status Import(const State& state);

 private:
  void Judge(int64_t tokens);
  float Share(const float* sink_mass, int64_t layer_stride) const;

  std::vector<int> layers_;  // that see the whole stream
  int heads_ = 0;
  int64_t stride_ = 1;
  int64_t drawn_ = 0;
  int64_t position_ = 0;
  bool broken_ = false;
  SinkPart sinks_;
  RepetitionPart repetition_;
  EntropyPart entropy_;
  int64_t crying_ = 0;  // tokens for which a part has been at kFull
  int64_t quiet_ = 0;   // tokens since any part was above kNone
  Verdict verdict_;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_MONITOR_H_
