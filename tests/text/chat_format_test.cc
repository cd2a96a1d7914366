#include "text/chat_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "text/template_shape.h"

namespace ballast {
namespace {

using Chat = std::vector<ChatMessage>;

constexpr ChatFormat kAll[] = {ChatFormat::kChatMl,    ChatFormat::kLlama2,        ChatFormat::kLlama3,
                               ChatFormat::kLlama31,   ChatFormat::kMistral,       ChatFormat::kMistralV1,
                               ChatFormat::kMistralV3, ChatFormat::kMistralTekken, ChatFormat::kGemma,
                               ChatFormat::kZephyr,    ChatFormat::kPhi3};

bool Alternates(ChatFormat format) {
  const std::string_view name = ChatFormatName(format);
  return name == "llama2" || name == "gemma" || name.starts_with("mistral");
}

std::string Join(const std::vector<PromptPiece>& pieces) {
  std::string out;
  for (const PromptPiece& piece : pieces) out += piece.text;
  return out;
}

std::string Text(ChatFormat format, const Chat& chat, size_t from, bool open) {
  const auto pieces = RenderChat(format, chat, from, open);
  EXPECT_TRUE(pieces.ok()) << pieces.status().message();
  return pieces.ok() ? Join(*pieces) : "";
}

// The expected texts are what Python's jinja2 printed for the models' own templates (less BOS) with this
// chat.
TEST(ChatFormatTest, RendersWhatTheModelsTemplatePrints) {
  const Chat chat = {
      {"system", "Be brief."}, {"user", " Hi\n"}, {"assistant", " Hello! "}, {"user", "Sum \xE3\x80\x80"}};
  const std::vector<std::pair<ChatFormat, std::string>> expected = {
      {ChatFormat::kChatMl,
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n "
       "Hello! <|im_end|>\n<|im_start|>user\nSum \xE3\x80\x80<|im_end|>\n<|im_start|>assistant\n"},
      {ChatFormat::kLlama2,
       "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Hello! </s><s>[INST] Sum [/INST]"},
      {ChatFormat::kLlama3,
       "<|start_header_id|>system<|end_header_id|>\n\nBe "
       "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<"
       "|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nSum<|eot_id|><|start_"
       "header_id|>assistant<|end_header_id|>\n\n"},
      {ChatFormat::kLlama31,
       "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 "
       "Jul 2024\n\nBe "
       "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<"
       "|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nSum<|eot_id|><|start_"
       "header_id|>assistant<|end_header_id|>\n\n"},
      {ChatFormat::kMistral, "[INST] Be brief.\n\n Hi\n [/INST] Hello! </s>[INST] Sum \xE3\x80\x80 [/INST]"},
      {ChatFormat::kMistralV1,
       " [INST] Be brief.\n\n Hi\n [/INST]  Hello! </s> [INST] Sum \xE3\x80\x80 [/INST]"},
      {ChatFormat::kMistralV3, "[INST] Be brief.\n\n Hi\n[/INST] Hello!</s>[INST] Sum \xE3\x80\x80[/INST]"},
      {ChatFormat::kMistralTekken,
       "[INST]Be brief.\n\n Hi\n[/INST] Hello! </s>[INST]Sum \xE3\x80\x80[/INST]"},
      {ChatFormat::kGemma,
       "<start_of_turn>user\nBe "
       "brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>user\nSum<end_"
       "of_turn>\n<start_of_turn>model\n"},
      {ChatFormat::kZephyr,
       "<|system|>\nBe brief.</s>\n<|user|>\n Hi\n</s>\n<|assistant|>\n Hello! </s>\n<|user|>\nSum "
       "\xE3\x80\x80</s>\n<|assistant|>\n"},
      {ChatFormat::kPhi3,
       "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi\n<|end|>\n<|assistant|>\n Hello! <|end|>\n<|user|>\nSum "
       "\xE3\x80\x80<|end|>\n<|assistant|>\n"},
  };
  ASSERT_EQ(expected.size(), std::size(kAll));
  for (const auto& [format, text] : expected) {
    EXPECT_EQ(Text(format, chat, 0, true), text) << ChatFormatName(format);
  }
}

TEST(ChatFormatTest, RendersAChatWithoutASystemText) {
  const Chat chat = {{"user", "Hi"}};
  const std::vector<std::pair<ChatFormat, std::string>> expected = {
      {ChatFormat::kChatMl, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
      {ChatFormat::kLlama2, "[INST] Hi [/INST]"},
      {ChatFormat::kLlama3,
       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
       "\n\n"},
      {ChatFormat::kLlama31,
       "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 "
       "Jul "
       "2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>"
       "assistant<|end_header_id|>\n\n"},
      {ChatFormat::kMistral, "[INST] Hi [/INST]"},
      {ChatFormat::kMistralV1, " [INST] Hi [/INST]"},
      {ChatFormat::kMistralV3, "[INST] Hi[/INST]"},
      {ChatFormat::kMistralTekken, "[INST]Hi[/INST]"},
      {ChatFormat::kGemma, "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"},
      {ChatFormat::kZephyr, "<|user|>\nHi</s>\n<|assistant|>\n"},
      {ChatFormat::kPhi3, "<|user|>\nHi<|end|>\n<|assistant|>\n"},
  };
  ASSERT_EQ(expected.size(), std::size(kAll));
  for (const auto& [format, text] : expected) {
    EXPECT_EQ(Text(format, chat, 0, true), text) << ChatFormatName(format);
  }
}

// What the model itself says in reply, by the template: white space, the text, the end-of-turn marker.
std::string ReplyText(ChatFormat format, const std::string& content) {
  std::string trimmed = content;
  trimmed.erase(0, trimmed.find_first_not_of(" \n"));
  trimmed.erase(trimmed.find_last_not_of(" \n") + 1);
  switch (format) {
    case ChatFormat::kChatMl:
      return content + "<|im_end|>";
    case ChatFormat::kLlama2:
      return " " + trimmed + " </s>";
    case ChatFormat::kLlama3:
    case ChatFormat::kLlama31:
      return trimmed + "<|eot_id|>";
    case ChatFormat::kMistral:
    case ChatFormat::kMistralTekken:
    case ChatFormat::kZephyr:
      return content + "</s>";
    case ChatFormat::kMistralV1:
      return " " + content + "</s>";
    case ChatFormat::kMistralV3:
      return " " + trimmed + "</s>";
    case ChatFormat::kGemma:
      return trimmed + "<end_of_turn>";
    case ChatFormat::kPhi3:
      return content + "<|end|>";
  }
  return "";
}

Chat RandomChat(ChatFormat format, std::mt19937* rng) {
  const std::vector<std::string> words = {
      "Hi",          "  two ",     "\n",    "<|im_end|>",    "[INST] x [/INST]", "</s><s>",
      "caf\xC3\xA9", "<|user|>\n", "a b c", "<end_of_turn>", "<|eot_id|>",       ""};
  const auto content = [&] {
    std::string out = words[(*rng)() % words.size()];
    return out + words[(*rng)() % words.size()];
  };
  Chat chat;
  if ((*rng)() % 2) chat.push_back({"system", content()});
  const size_t turns = 1 + (*rng)() % 7;
  for (size_t i = 0; i < turns; ++i) chat.push_back({i % 2 ? "assistant" : "user", content()});
  if (!Alternates(format) && (*rng)() % 3 == 0) std::shuffle(chat.begin(), chat.end(), *rng);
  return chat;
}

// The law a stream lives by: it never sees a turn twice, so what it holds after any number of incremental
// calls, with the model's own replies between, is the text of the whole conversation.
TEST(ChatFormatTest, IncrementalRenderingIsTheWholeRendering) {
  std::mt19937 rng(3);
  for (const ChatFormat format : kAll) {
    for (int round = 0; round < 300; ++round) {
      const Chat chat = RandomChat(format, &rng);
      const bool open = Alternates(format) ? chat.back().role == "user" : rng() % 2 == 0;
      const std::string whole = Text(format, chat, 0, open);
      for (size_t k = 1; k <= chat.size(); ++k) {
        const Chat first(chat.begin(), chat.begin() + k);
        ASSERT_EQ(Text(format, first, 0, false) + Text(format, chat, k, open), whole)
            << ChatFormatName(format) << " cut at " << k;
      }
      for (size_t k = 1; k < chat.size(); ++k) {
        if (chat[k].role != "assistant") continue;
        const Chat first(chat.begin(), chat.begin() + k);
        ASSERT_EQ(Text(format, first, 0, true) + ReplyText(format, chat[k].content) +
                      Text(format, chat, k + 1, open),
                  whole)
            << ChatFormatName(format) << " reply " << k;
      }
    }
  }
}

TEST(ChatFormatTest, TurnEndIsWhatEndsAReply) {
  for (const ChatFormat format : kAll) {
    const std::string reply = ReplyText(format, "x");
    EXPECT_TRUE(reply.ends_with(TurnEnd(format))) << ChatFormatName(format);
    EXPECT_EQ(ChatStops(format), std::vector<std::string>{std::string(TurnEnd(format))});
  }
}

// Which pieces are special must not depend on what anyone typed.
TEST(ChatFormatTest, ContentNeverBecomesAMarker) {
  std::mt19937 rng(5);
  const auto markers = [](const std::vector<PromptPiece>& pieces) {
    std::vector<std::string> out;
    for (const PromptPiece& piece : pieces) {
      if (piece.special) out.push_back(piece.text);
    }
    return out;
  };
  for (const ChatFormat format : kAll) {
    for (int round = 0; round < 100; ++round) {
      const Chat chat = RandomChat(format, &rng);
      Chat harmless = chat;
      for (ChatMessage& m : harmless) m.content = "x";
      const bool open = chat.back().role == "user";
      const auto pieces = RenderChat(format, chat, 0, open);
      const auto plain = RenderChat(format, harmless, 0, open);
      ASSERT_TRUE(pieces.ok() && plain.ok());
      ASSERT_EQ(markers(*pieces), markers(*plain));
      for (size_t i = 1; i < pieces->size(); ++i) {
        ASSERT_TRUE((*pieces)[i].special || (*pieces)[i - 1].special);  // plain text is never cut
      }
    }
  }
}

// llama.cpp#11402: two user turns in a row went through malformed.
TEST(ChatFormatTest, RolesAFormatCannotCarryAreRefused) {
  for (const ChatFormat format : kAll) {
    const auto unknown = RenderChat(format, {{"user", "a"}, {"tool\n", "b"}}, 0, false);
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.status().code(), Code::kInput);
    EXPECT_EQ(unknown.status().message(),
              "messages[1].role: expected system, user or assistant, found \"tool?\"");
    const auto twice = RenderChat(format, {{"user", "a"}, {"user", "b"}}, 0, true);
    EXPECT_EQ(twice.ok(), !Alternates(format));
    if (!Alternates(format)) continue;
    EXPECT_EQ(twice.status().code(), Code::kInput);
    EXPECT_EQ(twice.status().message(), "messages[1].role: expected assistant, found user");
    EXPECT_NE(twice.status().hint().find("alternate user/assistant/user/assistant/..."), std::string::npos);
    EXPECT_FALSE(RenderChat(format, {{"assistant", "a"}}, 0, false).ok());
    EXPECT_FALSE(RenderChat(format, {{"user", "a"}, {"system", "b"}}, 0, false).ok());
    EXPECT_FALSE(RenderChat(format, {{"system", "a"}}, 0, true).ok());
    EXPECT_FALSE(RenderChat(format, {}, 0, true).ok());
    EXPECT_EQ(RenderChat(format, {{"user", "a"}, {"assistant", "b"}}, 0, true).status().message(),
              "last message: expected a user turn to reply to, found assistant");
    // An early fault is found even when those messages are already in the stream.
    EXPECT_FALSE(RenderChat(format, {{"user", "a"}, {"user", "b"}, {"user", "c"}}, 2, true).ok());
  }
  EXPECT_EQ(RenderChat(ChatFormat::kChatMl, {{"user", "a"}}, 2, true).status().code(), Code::kInput);
}

TEST(ChatFormatTest, NamesRoundTripAndUnknownOnesListTheKnown) {
  for (const ChatFormat format : kAll) {
    const auto parsed = ParseChatFormat(ChatFormatName(format));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, format);
  }
  const auto unknown = ParseChatFormat("alpaca");
  EXPECT_EQ(unknown.status().code(), Code::kUsage);
  EXPECT_EQ(
      unknown.status().message(),
      "--chat-format: expected one of chatml, llama2, llama3, llama3.1, mistral, mistral-v1, mistral-v3, "
      "mistral-tekken, gemma, zephyr, phi3, or template (the model's own), found \"alpaca\"");
}

// Templates of our own in the shapes that models ship, written with different quotes, tags and spacing.
TEST(ChatFormatTest, DetectsTheShapesModelsShip) {
  const std::vector<std::pair<ChatFormat, std::string>> templates = {
      {ChatFormat::kChatMl,
       "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}"
       "{% endfor %}"},
      {ChatFormat::kChatMl,
       "{%- for m in messages -%}\n  {{- \"<|im_start|>\" ~ m.role ~ \"\\n\" }}\n  {{- m.content }}\n"
       "  {{- \"<|im_end|>\\n\" -}}\n{%- endfor -%}"},
      {ChatFormat::kChatMl,
       "{% for m in messages %}\n{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}\n{% endfor "
       "%}"},
      {ChatFormat::kLlama2,
       "{% for m in messages %}{% if loop.first and sys %}{% set c = '<<SYS>>\\n' + sys + "
       "'\\n<</SYS>>\\n\\n' + "
       "m.content %}{% else %}{% set c = m.content %}{% endif %}{% if m.role == 'user' %}{{ bos_token + "
       "'[INST] ' + c.strip() + ' [/INST]' }}{% else %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}"
       "{% endfor %}"},
      {ChatFormat::kMistral,
       "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' "
       "}}"
       "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"},
      {ChatFormat::kMistralV1,
       "{{- bos_token }}{%- for m in messages %}{%- if m[\"role\"] == \"user\" %}\n    {{- \" [INST] \" + "
       "m[\"content\"] + \" [/INST]\" }}\n{%- else %}{{- \" \" + m[\"content\"] + eos_token}}{%- endif %}"
       "{%- endfor %}"},
      {ChatFormat::kMistralV3,
       "{{- bos_token }}{%- for m in messages %}{%- if m[\"role\"] == \"user\" %}{%- if loop.last and sys "
       "%}\n"
       "    {{- \"[INST] \" + sys + \"\\n\\n\" + m[\"content\"] + \"[/INST]\" }}{%- else %}\n    {{- "
       "\"[INST] \" "
       "+ m[\"content\"] + \"[/INST]\" }}{%- endif %}{%- else %}{{- \" \" + m[\"content\"]|trim + eos_token}}"
       "{%- endif %}{%- endfor %}"},
      {ChatFormat::kMistralTekken,
       "{{- bos_token }}{%- for m in messages %}{%- if m.role == \"user\" %}\n  {{- \"[INST]\" }}\n  {%- if "
       "loop.last and sys %}\n    {{- sys + \"\\n\\n\" }}\n  {%- endif %}\n  {{- m.content + \"[/INST]\" }}"
       "{%- else %}{{- m.content + eos_token }}{%- endif %}{%- endfor %}"},
      {ChatFormat::kLlama3,
       "{% for m in messages %}{% set c = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'+ "
       "m['content'] | trim + '<|eot_id|>' %}{{ c }}{% endfor %}"},
      {ChatFormat::kLlama31,
       "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n{{- \"Cutting Knowledge Date: December "
       "2023\\n\" }}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}{{- \"<|eot_id|>\" }}{%- for m in "
       "messages %}{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'+ m['content'] | trim + "
       "'<|eot_id|>' }}{%- endfor %}"},
      {ChatFormat::kGemma,
       "{% for m in messages %}{% if m.role == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = "
       "m.role %}{% endif %}{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}"
       "{% endfor %}"},
      {ChatFormat::kGemma,
       "{%- for m in messages -%}{%- if (m['role'] == 'assistant') -%}{%- set role = \"model\" -%}{%- endif "
       "-%}\n"
       "    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else \"\") }}\n    {{ m['content'] | "
       "trim }}\n    {{ '<end_of_turn>\\n' }}\n{%- endfor -%}"},
      {ChatFormat::kZephyr,
       "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token "
       "}}\n"
       "{% endif %}\n{% endfor %}"},
      {ChatFormat::kPhi3,
       "{% for m in messages %}{% if m.role == 'user' %}{{'<|user|>' + '\n' + m.content + '<|end|>' + '\n'}}"
       "{% endif %}{% endfor %}"},
      {ChatFormat::kPhi3,
       "{% for m in messages %}{{'<|' + m.role + '|>' + '\\n' + m.content + '<|end|>\\n' }}{% endfor %}"},
  };
  for (const auto& [format, text] : templates) {
    const auto found = DetectChatFormat(text);
    ASSERT_TRUE(found.has_value()) << text;
    EXPECT_EQ(ChatFormatName(*found), ChatFormatName(format)) << text;
  }
}

// Each shares its strings with a known format but prints something else. Guessing would feed a model turns it
// was never trained on, silently.
TEST(ChatFormatTest, LookAlikesAreNotGuessed) {
  const std::pair<const char*, const char*> templates[] = {
      {"header ends with a marker",
       "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}"},
      {"no newline after the role", "{{ '<|im_start|>' + m.role + ': ' + m.content + '<|im_end|>\\n' }}"},
      {"system turn with today's date",
       "{{ '<|im_start|>system\\n' + strftime_now('%d') }}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
       "'<|im_end|>\\n' }}"},
      {"one newline after the header",
       "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n' + m.content + '<|eot_id|>' }}"},
      {"assistant not renamed", "{{ '<start_of_turn>' + m.role + '\\n' + m.content + '<end_of_turn>\\n' }}"},
      {"BOS only once",
       "{{ bos_token }}{% set c = '<<SYS>>\\n' + s + '\\n<</SYS>>\\n\\n' + m.content %}{{ '[INST] ' + "
       "c.strip() "
       "+ ' [/INST]' }}"},
      {"content not stripped",
       "{{ bos_token + '[INST] ' + '<<SYS>>\\n' + s + '\\n<</SYS>>\\n\\n' + m.content + ' [/INST]' }}"},
      {"system prompt marker",
       "{{ '[SYSTEM_PROMPT] ' + s + '[/SYSTEM_PROMPT]' }}{{ '[INST] ' + m.content + '[/INST]' }}"},
      {"user turn ends with a newline",
       "{% if m.role == 'user' %}{{ '<|user|>\\n' + m.content + '\\n' }}{% else %}{{ '<|assistant|>\\n' + "
       "m.content + eos_token }}{% endif %}"},
      {"user turn does not end",
       "{% if m.role == 'user' %}<|user|>\n{{ m.content }}{% endif %}<|assistant|>"},
      {"no newline after the marker", "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}"},
      {"space for a newline", "{{ '<|' + m.role + '|>' + '\\n' + m.content + '<|end|> ' }}"},
      {"only in a comment", "{# '<|im_start|>' + role + '\\n' ... '<|im_end|>\\n' #}{{ m.content }}"},
      {"words of a known one", "chatml <|im_start|> <|im_end|>"},
      {"empty", ""},
      {"unclosed", "{{ '<|im_start|>"},
  };
  for (const auto& [why, text] : templates) {
    const auto found = DetectChatFormat(text);
    EXPECT_FALSE(found.has_value()) << why << ": taken for " << (found ? ChatFormatName(*found) : "");
  }
}

TEST(ChatFormatTest, DefaultSystemTextIsTheTemplatesOwn) {
  const std::string given = "{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}";
  const std::string own = "{{ \"<|im_start|>system\\nDon't panic.<|im_end|>\\n\" }}";
  EXPECT_EQ(DefaultSystemText(ChatFormat::kChatMl, given), "");
  EXPECT_EQ(DefaultSystemText(ChatFormat::kChatMl, given + own), "Don't panic.");
  EXPECT_EQ(DefaultSystemText(ChatFormat::kChatMl, "{{ '<|im_start|>system\\n<|im_end|>\\n' }}"), "");
  EXPECT_EQ(DefaultSystemText(ChatFormat::kPhi3, "{{ '<|system|>\\nBe kind.<|end|>\\n' }}"), "Be kind.");
  EXPECT_EQ(DefaultSystemText(ChatFormat::kGemma, own), "");
  EXPECT_EQ(DefaultSystemText(ChatFormat::kChatMl, ""), "");
}

// Reads one string out of a GGUF header by searching for its key: enough for a test that may not use formats.
std::string MetadataString(const std::string& path, const std::string& key) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::string head(8 << 20, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  const size_t at = head.find(key);
  if (at == std::string::npos) return "";
  const auto number = [&](size_t from, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(head.at(from + i));
    return value;
  };
  const size_t type = at + key.size();
  EXPECT_EQ(number(type, 4), 8u);  // a string
  return head.substr(type + 12, number(type + 4, 8));
}

TEST(ChatFormatTest, SmolLm2sOwnTemplate) {
  const std::string text =
      MetadataString(BALLAST_MODELS_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf", "tokenizer.chat_template");
  if (text.empty()) GTEST_SKIP() << "the model is not here";
  EXPECT_EQ(DetectChatFormat(text), ChatFormat::kChatMl);
  EXPECT_EQ(DefaultSystemText(ChatFormat::kChatMl, text),
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
}

TEST(TemplateShapeTest, WritingDoesNotMatter) {
  const char* same[] = {"{{ 'a' + m['x'] + 'b' }}",
                        "{{'a'~m.x~'b'}}",
                        "a{{ m.x }}b",
                        "{{ \"a\" }}{{ m[\"x\"] }}{{ 'b' }}",
                        "  \n {{- 'a' -}} \n {{- m.x -}} \n b",
                        "{# c #}\n{{ 'a' + m.x + 'b' }}"};
  for (const char* text : same) {
    const TemplateShape shape(text);
    EXPECT_TRUE(shape.Has("`a'm.x`b'")) << text;
    EXPECT_TRUE(shape.Has("a'*`b")) << text;
    EXPECT_FALSE(shape.Has("ab")) << text;
  }
  // Block tags take the white space of their lines along, printed values do not.
  EXPECT_TRUE(TemplateShape("{% if x %}\n  {% if y %}\na").Has("%}{%ify%}`a'"));
  EXPECT_TRUE(TemplateShape("{{ x }}\n  {{ y }}").Has("x`\n  'y"));
  EXPECT_TRUE(TemplateShape("{{ 'it\\'s' }}").Between("it", "s").has_value());
}

// A template is part of a model file, so anyone's: any bytes are read, in linear time.
TEST(TemplateShapeTest, HostileTemplates) {
  std::mt19937 rng(9);
  const std::string parts[] = {"{{",
                               "}}",
                               "{%",
                               "%}",
                               "{#",
                               "#}",
                               "'",
                               "\"",
                               "\\",
                               "-",
                               "+",
                               "\n",
                               " ",
                               "[",
                               "]",
                               "a",
                               "<|im_start|>",
                               "[INST]",
                               "\x01",
                               "\x02",
                               std::string(1, '\0'),
                               "\xFF"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t n = rng() % 60; n > 0; --n) text += parts[rng() % std::size(parts)];
    (void)DetectChatFormat(text);
    for (const ChatFormat format : kAll) (void)DefaultSystemText(format, text);
  }
  std::string many, tags;
  for (int i = 0; i < 100000; ++i) many += "<|im_start|>system\n", tags += "{{a}}<|im_start|>{{b}}";
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text :
       {many, "{{ '" + many, tags, std::string(2000000, '{'), std::string(2000000, '+')}) {
    EXPECT_FALSE(DetectChatFormat(text).has_value());
    EXPECT_EQ(DefaultSystemText(ChatFormat::kChatMl, text), "");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // quadratic takes hours
}

// One id per byte, and per marker it knows from 1000 up.
class FakeTokenizer : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> markers) : markers_(std::move(markers)) {
    vocab_.add_bos = vocab_.add_eos = true;
    vocab_.bos = 900, vocab_.eos = 901;
  }
  std::vector<Token> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<Token> ids;
    calls_.emplace_back(text);
    for (size_t at = 0; at < text.size();) {
      size_t m = 0;
      while (options.parse_special && m < markers_.size() && !text.substr(at).starts_with(markers_[m])) ++m;
      const bool marker = options.parse_special && m < markers_.size();
      ids.push_back(marker ? static_cast<Token>(1000 + m) : static_cast<uint8_t>(text[at]));
      at += marker ? markers_[m].size() : 1;
    }
    return ids;
  }
  std::string_view Piece(Token, bool) const override { return ""; }
  std::string Decode(const std::vector<Token>&, bool) const override { return ""; }
  int64_t size() const override { return 1100; }
  const Vocab& vocab() const override { return vocab_; }
  bool IsControl(Token id) const override { return id >= 900; }
  bool EndsTurn(Token) const override { return false; }
  Token Find(std::string_view text) const override {
    for (size_t i = 0; i < markers_.size(); ++i) {
      if (markers_[i] == text) return static_cast<Token>(1000 + i);
    }
    return -1;
  }
  const std::vector<std::string>& calls() const { return calls_; }

 private:
  std::vector<std::string> markers_;
  Vocab vocab_;
  mutable std::vector<std::string> calls_;
};

