// Chat formats: how messages become the text a model was tuned on.
//
// A format is recognised from the model's own template (tokenizer.chat_template). An unrecognised template is
// not guessed: the caller warns and asks for --chat-format.
#ifndef BALLAST_TEXT_CHAT_FORMAT_H_
#define BALLAST_TEXT_CHAT_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ballast {

enum class ChatFormat { kChatMl, kLlama2, kLlama3, kMistral, kGemma, kZephyr, kPhi3 };

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A piece of a rendered prompt. Only `special` pieces may be tokenized with parse_special: text typed by a
// user can never become a control token.
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
// kInput when the format cannot carry the roles (e.g. two user turns in a row for an alternating format).
Result<std::vector<PromptPiece>> RenderChat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                            size_t from, bool open_assistant);
// Strings that end a turn in this format, for models whose end-of-turn is ordinary text.
std::vector<std::string> ChatStops(ChatFormat format);

}  // namespace ballast

#endif  // BALLAST_TEXT_CHAT_FORMAT_H_
