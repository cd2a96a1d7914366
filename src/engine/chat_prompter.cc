#include "engine/chat_prompter.h"

#include <algorithm>
#include <ctime>
#include <string_view>
#include <utility>

#include "engine/template_json.h"

namespace ballast {
namespace {

// What a template's strftime_now prints: local time, as seconds.
int64_t LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (localtime_r(&now, &parts) == nullptr) return now;
  return timegm(&parts);
}

// Words that no template writes by itself.
constexpr std::string_view kAsked = "Ask7319", kReplied = "Reply7319", kGiven = "Given7319";
constexpr char kToolsProbe[] =
    R"([{"type": "function", "function": {"name": "Given7319", "description": "d", "parameters":
    {"type": "object", "properties": {}, "required": []}}}])";
constexpr char kCallProbe[] =
    R"({"tool_calls": [{"id": "call73195", "type": "function",
    "function": {"name": "Given7319", "arguments": {}}}]})";
constexpr char kAnswerProbe[] = R"({"tool_call_id": "call73195", "name": "tool7319"})";

bool Holds(const std::vector<PromptPiece>& pieces, std::string_view words) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const PromptPiece& p) { return p.text.find(words) != std::string::npos; });
}

}  // namespace

ChatPrompter::ChatPrompter(const Tokenizer& tokenizer, ChatFormat format, std::string default_system)
    : tokenizer_(tokenizer), format_(format), default_system_(std::move(default_system)) {
  FindEnd();
}

ChatPrompter::ChatPrompter(const Tokenizer& tokenizer, ChatTemplate own, std::optional<ChatFormat> format,
                           std::string default_system)
    : tokenizer_(tokenizer),
      format_(format),
      template_(std::move(own)),
      default_system_(std::move(default_system)) {
  Probe();
  FindEnd();
}

// What ends a reply: the format's marker, else the token that the template prints after one, else the
// vocabulary's.
void ChatPrompter::FindEnd() {
  std::vector<std::string> ends;
  if (format_) {
    ends = ChatStops(*format_);
  } else if (const auto said = RenderTemplate(
                 {{"user", std::string(kAsked)}, {"assistant", std::string(kReplied)}}, 0, false, "");
             said.ok()) {
    bool after = false;
    for (const PromptPiece& piece : said->pieces) {
      if (after && piece.special) ends.push_back(piece.text);
      after = after || piece.text.find(kReplied) != std::string::npos;
    }
  }
  for (const std::string& text : ends) {
    const Token id = tokenizer_.Find(text);
    if (id >= 0 && tokenizer_.EndsTurn(id)) {
      end_of_turn_ = id;
      break;
    }
  }
  const Vocab& vocab = tokenizer_.vocab();
  if (end_of_turn_ < 0) end_of_turn_ = vocab.eot >= 0 ? vocab.eot : vocab.eos;
  if (end_of_turn_ < 0 && format_) text_stops_ = ends;
}

// What of a conversation the template prints. One that refuses, or prints the same without, does not know it.
void ChatPrompter::Probe() {
  JinjaLimits few;
  few.max_steps = 200'000;  // the model is being loaded
  const auto prints = [&](const std::vector<ChatMessage>& messages, const std::string& tools,
                          std::string_view words) {
    const auto said = RenderTemplate(messages, 0, true, tools, few);
    return said.ok() && Holds(said->pieces, words);
  };
  const ChatMessage ask{"user", std::string(kAsked)}, system{"system", "Be brief."};
  knows_.tools = prints({ask}, kToolsProbe, kGiven) || prints({system, ask}, kToolsProbe, kGiven);
  knows_.developer = prints({{"developer", std::string(kGiven)}, ask}, "", kGiven);
  const ChatMessage call{"assistant", "", kCallProbe};
  const ChatMessage answer{"tool", std::string(kReplied), kAnswerProbe};
  for (const char* tools : {"", kToolsProbe}) {
    knows_.tool_messages = knows_.tool_messages || prints({ask, call, answer}, tools, kReplied);
  }
  knows_.tool_calls = prints({ask, call, answer}, "", kGiven) || prints({ask, call, ask}, "", kGiven);
}

