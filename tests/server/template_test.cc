// Conversations by the model's own template: what is fed, what is fed again, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/service_fixture.h"
#include "support/temp_path.h"

namespace ballast::server {
namespace {

// The tiny vocabulary has neither spaces nor line breaks.
constexpr char kPlain[] =
    "{% if tools %}<|im_start|>tools:{% for t in tools %}{{ t.function.name }};{% endfor %}<|im_end|>{% "
    "endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.x }}){% endfor "
    "%}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}";
// Earlier replies lose all but two letters, as those of thinking models lose their thoughts.
constexpr char kRewriting[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}:"
    "{{ m.content if loop.last or m.role != 'assistant' else m.content[:2] }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}";
constexpr char kStrict[] =
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('Roles here are system, user and assistant.') }}{% endif %}"
    "{% if m.content == 'loop' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor "
    "%}{% endif %}"
    "<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}";

EngineServiceOptions With(const std::string& name, const char* chat_template) {
  EngineServiceOptions options = TinyOptions();
  options.stream.context = 256;
  options.model_path = testing::TempPath("template_" + name + ".gguf");
  testing::GgufBuilder file = testing::TinyLlama(ServerSpec()).Builder();
  EXPECT_TRUE(file.Set("tokenizer.chat_template", std::string(chat_template)).Write(options.model_path));
  return options;
}

// The reply to a prompt that was printed by hand.
std::string Direct(const std::string& prompt, int64_t n, const EngineServiceOptions& o) {
  return DirectReply(o, n, [&](const Tokenizer& tokenizer) { return tokenizer.Encode(prompt); });
}

Request Named(Messages messages, const std::string& session, int64_t n = 6) {
  Request r = Chat(std::move(messages), n);
  r.session = session;
  return r;
}

const std::string kTools = R"([{"type": "function", "function": {"name": "weather"}}])";

TEST(Template, AConversationIsWhatTheTemplatePrints) {
  const EngineServiceOptions o = With("plain", kPlain);
  auto service = Serve(o);
  EXPECT_EQ(service->model().chat_format, "template");
  const CollectorPtr c = AskAndWait(*service, Chat({{"user", "hello"}}, 20));
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_EQ(c->text, Direct("<|im_start|>user:hello<|im_end|><|im_start|>assistant:", 20, o));
  EXPECT_FALSE(c->text.empty());
  // Typed markers stay text: the prompt has three control tokens, whatever was typed.
  const CollectorPtr typed = AskAndWait(*service, Chat({{"user", "<|im_end|>"}}, 1));
  EXPECT_EQ(typed->usage.prompt_tokens, c->usage.prompt_tokens + 5);
}

TEST(Template, OnlyTheNewTurnIsFedByHistoryAndByName) {
  const EngineServiceOptions o = With("plain", kPlain);
  auto by_history = Serve(o), by_name = Serve(o);
  Messages history = {{"system", "besilly"}};
  int64_t position = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const ChatMessage ask{"user", "tellme" + std::to_string(turn)};
    history.push_back(ask);
    const CollectorPtr a = AskAndWait(*by_history, Chat(history, 8));
    ASSERT_FALSE(a->failed) << a->error.message;
    EXPECT_EQ(a->usage.cached_tokens, position) << "turn " << turn;
    const CollectorPtr b = AskAndWait(
        *by_name, Named(turn == 0 ? Messages{{"system", "besilly"}, ask} : Messages{ask}, "mine", 8));
    ASSERT_FALSE(b->failed) << b->error.message;
    EXPECT_EQ(a->text, b->text) << "turn " << turn;
    EXPECT_EQ(a->usage.position, b->usage.position);
    position = a->usage.position;
    history.push_back({"assistant", a->text});
  }
  EXPECT_EQ(Sessions(*by_history).size(), 1u);
}

TEST(Template, AnEditOfAStreamedHistoryGoesBackToTheTurnBefore) {
  const EngineServiceOptions o = With("plain", kPlain);
  auto service = Serve(o);
  Messages history = {{"user", "one"}, {"assistant", "uno"}, {"user", "two"}, {"assistant", "dos"}};
  history.push_back({"user", "three"});
  const CollectorPtr first = AskAndWait(*service, Chat(history, 6));
  ASSERT_FALSE(first->failed) << first->error.message;
  history.back().content = "four";
  const CollectorPtr edited = AskAndWait(*service, Chat(history, 6));
  EXPECT_GT(edited->usage.cached_tokens, 20);
  auto fresh = Serve(o);
  EXPECT_EQ(edited->text, AskAndWait(*fresh, Chat(history, 6))->text);
  EXPECT_EQ(Sessions(*service).size(), 1u);
}

// The stream does not hold what the template now says came before: the history is streamed again.
TEST(Template, ARewrittenHistoryIsStreamedAgain) {
  const EngineServiceOptions o = With("rewriting", kRewriting);
  auto service = Serve(o);
  const CollectorPtr first = AskAndWait(*service, Chat({{"user", "one"}}, 8));
  ASSERT_GT(first->text.size(), 2u);
  const Messages history = {{"user", "one"}, {"assistant", first->text}, {"user", "two"}};
  const CollectorPtr second = AskAndWait(*service, Chat(history, 8));
  ASSERT_FALSE(second->failed) << second->error.message;
  EXPECT_EQ(second->usage.cached_tokens, 0);
  EXPECT_EQ(second->text,
            Direct("<|im_start|>user:one<|im_end|><|im_start|>assistant:" + first->text.substr(0, 2) +
                       "<|im_end|><|im_start|>user:two<|im_end|><|im_start|>assistant:",
                   8, o));
  EXPECT_EQ(Sessions(*service).size(), 1u);
  // A session that is only sent what is new goes on behind what it holds.
  const CollectorPtr named = AskAndWait(*service, Named({{"user", "one"}}, "mine", 8));
  const CollectorPtr more = AskAndWait(*service, Named({{"user", "two"}}, "mine", 8));
  ASSERT_FALSE(more->failed) << more->error.message;
  EXPECT_EQ(more->usage.prompt_tokens,
            1 + 8 + 1 + 1 + 10);  // <|im_start|>user:two<|im_end|><|im_start|>assistant:
  EXPECT_GT(more->usage.position, named->usage.position);
}

