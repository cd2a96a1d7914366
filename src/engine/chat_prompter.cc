#include "engine/chat_prompter.h"

#include <algorithm>

namespace ballast {

std::string ChatTemplate(const TensorFile& file) {
  const auto text = file.String("tokenizer.chat_template");
  return text.ok() && text->has_value() ? **text : "";
}

Result<ChatFormat> ChooseChatFormat(const TensorFile& file, const Tokenizer& tokenizer,
                                    const std::string& name, std::string* warning) {
  if (!name.empty()) return ParseChatFormat(name);
  const std::string chat_template = ChatTemplate(file);
  if (const auto format = DetectChatFormat(chat_template)) return *format;
  const std::string found = chat_template.empty() ? "no template" : "a template that is not known";
  if (tokenizer.Find("<|im_start|>") < 0) {
    return Status::Expected(Code::kModel, file.path() + ": chat template", "one that Ballast knows", found,
                            "name the format with --chat-format, or use `ballast run` without one");
  }
  *warning = "the model file holds " + found +
             "; using chatml, whose control tokens it has (--chat-format to choose)";
  return ChatFormat::kChatMl;
}

ChatPrompter::ChatPrompter(const Tokenizer& tokenizer, ChatFormat format)
    : tokenizer_(tokenizer), format_(format) {
  const std::vector<std::string> ends = ChatStops(format);
  for (const std::string& text : ends) {
    const Token id = tokenizer.Find(text);
    if (id >= 0 && tokenizer.EndsTurn(id)) {
      end_of_turn_ = id;
      break;
    }
  }
  const Vocab& vocab = tokenizer.vocab();
  if (end_of_turn_ < 0) end_of_turn_ = vocab.eot >= 0 ? vocab.eot : vocab.eos;
  if (end_of_turn_ < 0) text_stops_ = ends;
}

Result<std::vector<Token>> ChatPrompter::Render(const std::vector<ChatMessage>& messages, size_t from,
                                                bool open, bool first) const {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<PromptPiece> pieces, RenderChat(format_, messages, from, open));
  return EncodePrompt(tokenizer_, pieces, first);
}

Result<int64_t> ChatPrompter::CountSystemTokens(const std::string& text) const {
  if (text.empty()) return 0;
  const ChatMessage system{"system", text};
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> a, Render({system, {"user", "a"}}, 0, true, true));
  const Result<std::vector<Token>> alone = Render({system}, 0, false, true);
  if (alone.ok() && !alone->empty() && alone->size() <= a.size() &&
      std::equal(alone->begin(), alone->end(), a.begin())) {
    return static_cast<int64_t>(alone->size());
  }
  // A format that folds the system prompt into the first user turn: what two such turns share.
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> b, Render({system, {"user", "\n1"}}, 0, true, true));
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t ChatPrompter::GapTokens(const std::vector<ChatMessage>& messages, size_t from) const {
  if (from == 0 || from > messages.size() || messages[from - 1].role != "assistant") return 0;
  // Only the pieces before the first marker count: the gap never depends on the text of the turn.
  std::vector<ChatMessage> probe;
  for (size_t i = 0; i < from; ++i) probe.push_back({messages[i].role, ""});
  probe.push_back({from < messages.size() ? messages[from].role : "user", ""});
  const auto pieces = RenderChat(format_, probe, from, false);
  if (!pieces.ok() || pieces->size() < 2 || (*pieces)[0].special || !(*pieces)[1].special) return 0;
  if ((*pieces)[0].text.find_first_not_of(" \n") != std::string::npos) return 0;
  if (tokenizer_.Find((*pieces)[1].text) < 0) return 0;  // tokenized together with the gap
  return static_cast<int64_t>(EncodePrompt(tokenizer_, {(*pieces)[0]}, false).size());
}

std::vector<Token> ChatPrompter::EncodeReply(const std::string& text) const {
  std::vector<Token> tokens = tokenizer_.Encode(text, {.add_special = false, .parse_special = false});
  if (end_of_turn_ >= 0) tokens.push_back(end_of_turn_);
  return tokens;
}

std::optional<Token> ChatPrompter::Closing(const std::vector<Token>& reply, StopReason reason) const {
  const bool closed = !reply.empty() && tokenizer_.EndsTurn(reply.back());
  if (closed || end_of_turn_ < 0) return std::nullopt;
  if (!text_stops_.empty() && reason == StopReason::kStopString) return std::nullopt;
  return end_of_turn_;
}

}  // namespace ballast