bool ChatPrompter::UsesTemplate(const std::vector<ChatMessage>& messages, const std::string& tools) const {
  if (!template_) return false;
  if (!format_ || !tools.empty()) return true;
  return std::any_of(messages.begin(), messages.end(), [](const ChatMessage& m) {
    return !m.extra.empty() || (m.role != "system" && m.role != "user" && m.role != "assistant");
  });
}

Status ChatPrompter::CheckTools() const {
  if (knows_.tools) return Status();
  return Status(Code::kInput, template_
                                  ? "tools: not supported: this model's chat template has no place for them"
                                  : "tools: not supported: this model has no chat template to print them");
}

Status ChatPrompter::CheckMessage(const ChatMessage& message, const std::string& what) const {
  const bool calls = message.role == "assistant" && !message.extra.empty();
  const bool answer = message.role == "tool";
  if ((!calls || knows_.tool_calls) && (!answer || knows_.tool_messages)) return Status();
  return Status(Code::kInput, what + (calls ? ".tool_calls" : ".role: \"tool\"") +
                                  ": not supported: this model's chat template has no place for it");
}

Result<TemplateContinuation> ChatPrompter::RenderTemplate(const std::vector<ChatMessage>& messages,
                                                          size_t from, bool open, const std::string& tools,
                                                          JinjaLimits limits) const {
  BALLAST_CHECK(template_.has_value());
  TemplateRequest request;
  BALLAST_ASSIGN_OR_RETURN(request.messages, TemplateMessagesWithExtras(messages));
  if (!tools.empty()) {
    BALLAST_ASSIGN_OR_RETURN(request.tools, TemplateJson("tools", tools));
  }
  request.open_assistant = open;
  limits.now = LocalTime();
  return template_->RenderFrom(request, from, limits);
}

Result<std::vector<Token>> ChatPrompter::Render(const std::vector<ChatMessage>& messages, size_t from,
                                                bool open, bool first, const std::string& tools) const {
  if (UsesTemplate(messages, tools)) {
    BALLAST_ASSIGN_OR_RETURN(const TemplateContinuation more, RenderTemplate(messages, from, open, tools));
    return EncodePrompt(tokenizer_, more.pieces, first);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<PromptPiece> pieces, RenderChat(*format_, messages, from, open));
  return EncodePrompt(tokenizer_, pieces, first);
}

Status ChatPrompter::Check(const std::vector<ChatMessage>& messages, bool open) const {
  if (UsesTemplate(messages, "")) return RenderTemplate(messages, 0, open, "").status();
  return RenderChat(*format_, messages, messages.size(), open).status();
}

Result<int64_t> ChatPrompter::CountSystemTokens(const std::string& text, const std::string& tools) const {
  if (text.empty()) return 0;
  const ChatMessage system{"system", text};
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> a, Render({system, {"user", "a"}}, 0, true, true, tools));
  const Result<std::vector<Token>> alone = Render({system}, 0, false, true, tools);
  if (alone.ok() && !alone->empty() && alone->size() <= a.size() &&
      std::equal(alone->begin(), alone->end(), a.begin())) {
    return static_cast<int64_t>(alone->size());
  }
  // A format that folds the system prompt into the first user turn: what two such turns share.
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> b,
                           Render({system, {"user", "\n1"}}, 0, true, true, tools));
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t ChatPrompter::GapTokens(const std::vector<PromptPiece>& pieces) const {
  if (pieces.size() < 2 || pieces[0].special || !pieces[1].special) return 0;
  if (pieces[0].text.find_first_not_of(" \n") != std::string::npos) return 0;
  if (tokenizer_.Find(pieces[1].text) < 0) return 0;  // tokenized together with the gap
  return static_cast<int64_t>(EncodePrompt(tokenizer_, {pieces[0]}, false).size());
}

int64_t ChatPrompter::GapTokens(const std::vector<ChatMessage>& messages, size_t from) const {
  if (from == 0 || from > messages.size() || messages[from - 1].role != "assistant") return 0;
  BALLAST_CHECK(format_.has_value());
  // Only the pieces before the first marker count: the gap never depends on the text of the turn.
  std::vector<ChatMessage> probe;
  for (size_t i = 0; i < from; ++i) probe.push_back({messages[i].role, ""});
  probe.push_back({from < messages.size() ? messages[from].role : "user", ""});
  const auto pieces = RenderChat(*format_, probe, from, false);
  return pieces.ok() ? GapTokens(*pieces) : 0;
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
