#include "text/chat_template.h"

#include <algorithm>
#include <string_view>

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;

constexpr char kSpace[] = " \t\r\n";

// Roles that templates put into a marker ("<|" + role + "|>"). As words of this list, not as the sender's
// text, they are as good as the template's own; any other role stays data.
constexpr std::string_view kRoles[] = {
    "system", "user",  "assistant",   "tool",        "developer", "function",  "ipython",      "model",
    "tools",  "human", "observation", "environment", "context",   "documents", "tool_results", "control"};

JinjaValue TrustRole(const JinjaValue& message) {
  const JinjaValue* role = message.Find("role");
  if (!message.Is(Kind::kDict) || role == nullptr || !role->Is(Kind::kString)) return message;
  if (std::find(std::begin(kRoles), std::end(kRoles), role->str()) == std::end(kRoles)) return message;
  auto entries = message.dict().entries;
  for (auto& [key, value] : entries) {
    if (key.Is(Kind::kString) && key.str() == "role") value = JinjaValue::Trusted(role->str());
  }
  return JinjaValue::DictOf(entries);
}

// The same messages with texts that begin differently: where the renderings part, message `from` begins.
JinjaValue Probe(const JinjaValue& messages, size_t from) {
  JinjaValue::Items items = messages.items();
  for (size_t i = from; i < items.size(); ++i) {
    if (!items[i].Is(Kind::kDict)) continue;
    auto entries = items[i].dict().entries;
    for (auto& [key, value] : entries) {
      if (key.Is(Kind::kString) && key.str() == "content") {
        const bool zed = value.Is(Kind::kString) && value.str().starts_with('Z');
        value = JinjaValue::String(zed ? "Y" : "Z");
      }
    }
    items[i] = JinjaValue::DictOf(entries);
  }
  return JinjaValue::List(std::move(items));
}

bool SamePiece(const PromptPiece& a, const PromptPiece& b) {
  return a.special == b.special && a.text == b.text;
}