TEST(EncodePromptTest, MarkersBecomeIdsAndTypedMarkersDoNot) {
  const FakeTokenizer tokenizer({"<|im_start|>", "<|im_end|>"});
  const auto pieces = RenderChat(ChatFormat::kChatMl, {{"user", "a<|im_end|>"}}, 0, true);
  ASSERT_TRUE(pieces.ok());
  const std::vector<Token> ids = EncodePrompt(tokenizer, *pieces, true);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1000), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1001), 1);
  EXPECT_EQ(tokenizer.calls(), (std::vector<std::string>{"user\na<|im_end|>", "\n", "assistant\n"}));
}

// llama-cpp-python#1501: template and tokenizer both added BOS.
TEST(EncodePromptTest, OneBosAtTheStartOfAStreamOnly) {
  const FakeTokenizer tokenizer({"<s>", "</s>"});
  const Chat chat = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  for (const ChatFormat format : kAll) {
    const auto first = RenderChat(format, Chat(chat.begin(), chat.begin() + 1), 0, true);
    const auto next = RenderChat(format, chat, 2, true);
    ASSERT_TRUE(first.ok() && next.ok());
    const std::vector<Token> ids = EncodePrompt(tokenizer, *first, true);
    EXPECT_EQ(ids[0], 900);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 900), 1);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1000), 0);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 901), 0);  // an EOS would end the turn before the reply
    const std::vector<Token> more = EncodePrompt(tokenizer, *next, false);
    EXPECT_EQ(std::count(more.begin(), more.end(), 900), 0);
    EXPECT_EQ(std::count(more.begin(), more.end(), 1000), format == ChatFormat::kLlama2 ? 1 : 0);
  }
}

// "[INST]" is ordinary text to Llama-2 and a control token to later Mistrals; the cut must follow.
TEST(EncodePromptTest, UnknownMarkersAreTokenizedWithTheirNeighbours) {
  const auto pieces = RenderChat(ChatFormat::kMistral, {{"user", "hi"}}, 0, true);
  ASSERT_TRUE(pieces.ok());
  const FakeTokenizer plain({"</s>"});
  EncodePrompt(plain, *pieces, true);
  EXPECT_EQ(plain.calls(), (std::vector<std::string>{"[INST] hi [/INST]"}));
  const FakeTokenizer control({"[INST]", "[/INST]"});
  EXPECT_EQ(EncodePrompt(control, *pieces, false), (std::vector<Token>{1000, ' ', 'h', 'i', ' ', 1001}));
}

}  // namespace
}  // namespace ballast
