// Chat formats: how messages become the text a model was tuned on.
//
// A format is recognised from the model's own template (tokenizer.chat_template). An unrecognised template is
// not guessed: it is run as it is written (chat_template.h, and choose_chat.h in engine).
//
// The text equals what the model's template prints, except where a template looks ahead, which a stream that
// is only ever continued cannot follow:
// - Whatever a template prints after an assistant's end-of-turn token (ChatML's newline, Llama-2's next <s>)
//   comes with the next turn, since the model's own reply ends at that token.
// - A BOS before the first turn is the tokenizer's; Llama-2's before each later user turn is printed here.
// - A system text that has no turn of its own (Llama-2, Mistral, Gemma) goes into the first user turn and is
//   printed with it, also where the oldest templates refuse one or the v0.3 Mistral one repeats it last.
// - Llama-3.1's date is the one its template falls back on, so that the prompt does not change by the day.
// - Phi-3's closing EOS of a finished conversation is left out.
// Thread safety: pure functions. Pieces joined are the text; a special piece is exactly one marker.
#ifndef BALLAST_TEXT_CHAT_FORMAT_H_
#define BALLAST_TEXT_CHAT_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace ballast {

enum class ChatFormat {
  kChatMl,
  kLlama2,
  kLlama3,
  kLlama31,        // Llama 3.1 to 3.3: a system turn that opens with the dates, always
  kMistral,        // 7B v0.1 and v0.2, Mixtral:  "[INST] x [/INST]y</s>"
  kMistralV1,      // the same models, later templates: " [INST] x [/INST] y</s>"
  kMistralV3,      // 7B v0.3:                    "[INST] x[/INST] y</s>"
  kMistralTekken,  // Nemo:                       "[INST]x[/INST]y</s>"
  kGemma,
  kZephyr,
  kPhi3
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"; what else a template knows ("tool", "developer")
  std::string content;
  // Further fields as a JSON object ("tool_calls", "tool_call_id", "name"), for templates; "": none.
  std::string extra{};
};

// A piece of a rendered prompt. Only `special` pieces may be tokenized with parse_special: text typed by a
// user can never become a control token. Neighbouring plain text is one piece, so that it is tokenized as
// one.
struct PromptPiece {
  std::string text;
  bool special = false;
};

std::string_view ChatFormatName(ChatFormat format);         // "chatml", "llama2", ...
Result<ChatFormat> ParseChatFormat(std::string_view name);  // kUsage, lists the known ones
std::optional<ChatFormat> DetectChatFormat(std::string_view chat_template);
// The system text the template itself adds when a conversation has none ("" for most; SmolLM2's has one).
std::string DefaultSystemText(ChatFormat format, std::string_view chat_template);

// Renders messages[from..], continuing a stream that already holds the earlier ones, and opens the
// assistant's turn when `open_assistant`. Includes no BOS (the tokenizer's rule adds it). After a reply that
// ended with its end-of-turn token, the text between that token and the next turn is part of the next call.
// kInput when the format cannot carry the roles (e.g. two user turns in a row for an alternating format); all
// messages are checked, from the first.
Result<std::vector<PromptPiece>> RenderChat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                            size_t from, bool open_assistant);
// The ids of a rendered prompt. A marker that the vocabulary holds becomes its id; one that it does not hold
// ("[INST]" for Llama-2, "<|user|>" for Zephyr) is plain text, tokenized together with its neighbours as the
// model saw it in training. Plain text never becomes a control token. `start`: the prompt opens a stream; BOS
// goes first if the vocabulary asks for one.
std::vector<Token> EncodePrompt(const Tokenizer& tokenizer, const std::vector<PromptPiece>& pieces,
                                bool start);

// The marker that ends an assistant's turn: to be fed when a reply was cut before the model ended it.
std::string_view TurnEnd(ChatFormat format);
// Strings that end a turn in this format, for models whose end-of-turn is ordinary text.
std::vector<std::string> ChatStops(ChatFormat format);

}  // namespace ballast

#endif  // BALLAST_TEXT_CHAT_FORMAT_H_