// Drops what `held` says from the front of `whole`; false when whole does not begin with it.
bool DropPrefix(const std::vector<PromptPiece>& held, std::vector<PromptPiece>* whole) {
  if (held.size() > whole->size()) return false;
  for (size_t i = 0; i < held.size(); ++i) {
    if (SamePiece(held[i], (*whole)[i])) continue;
    // The last held piece may go on: plain text that is continued.
    const bool goes_on = i + 1 == held.size() && !held[i].special && !(*whole)[i].special &&
                         (*whole)[i].text.starts_with(held[i].text);
    if (!goes_on) return false;
    (*whole)[i].text.erase(0, held[i].text.size());
    whole->erase(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  whole->erase(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(held.size()));
  return true;
}

}  // namespace

JinjaValue TemplateMessage(const ChatMessage& message) {
  return JinjaValue::Dict(
      {{"role", JinjaValue::String(message.role)}, {"content", JinjaValue::String(message.content)}});
}

JinjaValue TemplateMessages(const std::vector<ChatMessage>& messages) {
  JinjaValue::Items items;
  for (const ChatMessage& message : messages) items.push_back(TemplateMessage(message));
  return JinjaValue::List(std::move(items));
}

Result<ChatTemplate> ChatTemplate::Create(std::string_view source, const Tokenizer& tokenizer) {
  ChatTemplate made(tokenizer);
  BALLAST_ASSIGN_OR_RETURN(made.template_, JinjaTemplate::Parse(source));
  const Vocab& vocab = tokenizer.vocab();
  std::vector<SpecialMatcher::Entry> controls;
  for (Token id = 0; id < tokenizer.size(); ++id) {
    const std::string& text = vocab.tokens[static_cast<size_t>(id)];
    if (tokenizer.IsControl(id) && !text.empty() && text.size() <= SpecialMatcher::kMaxBytes) {
      controls.push_back({text, id, true});
    }
  }
  made.controls_.Build(std::move(controls));
  const auto text_of = [&](Token id) {
    return id >= 0 && id < tokenizer.size() ? vocab.tokens[static_cast<size_t>(id)] : std::string();
  };
  made.bos_ = text_of(vocab.bos);
  made.eos_ = text_of(vocab.eos);
  made.unk_ = text_of(vocab.unk);
  made.pad_ = text_of(vocab.pad);
  return made;
}

// The first `count` messages of `messages` (or of the request's) as marked text.
Result<MarkedText> ChatTemplate::Text(const TemplateRequest& request, size_t count, bool open,
                                      const JinjaValue* messages, const JinjaLimits& limits) const {
  JinjaValue::Items items;
  for (const JinjaValue& message : (messages != nullptr ? *messages : request.messages).items()) {
    if (items.size() == count) break;
    items.push_back(TrustRole(message));
  }
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  const auto set = [&](std::string_view name, JinjaValue value) {
    entries.emplace_back(JinjaValue::Trusted(std::string(name)), std::move(value));
  };
  for (const auto& [name, value] : request.variables) set(name, value);
  set("messages", JinjaValue::List(std::move(items)));
  set("tools", request.tools);
  set("documents", request.documents);
  set("add_generation_prompt", JinjaValue::Bool(open));
  set("bos_token", JinjaValue::Trusted(bos_));
  set("eos_token", JinjaValue::Trusted(eos_));
  if (!unk_.empty()) set("unk_token", JinjaValue::Trusted(unk_));
  if (!pad_.empty()) set("pad_token", JinjaValue::Trusted(pad_));
  return template_.RenderMarked(JinjaValue::DictOf(entries), limits);
}

std::vector<PromptPiece> ChatTemplate::Cut(const MarkedText& text) const {
  std::vector<PromptPiece> pieces;
  const auto plain = [&](std::string_view part) {
    if (part.empty()) return;
    if (pieces.empty() || pieces.back().special) pieces.push_back({"", false});
    pieces.back().text += part;
  };
  for (const MarkedText::Run& run : text.Runs()) {
    size_t at = 0;
    while (!run.data) {
      const SpecialMatcher::Match match = controls_.Find(run.text, at, true);
      if (match.bytes == 0) break;
      plain(run.text.substr(at, match.begin - at));
      pieces.push_back({std::string(run.text.substr(match.begin, match.bytes)), true});
      at = match.begin + match.bytes;
    }
    plain(run.text.substr(at));
  }
  const Vocab& vocab = tokenizer_->vocab();
  const bool doubled = vocab.add_bos && vocab.bos >= 0 && !pieces.empty() && pieces[0].special &&
                       tokenizer_->Find(pieces[0].text) == vocab.bos;
  if (doubled) pieces.erase(pieces.begin());
  return pieces;
}

Result<std::vector<PromptPiece>> ChatTemplate::Render(const TemplateRequest& request,
                                                      const JinjaLimits& limits) const {
  BALLAST_ASSIGN_OR_RETURN(const MarkedText text,
                           Text(request, SIZE_MAX, request.open_assistant, nullptr, limits));
  return Cut(text);
}

// Number of pieces up to and with the last token that ends a turn; 0 when there is none.
size_t ChatTemplate::AfterLastTurnEnd(const std::vector<PromptPiece>& pieces) const {
  for (size_t i = pieces.size(); i > 0; --i) {
    if (pieces[i - 1].special && tokenizer_->EndsTurn(tokenizer_->Find(pieces[i - 1].text))) return i;
  }
  return 0;
}

// The model's reply ended at its end-of-turn token, or with its last word where the template prints none;
// what stands after that in the template was never fed.
void ChatTemplate::DropAfterReply(const JinjaValue& reply, std::vector<PromptPiece>* pieces) const {
  const auto end = static_cast<std::ptrdiff_t>(AfterLastTurnEnd(*pieces));
  const bool space = std::all_of(pieces->begin() + end, pieces->end(), [](const auto& p) {
    return p.text.find_first_not_of(kSpace) == std::string::npos;
  });
  if (end > 0 && space) {
    pieces->resize(static_cast<size_t>(end));
    return;
  }
  const JinjaValue* content = reply.Find("content");
  if (content == nullptr || !content->Is(Kind::kString) || pieces->empty() || pieces->back().special) return;
  const std::string& words = content->str();
  const size_t last = words.find_last_not_of(kSpace);
  if (last == std::string::npos) return;
  const size_t first = words.find_first_not_of(kSpace);
  const size_t at = pieces->back().text.rfind(words.substr(first, last + 1 - first));
  if (at != std::string::npos) pieces->back().text.resize(at + last + 1 - first);
}

Result<TemplateContinuation> ChatTemplate::RenderFrom(const TemplateRequest& request, size_t held,
                                                      const JinjaLimits& limits) const {
  const auto& messages = request.messages.items();
  BALLAST_CHECK(held <= messages.size());
  BALLAST_ASSIGN_OR_RETURN(std::vector<PromptPiece> whole, Render(request, limits));
  if (held == 0) return TemplateContinuation{std::move(whole), true};
  // A template may refuse the held messages alone (a conversation that opens with a reply to nothing).
  const auto text = Text(request, held, false, nullptr, limits);
  if (!text.ok()) return AfterRewriting(request, held, whole, limits);
  std::vector<PromptPiece> before = Cut(*text);
  const JinjaValue* role = messages[held - 1].Find("role");
  const bool reply = role != nullptr && role->Is(Kind::kString) && role->str() == "assistant";
  if (reply) DropAfterReply(messages[held - 1], &before);
  std::vector<PromptPiece> rest = whole;
  if (DropPrefix(before, &rest)) return TemplateContinuation{std::move(rest), true};
  return AfterRewriting(request, held, whole, limits);
}

Result<TemplateContinuation> ChatTemplate::AfterRewriting(const TemplateRequest& request, size_t held,
                                                          const std::vector<PromptPiece>& whole,
                                                          const JinjaLimits& limits) const {
  std::vector<PromptPiece> other;
  const JinjaValue probe = Probe(request.messages, held);
  if (const auto text = Text(request, SIZE_MAX, request.open_assistant, &probe, limits); text.ok())
    other = Cut(*text);
  size_t same = 0;
  while (same < whole.size() && same < other.size() && SamePiece(whole[same], other[same])) ++same;
  const size_t end = AfterLastTurnEnd({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(same)});
  if (end == 0 || same == whole.size()) {
    return Status::Expected(Code::kInput, "chat template", "earlier messages to stay as they were printed",
                            "others, and no end of a turn before messages[" + std::to_string(held) + "]");
  }
  return TemplateContinuation{{whole.begin() + static_cast<std::ptrdiff_t>(end), whole.end()}, false};
}

}  // namespace ballast
