// ChatTemplate: conversations through the template that a model came with.
//
// Purpose: what chat_format.h does for the formats it knows, for every template: the text as the author wrote
// it, cut into pieces so that control tokens which the template wrote become control tokens and text that
// came with a message never does, whatever the template does with it (see jinja_text.h).
// Thread safety: const after Create; `tokenizer` must outlive it. Invariants: 1. a special piece is exactly
// one control token's text and was written whole by the template, by BOS or EOS, or around a known role's
// name. 2. Pieces joined are the rendered text, but for a BOS that the tokenizer adds itself (EncodePrompt
// with `start`), which is left out: there is exactly one. 3. An error leaves nothing half done.
#ifndef BALLAST_TEXT_CHAT_TEMPLATE_H_
#define BALLAST_TEXT_CHAT_TEMPLATE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/chat_format.h"
#include "text/jinja.h"
#include "text/special_matcher.h"
#include "text/tokenizer.h"

namespace ballast {

struct TemplateRequest {
  // A list of dicts with "role", "content" and whatever else the template knows ("tool_calls", "name", ...).
  JinjaValue messages = JinjaValue::List({});
  JinjaValue tools = JinjaValue::None();      // a list of dicts, or none
  JinjaValue documents = JinjaValue::None();  // the same
  // More variables: enable_thinking, date_string, ... They may not replace the ones above.
  std::vector<std::pair<std::string, JinjaValue>> variables;
  bool open_assistant = false;  // add_generation_prompt
};

JinjaValue TemplateMessage(const ChatMessage& message);
JinjaValue TemplateMessages(const std::vector<ChatMessage>& messages);

// What must be fed to a stream that already holds the first messages.
struct TemplateContinuation {
  std::vector<PromptPiece> pieces;
  // Whether the stream then holds what rendering all messages at once gives. False where the template prints
  // the earlier messages differently now that others follow (a thinking model's reply loses its thoughts, a
  // tool list moves to the last turn); the pieces are then the text after the end of the last held turn.
  bool exact = true;
};

class ChatTemplate {
 public:
  // kModel with the line when the source cannot be read.
  static Result<ChatTemplate> Create(std::string_view source, const Tokenizer& tokenizer);

  // kInput with the template's own words when it refuses the messages.
  Result<std::vector<PromptPiece>> Render(const TemplateRequest& request,
                                          const JinjaLimits& limits = {}) const;

  // The pieces of messages[held..] for a stream that holds the earlier ones, as RenderChat: after a reply
  // that ended with its end-of-turn token, what the template prints after that token comes first.
  // kInput as Render, and when nothing tells where the held messages end.
  // REQUIRES: held <= number of messages.
  Result<TemplateContinuation> RenderFrom(const TemplateRequest& request, size_t held,
                                          const JinjaLimits& limits = {}) const;

 private:
  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  Result<MarkedText> Text(const TemplateRequest& request, size_t count, bool open, const JinjaValue* messages,
                          const JinjaLimits& limits) const;
  std::vector<PromptPiece> Cut(const MarkedText& text) const;
  size_t AfterLastTurnEnd(const std::vector<PromptPiece>& pieces) const;
  void DropAfterReply(const JinjaValue& reply, std::vector<PromptPiece>* pieces) const;
  Result<TemplateContinuation> AfterRewriting(const TemplateRequest& request, size_t held,
                                              const std::vector<PromptPiece>& whole,
                                              const JinjaLimits& limits) const;

  JinjaTemplate template_;
  const Tokenizer* tokenizer_;
  SpecialMatcher controls_;
  std::string bos_, eos_, unk_, pad_;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_CHAT_TEMPLATE_H_
