// Generate: tokens out of a stream until something says stop.
#ifndef BALLAST_ENGINE_GENERATE_H_
#define BALLAST_ENGINE_GENERATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/sampler.h"
#include "engine/stream.h"
#include "text/tokenizer.h"

namespace ballast {

enum class StopReason { kEndOfTurn, kStopString, kBudget, kInterrupted };

struct GenerateOptions {
  int64_t max_tokens = -1;          // -1: no limit; 0: nothing is generated
  std::vector<std::string> stops;   // never shown, may span tokens
  bool stop_at_end_of_turn = true;  // EOS, EOT and the like end the reply
  // Whole UTF-8, as soon as it is certain. Returning false interrupts.
  std::function<bool(std::string_view text)> on_text;
  // After each sampled token; false interrupts.
  std::function<bool(Token token)> on_token;
};

struct Generated {
  StopReason reason = StopReason::kBudget;
  std::string text;           // what on_text was given, in one piece
  std::vector<Token> tokens;  // every sampled token, an end-of-turn token included
};

// REQUIRES: the stream holds at least one token (kInput otherwise). Every sampled token is fed to the stream
// and to the sampler, the last one too, so that the stream can simply go on. A dense cache that fills up is
// kInput after the text so far was delivered.
Result<Generated> Generate(Stream& stream, const Tokenizer& tokenizer, Sampler& sampler,
                           const GenerateOptions& options);

}  // namespace ballast

#endif  // BALLAST_ENGINE_GENERATE_H_
