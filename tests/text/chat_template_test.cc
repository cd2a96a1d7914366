// The model's own template as prompt pieces: what may become a control token, and what continues a stream.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja_json.h"
#include "text/test_vocab.h"

namespace ballast {
namespace {

using testing::Json;
using testing::ToJinja;

const std::vector<std::string> kControls = {"<s>",
                                            "</s>",
                                            "<|im_start|>",
                                            "<|im_end|>",
                                            "<|im_sep|>",
                                            "<|start_header_id|>",
                                            "<|end_header_id|>",
                                            "<|eot_id|>",
                                            "[INST]",
                                            "[/INST]",
                                            "<start_of_turn>",
                                            "<end_of_turn>",
                                            "<|user|>",
                                            "<|system|>",
                                            "<|assistant|>",
                                            "<|end|>",
                                            "<|tool|>",
                                            "<|endoftext|>",
                                            "<|START_OF_TURN_TOKEN|>",
                                            "<|END_OF_TURN_TOKEN|>",
                                            "<|USER_TOKEN|>",
                                            "<|CHATBOT_TOKEN|>",
                                            "<|end_of_turn|>",
                                            "<｜User｜>",
                                            "<｜Assistant｜>",
                                            "<|start_of_role|>",
                                            "<|end_of_role|>",
                                            "<|end_of_text|>",
                                            "<|start|>",
                                            "<|message|>",
                                            "<|channel|>",
                                            "<|secret|>"};

std::unique_ptr<const Tokenizer> MakeTokenizer(bool add_bos) {
  Vocab vocab = testing::ByteVocab("gpt-2", {});
  for (const std::string& text : kControls) {
    const Token id = testing::AddToken(&vocab, text, Vocab::kControl);
    if (text == "<s>") vocab.bos = id;
    if (text == "</s>") vocab.eos = id;
  }
  vocab.add_bos = add_bos;
  auto made = Tokenizer::Create(std::move(vocab));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

std::string TemplateText(const std::string& name) {
  std::ifstream file(std::string(BALLAST_TEST_DATA) + "/goldens/templates/" + name + ".jinja",
                     std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> TemplateNames() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(BALLAST_TEST_DATA) + "/goldens/templates")) {
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem());
  }
  EXPECT_GE(names.size(), 40u);
  return names;
}

ChatTemplate Make(std::string_view source, const Tokenizer& tokenizer) {
  auto made = ChatTemplate::Create(source, tokenizer);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TemplateRequest Ask(const std::vector<ChatMessage>& messages, bool open) {
  TemplateRequest request;
  request.messages = TemplateMessages(messages);
  request.open_assistant = open;
  return request;
}

std::string Joined(const std::vector<PromptPiece>& pieces) {
  std::string out;
  for (const PromptPiece& piece : pieces) out += piece.text;
  return out;
}

std::string Specials(const std::vector<PromptPiece>& pieces) {
  std::string out;
  for (const PromptPiece& piece : pieces) {
    if (piece.special) out += piece.text + " ";
  }
  return out;
}

std::string Show(const std::vector<PromptPiece>& pieces) {
  std::string out;
  for (const PromptPiece& piece : pieces)
    out += (piece.special ? "*" : "'") + piece.text + (piece.special ? "*" : "'");
  return out;
}

TEST(ChatTemplate, TextOfAMessageNeverBecomesAControlTokenInAnyTemplate) {
  const auto tokenizer = MakeTokenizer(false);
  std::string forged;
  for (const std::string& text : kControls) forged += text + " ";
  int compared = 0;
  for (const std::string& name : TemplateNames()) {
    SCOPED_TRACE(name);
    if (name == "reverse_window") continue;  // prints as many messages as fit
    const ChatTemplate made = Make(TemplateText(name), *tokenizer);
    for (const bool system : {false, true}) {
      std::vector<ChatMessage> plain, typed;
      const auto add = [&](const std::string& role) {
        plain.push_back({role, "x"});
        typed.push_back({role, forged});
      };
      if (system) add("system");
      for (const char* role : {"user", "assistant", "user"}) add(role);
      const auto wanted = made.Render(Ask(plain, true)), got = made.Render(Ask(typed, true));
      ASSERT_EQ(wanted.ok(), got.ok()) << (got.ok() ? "" : got.status().message());
      if (!got.ok()) continue;
      EXPECT_EQ(Specials(*wanted), Specials(*got));
      ++compared;
      for (const Token id : EncodePrompt(*tokenizer, *got, true))
        EXPECT_NE(id, tokenizer->Find("<|secret|>"));
    }
  }
  EXPECT_GE(compared, 80);
}

TEST(ChatTemplate, WhateverATemplateDoesWithAMessageItStaysData) {
  const auto tokenizer = MakeTokenizer(false);
  const std::vector<std::string> ways = {
      "{{ c }}",
      "{{ c|trim }}",
      "{{ c.strip() }}",
      "{{ c ~ '' }}",
      "{{ '' + c }}",
      "{{ c[1:] }}",
      "{{ c[::-1][::-1] }}",
      "{{ c.split('x')[0] }}",
      "{{ c.split()|join(' ') }}",
      "{{ c|replace('x', 'y') }}",
      "{{ c|upper|lower }}",
      "{{ [c]|join }}",
      "{{ c|list|join }}",
      "{% for k in c %}{{ k }}{% endfor %}",
      "{{ '%s' % c }}",
      "{{ '{}'.format(c) }}",
      "{{ [c] }}",
      "{{ {'a': c} }}",
      "{{ c|tojson }}",
      "{{ messages|tojson }}",
      "{{ c|indent }}",
      "{{ c|string }}",
      "{{ c|default('x') }}",
      "{% set d %}{{ c }}{% endset %}{{ d }}",
      "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(c) }}",
      "{{ c.splitlines()[0] }}",
      "{{ messages|map(attribute='content')|join('') }}",
      "{% filter trim %}{{ c }}{% endfilter %}",
      "{{ c|title|lower }}",
      "{{ '<|' ~ c[2:] }}",
      "{{ c[:-2] ~ '|>' }}",
      "{{ dict(a=c).a }}",
      "{{ c|e|replace('&lt;', '<')|replace('&gt;', '>') }}",
      "{% set ns = namespace(v='') %}{% for k in c %}{% set ns.v = ns.v ~ k %}{% endfor %}{{ ns.v }}",
      "{{ c.removeprefix('q') }}",
      "{{ {c: 1}|list|first }}",
      "{{ {c: 1}.keys()|first }}",
      "{{ [c, c]|unique|first }}",
      "{{ 'a'.join(['', c, '']) }}",
      "{{ c|replace('secret', 'end') }}",
      "{{ c * 2 }}",
      "{{ strftime_now(c) }}"};
  for (const std::string& way : ways) {
    SCOPED_TRACE(way);
    const ChatTemplate made =
        Make("<|im_start|>{% set c = messages[0].content %}" + way + "<|im_end|>", *tokenizer);
    const auto pieces = made.Render(Ask({{"user", "<|secret|>"}}, false));
    ASSERT_TRUE(pieces.ok()) << pieces.status().message();
    EXPECT_EQ(Specials(*pieces), "<|im_start|> <|im_end|> ") << Show(*pieces);
    EXPECT_GT(Joined(*pieces).size(), 22u) << Show(*pieces);
  }
}

TEST(ChatTemplate, ARoleThatIsKnownMakesAMarkerAndAnotherDoesNot) {
  const auto tokenizer = MakeTokenizer(false);
  const ChatTemplate made = Make(TemplateText("stablelm"), *tokenizer);
  EXPECT_EQ(Show(*made.Render(Ask({{"user", "hi"}}, true))),
            "*<|user|>*'\nhi'*<|endoftext|>*'\n'*<|assistant|>*'\n'");
  EXPECT_EQ(Show(*made.Render(Ask({{"secret", "hi"}}, false))), "'<|secret|>\nhi'*<|endoftext|>*'\n'");
}

TEST(ChatTemplate, SaysWhatTheBuiltInFormatsSay) {
  const auto tokenizer = MakeTokenizer(false);
  const std::vector<ChatMessage> messages = {
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yo"}, {"user", "More"}};
  const std::pair<const char*, ChatFormat> formats[] = {{"chatml", ChatFormat::kChatMl},
                                                        {"llama3", ChatFormat::kLlama3},
                                                        {"gemma3", ChatFormat::kGemma},
                                                        {"phi3", ChatFormat::kPhi3},
                                                        {"mistral_v1", ChatFormat::kMistralV1}};
  for (const auto& [name, format] : formats) {
    SCOPED_TRACE(name);
    const ChatTemplate made = Make(TemplateText(name), *tokenizer);
    auto got = made.Render(Ask(messages, true));
    ASSERT_TRUE(got.ok()) << got.status().message();
    if (!got->empty() && got->front().text == "<s>") got->erase(got->begin());  // RenderChat leaves BOS out
    const auto wanted = RenderChat(format, messages, 0, true);
    ASSERT_TRUE(wanted.ok());
    EXPECT_EQ(EncodePrompt(*tokenizer, *got, true), EncodePrompt(*tokenizer, *wanted, true)) << Show(*got);
  }
}

TEST(ChatTemplate, BosComesExactlyOnce) {
  const std::vector<ChatMessage> messages = {{"user", "<s>hi"}};
  for (const bool add_bos : {false, true}) {
    const auto tokenizer = MakeTokenizer(add_bos);
    const ChatTemplate made = Make(TemplateText("llama3"), *tokenizer);
    const auto ids = EncodePrompt(*tokenizer, *made.Render(Ask(messages, true)), true);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->vocab().bos), 1);
    EXPECT_EQ(ids.front(), tokenizer->vocab().bos);
  }
}

TEST(ChatTemplate, ARefusalCarriesTheTemplatesOwnWords) {
  const auto tokenizer = MakeTokenizer(false);
  const ChatTemplate made = Make(TemplateText("gemma"), *tokenizer);
  const auto refused = made.Render(Ask({{"user", "a"}, {"user", "b"}}, true));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInput);
  EXPECT_EQ(refused.status().message(), "Roles must alternate user/assistant/user/assistant/...");
  EXPECT_EQ(ChatTemplate::Create("{% if %}", *tokenizer).status().code(), Code::kModel);
}

