#include "server/prompt_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "server/turns.h"

namespace ballast::server {
namespace {

// Stands for what the stream already holds: a format asks only which turn came last.
std::vector<ChatMessage> Stub(const Continued& continued) {
  if (continued.first) return {};
  if (continued.after_system) return {{"system", ""}};
  return {{"user", ""}, {"assistant", ""}};
}

class Planner {
 public:
  Planner(const ChatPrompter& prompter, const Continued& continued)
      : prompter_(prompter), continued_(continued) {
    plan_.chain = continued.chain;
    plan_.messages = continued.messages;
  }

  // One exchange: messages [begin, end) of `all`; `open`: its reply is still to come.
  Status Exchange(const std::vector<ChatMessage>& all, size_t begin, size_t end, bool open) {
    std::vector<ChatMessage> view = Stub(continued_);
    const size_t from = view.size();
    view.insert(view.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                all.begin() + static_cast<std::ptrdiff_t>(end));
    BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                             prompter_.Render(view, from, open, continued_.first));
    const auto base = static_cast<int64_t>(plan_.tokens.size());
    int64_t head = prompter_.GapTokens(view, from);
    size_t counted = begin;
    if (continued_.first && !view.empty() && view[0].role == "system") {
      head = System(view[0], tokens);
      if (head > 0) ++counted;
    }
    plan_.tokens.insert(plan_.tokens.end(), tokens.begin(), tokens.end());
    for (size_t i = counted; i < end; ++i) {
      plan_.chain = ChainMessage(plan_.chain, all[i]);
      ++plan_.messages;
    }
    const auto after = static_cast<int64_t>(plan_.tokens.size());
    plan_.turns.push_back({base + head, open ? -1 : after, plan_.chain, plan_.messages});
    continued_.first = false;
    continued_.after_system = false;
    return Status();
  }

  PromptPlan Take() { return std::move(plan_); }

 private:
  // A system message that stands by itself is a turn of its own; returns its tokens, 0 when it does not.
  int64_t System(const ChatMessage& system, const std::vector<Token>& tokens) {
    const auto alone = prompter_.Render({system}, 0, false, true);
    if (!alone.ok() || alone->empty() || alone->size() >= tokens.size() ||
        !std::equal(alone->begin(), alone->end(), tokens.begin())) {
      return 0;
    }
    plan_.chain = ChainMessage(plan_.chain, system);
    ++plan_.messages;
    const auto size = static_cast<int64_t>(alone->size());
    plan_.turns.push_back({0, size, plan_.chain, plan_.messages});
    return size;
  }

  const ChatPrompter& prompter_;
  Continued continued_;
  PromptPlan plan_;
};

// The same for a template, which may look at what it is given: words, and a call before each tool's answer.
std::vector<ChatMessage> TemplateStub(const Continued& continued, const std::vector<ChatMessage>& next) {
  if (continued.after_system) return {{"system", "Hello."}};
  nlohmann::json calls = nlohmann::json::array();
  for (size_t i = 0; i < next.size() && next[i].role == "tool"; ++i) {
    const nlohmann::json answer = nlohmann::json::parse(next[i].extra, nullptr, false);
    const auto text = [&](const char* key, const char* other) {
      return answer.is_object() && answer.contains(key) ? answer[key] : nlohmann::json(other);
    };
    calls.push_back(
        {{"id", text("tool_call_id", "call00000")},
         {"type", "function"},
         {"function", {{"name", text("name", "tool")}, {"arguments", nlohmann::json::object()}}}});
  }
  if (calls.empty()) return {{"user", "Hello."}, {"assistant", "Hello."}};
  nlohmann::json extra = nlohmann::json::object();
  extra["tool_calls"] = std::move(calls);
  return {{"user", "Hello."}, {"assistant", "", extra.dump()}};
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

// Where in `pieces` the replies among messages[from..] end, after their end-of-turn tokens. Told by counting
// those tokens, one a message or one a reply, and by the words before them; nothing when that is not so.
std::vector<size_t> ReplyEnds(const std::vector<PromptPiece>& pieces, const std::string& end,
                              const std::vector<ChatMessage>& messages, size_t from) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].special && pieces[i].text == end) ends.push_back(i + 1);
  }
  std::vector<size_t> replies;  // by index after `from`
  for (size_t i = from; i < messages.size(); ++i) {
    if (messages[i].role == "assistant") replies.push_back(i - from);
  }
  const size_t count = messages.size() - from;
  const size_t added = from == 0 && ends.size() == count + 1 ? 1 : 0;  // a system message of the template's
  const bool each = ends.size() == count + added;
  if (replies.empty() || (!each && ends.size() != replies.size())) return {};
  std::vector<size_t> out;
  for (size_t k = 0; k < replies.size(); ++k) {
    const size_t at = ends[each ? replies[k] + added : k];
    const std::string_view words = Trimmed(messages[from + replies[k]].content);
    const std::string_view last = words.substr(words.size() - std::min<size_t>(words.size(), 32));
    if (last.empty() || at < 2 || !Trimmed(pieces[at - 2].text).ends_with(last)) return {};
    out.push_back(at);
  }
  return out;
}

