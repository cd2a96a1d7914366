#include "text/chat_format.h"

#include <algorithm>
#include <utility>

#include "text/template_shape.h"

namespace ballast {
namespace {

// How one format writes a turn. Two kinds: turns with a header that names the role, and "[INST] user [/INST]
// reply", whose system text lives inside the first user turn.
struct Style {
  ChatFormat format;
  std::string_view name;
  bool inst;             // the [INST] kind
  bool alternating;      // user and assistant must take turns; system text is folded into the first user turn
  std::string_view end;  // marker that ends an assistant's turn (and every turn, unless inst)
  // Header kind: open role close lead content end gap.
  std::string_view open, close;  // markers; "" for none. "<|" means the role is in the marker: <|user|>
  std::string_view lead, gap;
  bool trim;
  // [INST] kind: before [INST] between content tail [/INST]; reply_lead reply reply_tail end.
  std::string_view before, between, tail, reply_lead, reply_tail;
  bool trim_user, trim_reply;
};

constexpr Style Headed(ChatFormat format, std::string_view name, std::string_view open,
                       std::string_view close, std::string_view lead, std::string_view end,
                       std::string_view gap, bool trim, bool alternating) {
  return {format, name, false, alternating, end, open, close, lead, gap,
          trim,   "",   "",    "",          "",  "",   false, false};
}
constexpr Style Inst(ChatFormat format, std::string_view name, std::string_view before,
                     std::string_view between, std::string_view tail, std::string_view reply_lead,
                     std::string_view reply_tail, bool trim_user, bool trim_reply) {
  return {format, name,   true,    true, "</s>",     "",         "",        "",        "",
          false,  before, between, tail, reply_lead, reply_tail, trim_user, trim_reply};
}

constexpr Style kStyles[] = {
    Headed(ChatFormat::kChatMl, "chatml", "<|im_start|>", "", "\n", "<|im_end|>", "\n", false, false),
    Inst(ChatFormat::kLlama2, "llama2", "", " ", " ", " ", " ", true, true),
    Headed(ChatFormat::kLlama3, "llama3", "<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>",
           "", true, false),
    Headed(ChatFormat::kLlama31, "llama3.1", "<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>",
           "", true, false),
    Inst(ChatFormat::kMistral, "mistral", "", " ", " ", "", "", false, false),
    Inst(ChatFormat::kMistralV1, "mistral-v1", " ", " ", " ", " ", "", false, false),
    Inst(ChatFormat::kMistralV3, "mistral-v3", "", " ", "", " ", "", false, true),
    Inst(ChatFormat::kMistralTekken, "mistral-tekken", "", "", "", "", "", false, false),
    Headed(ChatFormat::kGemma, "gemma", "<start_of_turn>", "", "\n", "<end_of_turn>", "\n", true, true),
    Headed(ChatFormat::kZephyr, "zephyr", "<|", "", "\n", "</s>", "\n", false, false),
    Headed(ChatFormat::kPhi3, "phi3", "<|", "", "\n", "<|end|>", "\n", false, false),
};

constexpr std::string_view kLlama31Dates =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

const Style& StyleOf(ChatFormat format) {
  for (const Style& style : kStyles) {
    if (style.format == format) return style;
  }
  BALLAST_CHECK(false);
}

// Python's str.strip(), which Jinja's trim is: Unicode white space at both ends.
std::string_view Trim(std::string_view text) {
  static constexpr std::string_view kWide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80",
                                               "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84",
                                               "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
                                               "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
                                               "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  const auto narrow = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F); };
  const auto space_at = [&](bool front) -> size_t {
    if (text.empty()) return 0;
    if (narrow(front ? text.front() : text.back())) return 1;
    for (const std::string_view wide : kWide) {
      if (front ? text.starts_with(wide) : text.ends_with(wide)) return wide.size();
    }
    return 0;
  };
  while (const size_t n = space_at(true)) text.remove_prefix(n);
  while (const size_t n = space_at(false)) text.remove_suffix(n);
  return text;
}

class Renderer {
 public:
  Renderer(const Style& style, const std::vector<ChatMessage>& messages)
      : style_(style), messages_(messages), first_user_(HasSystem() ? 1 : 0) {}

  void Message(size_t i) {
    if (i == 0 && style_.format == ChatFormat::kLlama31 && !HasSystem()) HeadedTurn("system", kLlama31Dates);
    const ChatMessage& m = messages_[i];
    if (style_.alternating && m.role == "system") return;  // comes with the first user turn
    AfterReply(i);
    if (style_.inst) {
      if (m.role == "user") InstUser(i);
      if (m.role == "assistant") InstReply(m.content);
      return;
    }
    std::string content(style_.trim ? Trim(m.content) : std::string_view(m.content));
    if (style_.alternating && i == first_user_ && HasSystem()) {
      content.insert(0, messages_[0].content + "\n\n");
    }
    if (style_.format == ChatFormat::kLlama31 && i == 0 && HasSystem()) content.insert(0, kLlama31Dates);
    HeadedTurn(m.role, content);
  }

