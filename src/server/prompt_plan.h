// PromptPlan: a request's messages as the tokens to feed, and where its turns lie in them.
#ifndef BALLAST_SERVER_PROMPT_PLAN_H_
#define BALLAST_SERVER_PROMPT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/chat_prompter.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace ballast::server {

struct PromptPlan {
  std::vector<Token> tokens;
  struct Mark {
    int64_t begin = 0;     // offset in `tokens` of the turn's first token
    int64_t end = -1;      // after its last; -1: the reply is still to come
    uint64_t chain = 0;    // of the conversation when it ended
    int64_t messages = 0;  // likewise
  };
  std::vector<Mark> turns;  // in order; the last one is open
  uint64_t chain = 0;       // of all messages, before the reply
  int64_t messages = 0;     // likewise
  // False: the model's template now prints messages[..from] differently, so that the stream does not hold
  // what these tokens continue: the whole history must be streamed again.
  bool exact = true;
};

// Where a conversation stands that a plan continues.
struct Continued {
  bool first = true;          // the stream is empty
  bool after_system = false;  // it holds a system message and nothing else
  uint64_t chain = 0;
  int64_t messages = 0;
};

// messages[from..] as further turns, and the opening of the reply; messages[..from] are held. With from = 0
// and a stream that is not empty, what it holds is not known: its last message is taken for a reply. Every
// earlier exchange of a history is tokenized by itself, as it would have been had the conversation happened
// here. kInput when the format cannot carry the roles, or with the words in which the template refuses them.
// `tools`: a JSON list, "" for none.
Result<PromptPlan> PlanChat(const ChatPrompter& prompter, const std::vector<ChatMessage>& messages,
                            size_t from, const Continued& continued, const std::string& tools = "");

}  // namespace ballast::server

#endif  // BALLAST_SERVER_PROMPT_PLAN_H_
