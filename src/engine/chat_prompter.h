// ChatPrompter: turns of a chat as the tokens that a stream is fed.
//
// Purpose: what `chat` and the server must do alike: open the next turn of a stream that holds the earlier
// ones, count the system prompt, close a reply that was cut. Thread safety: const after Create; `tokenizer`
// must outlive it. Invariants: 1. text typed by a user never becomes a control token. 2. BOS comes at most
// once, first.
#ifndef BALLAST_ENGINE_CHAT_PROMPTER_H_
#define BALLAST_ENGINE_CHAT_PROMPTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/generate.h"
#include "formats/tensor_file.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace ballast {

// The template text of a model file; "" when it has none.
std::string ChatTemplate(const TensorFile& file);
// The format called `name`, else the one recognised from the file's template; else ChatML, with a `warning`
// to be shown, when the vocabulary has its control tokens, else kModel asking for --chat-format.
Result<ChatFormat> ChooseChatFormat(const TensorFile& file, const Tokenizer& tokenizer,
                                    const std::string& name, std::string* warning);

class ChatPrompter {
 public:
  ChatPrompter(const Tokenizer& tokenizer, ChatFormat format);

  ChatFormat format() const { return format_; }
  // -1: this format ends turns with ordinary text, or not at all.
  Token end_of_turn() const { return end_of_turn_; }
  // Stop strings that end a turn where no token does; else empty.
  const std::vector<std::string>& text_stops() const { return text_stops_; }

  // Tokens of messages[from..] for a stream that holds the earlier ones; `open`: and the opening of a reply;
  // `first`: for an empty stream. kInput when the format cannot carry the roles.
  Result<std::vector<Token>> Render(const std::vector<ChatMessage>& messages, size_t from, bool open,
                                    bool first) const;
  // The tokens that every conversation with this system prompt begins with; 0 for "".
  Result<int64_t> CountSystemTokens(const std::string& system) const;
  // Tokens at the head of Render(messages, from, ...) that still belong to the end of the turn before it (the
  // newline after ChatML's <|im_end|>): the turn itself begins after them.
  int64_t GapTokens(const std::vector<ChatMessage>& messages, size_t from) const;

  // A reply's text as the tokens that follow an opened turn, closed.
  std::vector<Token> EncodeReply(const std::string& text) const;
  // What must be fed so that the next turn follows an end of turn, also after a reply that was cut.
  std::optional<Token> Closing(const std::vector<Token>& reply, StopReason reason) const;

 private:
  const Tokenizer& tokenizer_;
  ChatFormat format_;
  Token end_of_turn_ = -1;
  std::vector<std::string> text_stops_;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_CHAT_PROMPTER_H_
