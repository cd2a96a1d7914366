// ChatPrompter: turns of a chat as the tokens that a stream is fed.
//
// Purpose: what `chat` and the server must do alike: open the next turn of a stream that holds the earlier
// ones, count the system prompt, close a reply that was cut. A conversation is printed by a built-in format
// (chat_format.h) or by the model's own template (chat_template.h); with both, the template prints what the
// format has no place for: tools. Thread safety: const after construction; `tokenizer` must outlive it.
// Invariants: 1. text typed by a user never becomes a control token. 2. BOS comes at most once, first. 3. a
// template is run within the budgets of JinjaLimits, at most three times per call.
#ifndef BALLAST_ENGINE_CHAT_PROMPTER_H_
#define BALLAST_ENGINE_CHAT_PROMPTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/generate.h"
#include "text/chat_format.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ballast {

class ChatPrompter {
 public:
  // By a format; `default_system`: what the model's template adds to a conversation without a system message.
  ChatPrompter(const Tokenizer& tokenizer, ChatFormat format, std::string default_system = "");
  // By the model's template. With `format`, which prints what the template prints, only where tools are part
  // of the conversation.
  ChatPrompter(const Tokenizer& tokenizer, ChatTemplate own, std::optional<ChatFormat> format,
               std::string default_system);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  // "chatml", "llama2", ...; "template" when the model's own prints every conversation.
  std::string_view name() const { return format_ ? ChatFormatName(*format_) : "template"; }
  // To be put before a conversation without one, if not UsesTemplate: a template adds it by itself.
  const std::string& default_system() const { return default_system_; }
  // -1: this format ends turns with ordinary text, or not at all.
  Token end_of_turn() const { return end_of_turn_; }
  // Stop strings that end a turn where no token does; else empty.
  const std::vector<std::string>& text_stops() const { return text_stops_; }

  // Whether this conversation is printed by the model's template. `tools`: a JSON list, "" for none.
  bool UsesTemplate(const std::vector<ChatMessage>& messages, const std::string& tools) const;
  // Why the model cannot be given tools, or messages with these roles and fields; kInput, naming what. Roles
  // that every chat has are judged by Render.
  Status CheckTools() const;
  Status CheckMessage(const ChatMessage& message, const std::string& what) const;
  // Whether a developer's message may keep its role; otherwise it is a system message.
  bool knows_developer() const { return knows_.developer; }

  // Tokens of messages[from..] for a stream that holds the earlier ones; `open`: and the opening of a reply;
  // `first`: for an empty stream. kInput when the format cannot carry the roles, or with the template's own
  // words.
  Result<std::vector<Token>> Render(const std::vector<ChatMessage>& messages, size_t from, bool open,
                                    bool first, const std::string& tools = "") const;
  // The pieces of messages[from..] and the opening of a reply by the template, and whether they continue what
  // it printed before. REQUIRES: UsesTemplate.
  Result<TemplateContinuation> RenderTemplate(const std::vector<ChatMessage>& messages, size_t from,
                                              bool open, const std::string& tools,
                                              JinjaLimits limits = {}) const;
  // Whether these messages can be printed.
  Status Check(const std::vector<ChatMessage>& messages, bool open) const;

  // The tokens that every conversation with this system prompt begins with; 0 for "".
  Result<int64_t> CountSystemTokens(const std::string& system, const std::string& tools = "") const;
  // Tokens at the head of Render(messages, from, ...) that still belong to the end of the turn before it (the
  // newline after ChatML's <|im_end|>): the turn itself begins after them.
  int64_t GapTokens(const std::vector<ChatMessage>& messages, size_t from) const;
  int64_t GapTokens(const std::vector<PromptPiece>& pieces) const;

  // A reply's text as the tokens that follow an opened turn, closed.
  std::vector<Token> EncodeReply(const std::string& text) const;
  // What must be fed so that the next turn follows an end of turn, also after a reply that was cut.
  std::optional<Token> Closing(const std::vector<Token>& reply, StopReason reason) const;

 private:
  void FindEnd();
  void Probe();

  const Tokenizer& tokenizer_;
  std::optional<ChatFormat> format_;
  std::optional<ChatTemplate> template_;
  std::string default_system_;
  struct {
    bool tools = false, tool_calls = false, tool_messages = false, developer = false;
  } knows_;
  Token end_of_turn_ = -1;
  std::vector<std::string> text_stops_;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_CHAT_PROMPTER_H_