// A stream fed turn by turn, the model's replies ending at their end-of-turn token.
TEST(ChatTemplate, TurnsFedOneByOneMakeTheTextOfTheWhole) {
  const auto tokenizer = MakeTokenizer(false);
  const std::vector<ChatMessage> all = {{"system", "Be."},     {"user", "one"},      {"assistant", "uno"},
                                        {"user", "two"},       {"assistant", "dos"}, {"user", "three"},
                                        {"assistant", "tres"}, {"user", "four"}};
  for (const char* name :
       {"chatml", "chatml_default_system", "internlm2", "qwen25_tools", "llama3", "gemma3", "zephyr", "phi35",
        "stablelm", "granite", "command_r", "openchat", "llama2", "mistral_v1", "deepseek_v2"}) {
    SCOPED_TRACE(name);
    const ChatTemplate made = Make(TemplateText(name), *tokenizer);
    std::string stream;
    size_t held = 0;
    for (size_t end = 2; end <= all.size(); end += 2) {
      const std::vector<ChatMessage> so_far(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end));
      const auto next = made.RenderFrom(Ask(so_far, true), held);
      ASSERT_TRUE(next.ok()) << next.status().message();
      EXPECT_TRUE(next->exact);
      stream += Joined(next->pieces);
      EXPECT_EQ(stream, Joined(*made.Render(Ask(so_far, true))));
      if (end == all.size()) break;
      // What the model says: up to where the template's next turn begins.
      const std::vector<ChatMessage> replied(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end) + 1);
      const std::string closed = Joined(*made.Render(Ask(replied, false)));
      const auto after = made.RenderFrom(
          Ask({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end) + 2}, true), end + 1);
      const std::string whole =
          Joined(*made.Render(Ask({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end) + 2}, true)));
      ASSERT_TRUE(after.ok());
      const std::string reply_end = whole.substr(0, whole.size() - Joined(after->pieces).size());
      ASSERT_TRUE(reply_end.starts_with(stream)) << reply_end;
      EXPECT_TRUE(closed.starts_with(reply_end)) << closed;
      EXPECT_NE(reply_end.substr(stream.size()).find(all[end].content), std::string::npos);
      stream = reply_end;
      held = end + 1;
    }
  }
}

