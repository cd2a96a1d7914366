// Job: one request from Submit to its last callback. Thread safety: the engine's thread only.
#ifndef BALLAST_SERVER_JOB_H_
#define BALLAST_SERVER_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "engine/sampler.h"
#include "server/prompt_plan.h"
#include "server/service.h"
#include "server/session_table.h"

namespace ballast::server {

struct Job {
  enum class State { kWaiting, kPrefill, kDecode, kClose };

  // Given.
  uint64_t ticket = 0;
  Request request;
  std::shared_ptr<Receiver> receiver;
  Clock::time_point submitted{};

  // While it waits: the conversation as the format prints it, with the default system message.
  std::vector<ChatMessage> messages;
  bool default_system = false;    // messages[0] was added by us
  bool encoding = false;          // its long texts are being encoded
  std::shared_ptr<void> encoded;  // keeps them (EncodingCache)
  std::vector<uint64_t> chains;   // after 0, 1, ... of them; it begins with the tools

  // Once admitted.
  State state = State::kWaiting;
  SlotPtr slot;
  PromptPlan plan;       // what the stream owed is at its head
  size_t next_mark = 0;  // of plan.turns
  int64_t fed = 0;       // of plan.tokens
  int64_t max_tokens = 0;
  Usage usage;

  // To go back to when it is cancelled while the prompt is read.
  int64_t begin_position = 0, begin_floor = 0;
  std::vector<Token> begin_owed;
  TurnLog::State begin_turns;

  bool warned = false;  // that the stream has collapsed

  // The reply.
  std::optional<Sampler> sampler;
  std::unique_ptr<Generation> generation;
  std::optional<Result<Token>> drawn;  // of this step; none: nothing more is wanted
  std::vector<Token> next;           // to be fed by the next step: the sampled token; at the end its closing
  std::string text;                  // not yet handed out
  std::vector<TokenReport> reports;  // likewise
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_JOB_H_