  void OpenAssistant() {
    if (messages_.empty() && style_.format == ChatFormat::kLlama31) HeadedTurn("system", kLlama31Dates);
    AfterReply(messages_.size());
    if (!style_.inst) Header("assistant");
  }

  std::vector<PromptPiece> Take() { return std::move(pieces_); }

 private:
  bool HasSystem() const { return !messages_.empty() && messages_[0].role == "system"; }

  // What the template prints between the end of a reply and turn i.
  void AfterReply(size_t i) {
    if (i == 0 || messages_[i - 1].role != "assistant") return;
    Plain(style_.gap);
    if (style_.format == ChatFormat::kLlama2) Mark("<s>");
  }

  void HeadedTurn(std::string_view role, std::string_view content) {
    Header(role);
    Plain(content);
    Mark(style_.end);
    if (role != "assistant") Plain(style_.gap);
  }

  void Header(std::string_view role) {
    if (style_.format == ChatFormat::kGemma && role == "assistant") role = "model";
    if (style_.open == "<|") {
      Mark("<|" + std::string(role) + "|>");
    } else {
      Mark(style_.open);
      Plain(role);
      if (!style_.close.empty()) Mark(style_.close);
    }
    Plain(style_.lead);
  }

  void InstUser(size_t i) {
    std::string content = messages_[i].content;
    if (i == first_user_ && HasSystem()) {
      const std::string& system = messages_[0].content;
      content.insert(0, style_.format == ChatFormat::kLlama2 ? "<<SYS>>\n" + system + "\n<</SYS>>\n\n"
                                                             : system + "\n\n");
    }
    Plain(style_.before);
    Mark("[INST]");
    Plain(style_.between);
    Plain(style_.trim_user ? Trim(content) : std::string_view(content));
    Plain(style_.tail);
    Mark("[/INST]");
  }

  void InstReply(std::string_view content) {
    Plain(style_.reply_lead);
    Plain(style_.trim_reply ? Trim(content) : content);
    Plain(style_.reply_tail);
    Mark(style_.end);
  }

  void Mark(std::string_view text) { pieces_.push_back({std::string(text), true}); }
  void Plain(std::string_view text) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().special) pieces_.push_back({"", false});
    pieces_.back().text += text;
  }

  const Style& style_;
  const std::vector<ChatMessage>& messages_;
  const size_t first_user_;
  std::vector<PromptPiece> pieces_;
};

// Roles as outside text: short, one line.
std::string Quote(std::string_view role) {
  std::string out = "\"";
  for (const char c : role.substr(0, 40)) out += c < 0x20 || c == 0x7F ? '?' : c;
  return out + "\"";
}

Status CheckRoles(const Style& style, const std::vector<ChatMessage>& messages, size_t from,
                  bool open_assistant) {
  if (from > messages.size()) {
    return Status::Expected(Code::kInput, "messages", "at least " + std::to_string(from),
                            std::to_string(messages.size()));
  }
  const std::string hint =
      std::string(style.name) +
      " chats alternate user/assistant/user/assistant/... after an optional system message";
  const size_t first_user = !messages.empty() && messages[0].role == "system" ? 1 : 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const std::string what = "messages[" + std::to_string(i) + "].role";
    if (role != "system" && role != "user" && role != "assistant") {
      return Status::Expected(Code::kInput, what, "system, user or assistant", Quote(role));
    }
    if (!style.alternating || i < first_user) continue;
    const std::string_view turn = (i - first_user) % 2 == 0 ? "user" : "assistant";
    if (role != turn) return Status::Expected(Code::kInput, what, turn, role, hint);
  }
  if (open_assistant && style.alternating && (messages.empty() || messages.back().role != "user")) {
    return Status::Expected(Code::kInput, "last message", "a user turn to reply to",
                            messages.empty() ? "none" : messages.back().role, hint);
  }
  return Status();
}