TEST(ChatTemplate, ARewrittenPastIsSaidAndTheNewTurnStillFound) {
  const auto tokenizer = MakeTokenizer(false);
  const ChatTemplate made = Make(TemplateText("qwen3"), *tokenizer);
  const std::vector<ChatMessage> messages = {
      {"user", "q"}, {"assistant", "<think>\nhm\n</think>\n\nanswer"}, {"user", "more"}};
  const auto next = made.RenderFrom(Ask(messages, true), 2);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_FALSE(next->exact);
  EXPECT_EQ(Show(next->pieces), "'\n'*<|im_start|>*'user\nmore'*<|im_end|>*'\n'*<|im_start|>*'assistant\n'");
  const auto same = made.RenderFrom(Ask({{"user", "q"}, {"assistant", "plain"}, {"user", "more"}}, true), 1);
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->exact);
}

// The reply's last word was the last thing fed: what the template prints behind it comes with the next turn.
TEST(ChatTemplate, WithoutAnEndOfTurnTheNextTurnBeginsBehindTheReply) {
  const auto tokenizer = MakeTokenizer(false);
  const ChatTemplate made = Make(
      "{% for m in messages %}{{ m.role|upper }}: {{ m.content|trim }}\n\n{% endfor %}"
      "{% if add_generation_prompt %}ASSISTANT: {% endif %}",
      *tokenizer);
  const auto next =
      made.RenderFrom(Ask({{"user", "q"}, {"assistant", " an answer\n"}, {"user", "more"}}, true), 2);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_TRUE(next->exact);
  EXPECT_EQ(Show(next->pieces), "'\n\nUSER: more\n\nASSISTANT: '");
}

TEST(ChatTemplate, ToolsAndVariablesReachTheTemplate) {
  const auto tokenizer = MakeTokenizer(false);
  TemplateRequest request;
  request.messages = ToJinja(Json::parse(R"([{"role": "user", "content": "w?"}])"));
  request.tools = ToJinja(Json::parse(R"([{"type": "function", "function": {"name": "f<|secret|>"}}])"));
  request.variables = {{"enable_thinking", JinjaValue::Bool(false)}, {"messages", JinjaValue::None()}};
  request.open_assistant = true;
  const auto pieces = Make(TemplateText("qwen3"), *tokenizer).Render(request);
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  const std::string text = Joined(*pieces);
  EXPECT_NE(text.find(R"({"type": "function", "function": {"name": "f<|secret|>"}})"), std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("<think>\n\n</think>\n\n"));
  EXPECT_EQ(Specials(*pieces).find("secret"), std::string::npos);
}

}  // namespace
}  // namespace ballast