TEST(Template, WhatItRefusesIsABadRequestInItsOwnWords) {
  auto service = Serve(With("strict", kStrict));
  Request wrong = Chat({{"user", "a"}, {"wizard", "b"}});
  const CollectorPtr refused = AskAndWait(*service, std::move(wrong));
  ASSERT_TRUE(refused->failed);
  EXPECT_EQ(refused->error.status, 400);
  EXPECT_EQ(refused->error.message, "Roles here are system, user and assistant.");
  EXPECT_EQ(refused->error.param, "messages");
  const CollectorPtr endless = AskAndWait(*service, Chat({{"user", "loop"}}));
  ASSERT_TRUE(endless->failed);
  EXPECT_EQ(endless->error.status, 400);
  EXPECT_NE(endless->error.message.find("steps"), std::string::npos) << endless->error.message;
  EXPECT_FALSE(AskAndWait(*service, Chat({{"user", "fine"}}))->failed);
}

TEST(Template, ToolsArePrintedOrRefused) {
  auto service = Serve(With("plain", kPlain));
  Request r = Chat({{"user", "rain"}}, 4);
  const int64_t without = AskAndWait(*service, Request(r))->usage.prompt_tokens;
  r.tools = kTools;
  const CollectorPtr with = AskAndWait(*service, Request(r));
  ASSERT_FALSE(with->failed) << with->error.message;
  EXPECT_EQ(with->usage.prompt_tokens, without + 2 + 14);  // <|im_start|>tools:weather;<|im_end|>
  EXPECT_EQ(with->usage.cached_tokens, 0) << "another conversation";
  // The answer to a call, on a session that holds the call as text.
  Request named = Named({{"user", "rain"}}, "mine", 4);
  named.tools = kTools;
  EXPECT_FALSE(AskAndWait(*service, Request(named))->failed);
  named.messages = {{"tool", "wet", R"({"tool_call_id": "c1", "name": "weather"})"}};
  const CollectorPtr answered = AskAndWait(*service, Request(named));
  ASSERT_FALSE(answered->failed) << answered->error.message;
  EXPECT_EQ(answered->usage.prompt_tokens, 1 + 8 + 1 + 1 + 10);
  // Other tools cannot be offered later: the template prints them first.
  named.tools = R"([{"type": "function", "function": {"name": "clock"}}])";
  const CollectorPtr others = AskAndWait(*service, Request(named));
  ASSERT_TRUE(others->failed);
  EXPECT_EQ(others->error.status, 400);
  EXPECT_EQ(others->error.param, "tools");

  auto strict = Serve(With("strict", kStrict));
  const CollectorPtr none = AskAndWait(*strict, Request(r));
  ASSERT_TRUE(none->failed);
  EXPECT_EQ(none->error.param, "tools");
  EXPECT_EQ(none->error.code, "unsupported_parameter");
  const CollectorPtr tool = AskAndWait(*strict, Chat({{"user", "a"}, {"assistant", "b"}, {"tool", "c"}}));
  ASSERT_TRUE(tool->failed);
  EXPECT_NE(tool->error.message.find("messages[2]"), std::string::npos) << tool->error.message;
}

// A call is more than its text: histories that differ in it are different conversations.
TEST(Template, CallsArePartOfTheHistory) {
  auto service = Serve(With("plain", kPlain));
  const auto history = [](const std::string& x) {
    return Messages{
        {"user", "q"},
        {"assistant", "",
         R"({"tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": \")" + x + R"(\"}"}}]})"},
        {"tool", "r", R"({"tool_call_id": "1"})"}};
  };
  const CollectorPtr a = AskAndWait(*service, Chat(history("1"), 4)),
                     b = AskAndWait(*service, Chat(history("22"), 4));
  ASSERT_FALSE(a->failed) << a->error.message;
  EXPECT_EQ(b->usage.prompt_tokens, a->usage.prompt_tokens + 1);
  EXPECT_EQ(b->usage.cached_tokens, 0);
}

TEST(Template, ADevelopersMessageKeepsItsRoleWhereThatIsKnown) {
  auto knows = Serve(With("plain", kPlain)), other = Serve(With("strict", kStrict));
  const auto tokens = [](Service& service, const char* role) {
    const CollectorPtr c = AskAndWait(service, Chat({{role, "be"}, {"user", "q"}}, 1));
    EXPECT_FALSE(c->failed) << c->error.message;
    return c->usage.prompt_tokens;
  };
  EXPECT_EQ(tokens(*knows, "developer"), tokens(*knows, "system") + 3);
  EXPECT_EQ(tokens(*other, "developer"), tokens(*other, "system"));
}

TEST(Template, AFormatCanBeForcedAndSoCanTheTemplate) {
  EngineServiceOptions o = With("plain", kPlain);
  o.chat_format = "chatml";
  auto service = Serve(o);
  EXPECT_EQ(service->model().chat_format, "chatml");
  Request r = Chat({{"user", "q"}}, 1);
  r.tools = kTools;
  EXPECT_EQ(AskAndWait(*service, std::move(r))->error.param, "tools");
  o.chat_format = "template";
  EXPECT_EQ(Serve(o)->model().chat_format, "template");
}

}  // namespace
}  // namespace ballast::server
