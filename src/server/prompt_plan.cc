#include "server/prompt_plan.h"

#include <algorithm>

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

}  // namespace

Result<PromptPlan> PlanChat(const ChatPrompter& prompter, const std::vector<ChatMessage>& messages,
                            size_t from, const Continued& continued) {
  // All roles are judged together, before anything is fed.
  if (from > 0 || continued.first) {
    BALLAST_RETURN_IF_ERROR(
        RenderChat(prompter.format(), messages, std::min(from, messages.size()), true).status());
  } else {
    std::vector<ChatMessage> view = Stub(continued);
    view.insert(view.end(), messages.begin(), messages.end());
    BALLAST_RETURN_IF_ERROR(RenderChat(prompter.format(), view, view.size(), true).status());
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