std::optional<ChatFormat> DetectInst(const TemplateShape& shape) {
  if (shape.Has("[SYSTEM_PROMPT]")) return std::nullopt;  // Mistral v7: a layout of its own
  if (shape.Has("<<SYS>>")) {
    // Others fold a system text this way too, but without Llama-2's BOS before every user turn.
    if (shape.Has("bos_token`[INST] '") && shape.Has(".strip()` [/INST]")) return ChatFormat::kLlama2;
    return std::nullopt;
  }
  const bool spaced = shape.Has("` [/INST]"), tight = shape.Has("`[/INST]");
  if (spaced == tight) return std::nullopt;
  if (spaced && shape.Has("` [INST] '")) return ChatFormat::kMistralV1;
  if (spaced && shape.Has("`[INST] '")) return ChatFormat::kMistral;
  if (tight && shape.Has("`[INST] '")) return ChatFormat::kMistralV3;
  if (tight && shape.Has("`[INST]'")) return ChatFormat::kMistralTekken;
  return std::nullopt;
}

}  // namespace

std::string_view ChatFormatName(ChatFormat format) { return StyleOf(format).name; }

Result<ChatFormat> ParseChatFormat(std::string_view name) {
  std::string known;
  for (const Style& style : kStyles) {
    if (style.name == name) return style.format;
    known.append(known.empty() ? "one of " : ", ").append(style.name);
  }
  return Status::Expected(Code::kUsage, "--chat-format", known + ", or template (the model's own)",
                          Quote(name));
}

std::optional<ChatFormat> DetectChatFormat(std::string_view chat_template) {
  const TemplateShape shape(chat_template);
  if (shape.Has("<|im_start|>")) {
    // Phi-4 ends the header with <|im_sep|>; SmolLM3 writes the day's date into a system turn.
    if (shape.Has("<|im_sep|>") || shape.Has("strftime_now")) return std::nullopt;
    const bool header = shape.Has("<|im_start|>'*`\n") || shape.Has("<|im_start|>user\n");
    if (header && shape.Has("<|im_end|>\n")) return ChatFormat::kChatMl;
    return std::nullopt;
  }
  if (shape.Has("<|start_header_id|>'*`<|end_header_id|>\n\n") && shape.Has("<|eot_id|>")) {
    return shape.Has("Cutting Knowledge Date: December 2023\n") ? ChatFormat::kLlama31 : ChatFormat::kLlama3;
  }
  if (shape.Has("<start_of_turn>'*`\n") && shape.Has("<end_of_turn>\n") && shape.Has("`model'")) {
    return ChatFormat::kGemma;
  }
  if (shape.Has("[INST]")) return DetectInst(shape);
  // Many share <|user|>; what ends a user turn tells them apart (GLM: nothing; Tulu, Falcon: a newline).
  if (shape.Has("<|user|>\n'*`<|end|>\n") || shape.Has("`<|'*`|>\n'*`<|end|>\n")) return ChatFormat::kPhi3;
  if (shape.Has("<|user|>\n'*+eos_token") || shape.Has("<|user|>\n'*`</s>")) return ChatFormat::kZephyr;
  return std::nullopt;
}

std::string DefaultSystemText(ChatFormat format, std::string_view chat_template) {
  const Style& style = StyleOf(format);
  if (style.alternating || format == ChatFormat::kLlama31) return "";
  std::string header(style.open);
  header.append("system").append(style.open == "<|" ? "|>" : style.close).append(style.lead);
  return TemplateShape(chat_template).Between(header, style.end).value_or("");
}

Result<std::vector<PromptPiece>> RenderChat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                            size_t from, bool open_assistant) {
  const Style& style = StyleOf(format);
  BALLAST_RETURN_IF_ERROR(CheckRoles(style, messages, from, open_assistant));
  Renderer renderer(style, messages);
  for (size_t i = from; i < messages.size(); ++i) renderer.Message(i);
  if (open_assistant) renderer.OpenAssistant();
  return renderer.Take();
}

std::vector<Token> EncodePrompt(const Tokenizer& tokenizer, const std::vector<PromptPiece>& pieces,
                                bool start) {
  const Vocab& vocab = tokenizer.vocab();
  std::vector<Token> ids;
  if (start && vocab.add_bos && vocab.bos >= 0) ids.push_back(vocab.bos);
  std::string plain;
  const auto flush = [&] {
    if (plain.empty()) return;
    const auto more = tokenizer.Encode(plain, {.add_special = false, .parse_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
    plain.clear();
  };
  for (const PromptPiece& piece : pieces) {
    const Token id = piece.special ? tokenizer.Find(piece.text) : -1;
    if (id < 0) {
      plain += piece.text;
      continue;
    }
    flush();
    ids.push_back(id);
  }
  flush();
  return ids;
}

std::string_view TurnEnd(ChatFormat format) { return StyleOf(format).end; }

std::vector<std::string> ChatStops(ChatFormat format) { return {std::string(TurnEnd(format))}; }

}  // namespace ballast