// The plan of pieces that a template printed for messages[from..].
PromptPlan PlanPieces(const ChatPrompter& prompter, const Tokenizer& tokenizer,
                      const std::vector<PromptPiece>& pieces, const std::vector<ChatMessage>& messages,
                      size_t from, const Continued& continued) {
  PromptPlan plan;
  plan.chain = continued.chain;
  plan.messages = continued.messages;
  const Token end = prompter.end_of_turn();
  std::vector<size_t> ends;
  if (end >= 0) {
    ends = ReplyEnds(pieces, tokenizer.vocab().tokens[static_cast<size_t>(end)], messages, from);
  }
  size_t piece = 0, message = from;
  for (size_t turn = 0; turn <= ends.size(); ++turn) {
    const bool open = turn == ends.size();
    const size_t stop = open ? pieces.size() : ends[turn];
    const std::vector<PromptPiece> part(pieces.begin() + static_cast<std::ptrdiff_t>(piece),
                                        pieces.begin() + static_cast<std::ptrdiff_t>(stop));
    const bool first = continued.first && turn == 0;
    const std::vector<Token> tokens = EncodePrompt(tokenizer, part, first);
    const auto base = static_cast<int64_t>(plan.tokens.size());
    plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
    for (bool closed = false; message < messages.size() && !(closed && !open); ++message) {
      plan.chain = ChainMessage(plan.chain, messages[message]);
      ++plan.messages;
      closed = messages[message].role == "assistant";
    }
    const auto after = static_cast<int64_t>(plan.tokens.size());
    plan.turns.push_back(
        {base + (first ? 0 : prompter.GapTokens(part)), open ? -1 : after, plan.chain, plan.messages});
    piece = stop;
  }
  return plan;
}

// By the model's template: all of the conversation is printed, and what it prints for the held part is taken
// off the front.
Result<PromptPlan> PlanByTemplate(const ChatPrompter& prompter, const std::vector<ChatMessage>& messages,
                                  size_t from, const Continued& continued, const std::string& tools) {
  std::vector<ChatMessage> view;
  if (from == 0 && !continued.first) view = TemplateStub(continued, messages);
  const size_t held = from + view.size();
  view.insert(view.end(), messages.begin(), messages.end());
  const Result<TemplateContinuation> more = prompter.RenderTemplate(view, held, true, tools);
  if (from > 0 && (!more.ok() || !more->exact)) {
    PromptPlan again;
    again.exact = false;
    return again;
  }
  if (!more.ok()) return more.status();
  return PlanPieces(prompter, prompter.tokenizer(), more->pieces, messages, from, continued);
}

}  // namespace

Result<PromptPlan> PlanChat(const ChatPrompter& prompter, const std::vector<ChatMessage>& messages,
                            size_t from, const Continued& continued, const std::string& tools) {
  if (prompter.UsesTemplate(messages, tools)) {
    return PlanByTemplate(prompter, messages, from, continued, tools);
  }
  // All roles are judged together, before anything is fed.
  if (from > 0 || continued.first) {
    BALLAST_RETURN_IF_ERROR(prompter.Check(messages, true));
  } else {
    std::vector<ChatMessage> view = Stub(continued);
    view.insert(view.end(), messages.begin(), messages.end());
    BALLAST_RETURN_IF_ERROR(prompter.Check(view, true));
  }
  Planner planner(prompter, continued);
  size_t begin = from;
  for (size_t i = from; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    BALLAST_RETURN_IF_ERROR(planner.Exchange(messages, begin, i + 1, false));
    begin = i + 1;
  }
  BALLAST_RETURN_IF_ERROR(planner.Exchange(messages, begin, messages.size(), true));
  return planner.Take();
}

}  // namespace ballast::server
