// Generation: tokens out of logits until something says stop, one at a time; Generate: the same in a loop
// over one stream.
#ifndef BALLAST_ENGINE_GENERATE_H_
#define BALLAST_ENGINE_GENERATE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/monitor.h"
#include "engine/sampler.h"
#include "engine/stop.h"
#include "engine/stream.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ballast {

enum class StopReason { kEndOfTurn, kStopString, kBudget, kInterrupted, kCollapsed };

struct GenerateOptions {
  int64_t max_tokens = -1;          // -1: no limit; 0: nothing is generated
  std::vector<std::string> stops;   // never shown, may span tokens
  bool stop_at_end_of_turn = true;  // EOS, EOT and the like end the reply
  // Whole UTF-8, as soon as it is certain. Returning false interrupts.
  std::function<bool(std::string_view text)> on_text;
  // After each sampled token; false interrupts.
  std::function<bool(Token token)> on_token;
  // Told of every sampled and (by Generate) fed token; may be null, else must outlive the generation.
  Monitor* monitor = nullptr;
  // Generate only: after each fed token, with what the monitor thinks. May replace the stream's state (see
  // rescue.h), as long as there are logits. false ends the text with kCollapsed; an error ends Generate.
  std::function<Result<bool>(const Verdict& verdict)> on_verdict;
};

struct Generated {
  StopReason reason = StopReason::kBudget;
  std::string text;           // what on_text was given, in one piece
  std::vector<Token> tokens;  // every sampled token, an end-of-turn token included
};

// One reply in the making. Use: until over(), Next() with the logits of the newest token, then feed the token
// it returned, also the last one, so that the stream can simply go on. Thread safety: one thread at a time.
// Invariants: 1. exactly min(max_tokens, tokens until a stop) tokens are sampled. 2. on_text gets whole UTF-8
// and no byte of a stop string.
class Generation {
 public:
  // `tokenizer` must outlive the generation.
  Generation(const Tokenizer& tokenizer, GenerateOptions options);

  bool over() const { return over_; }
  // Samples and observes the next token. kModel when the model is broken; REQUIRES: !over().
  Result<Token> Next(Sampler& sampler, std::span<const float> logits);
  // Ends it from outside: what was held back is shown.
  void Cut(StopReason reason);

  const Generated& out() const { return out_; }
  Generated Take() { return std::move(out_); }

 private:
  bool Show(const std::string& text);
  bool Push(std::string_view bytes) { return Show(stops_.Push(utf8_.Push(bytes))); }

  const Tokenizer& tokenizer_;
  GenerateOptions options_;
  Generated out_;
  Utf8Stream utf8_;
  StopFilter stops_;
  bool over_ = false;
};

// REQUIRES: the stream holds at least one token (kInput otherwise). Every sampled token is fed to the stream
// and to the sampler, the last one too, so that the stream can simply go on; only where nothing can go on,
// since a dense cache is full, the last one needs no place in it. A dense cache that fills up before the end
// is kInput after the text so far was delivered.
Result<Generated> Generate(Stream& stream, const Tokenizer& tokenizer, Sampler& sampler,
                           const GenerateOptions& options);

}  // namespace ballast

#endif  // BALLAST_ENGINE_GENERATE_H_
