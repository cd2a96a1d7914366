// Turns as tokens: what `chat` and the server share.
#include "engine/chat_prompter.h"

#include <gtest/gtest.h>

#include "engine/choose_chat.h"
#include "engine/load_tokenizer.h"
#include "support/temp_path.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::TinyLlama;
using testing::TinySpec;

class ChatPrompterTest : public ::testing::Test {
 protected:
  ChatPrompterTest() : file_(TensorFile::Open(TinyLlama(Spec()).WriteTemp("prompter"))) {
    tokenizer_ = LoadTokenizer(*file_).value();
  }
  static TinySpec Spec() {
    TinySpec spec;
    spec.layers = 1;
    spec.vocab = 160;
    return spec;
  }
  Result<TensorFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

// A conversation that goes on turn by turn is the conversation rendered in one piece.
TEST_F(ChatPrompterTest, TurnsJoinedAreTheWhole) {
  const ChatPrompter prompter(*tokenizer_, ChatFormat::kChatMl);
  const std::vector<ChatMessage> all = {
      {"system", "be"}, {"user", "one"}, {"assistant", "two"}, {"user", "three"}};
  std::vector<Token> joined = prompter.Render({all.begin(), all.begin() + 2}, 0, true, true).value();
  const std::vector<Token> reply = prompter.EncodeReply("two");
  joined.insert(joined.end(), reply.begin(), reply.end());
  const std::vector<Token> next = prompter.Render(all, 3, true, false).value();
  joined.insert(joined.end(), next.begin(), next.end());
  EXPECT_EQ(joined, prompter.Render(all, 0, true, true).value());
}

TEST_F(ChatPrompterTest, ATurnBeginsAfterTheGapOfTheOneBeforeIt) {
  const ChatPrompter prompter(*tokenizer_, ChatFormat::kChatMl);
  const std::vector<ChatMessage> all = {{"user", "one"}, {"assistant", "two"}, {"user", "three"}};
  EXPECT_EQ(prompter.GapTokens(all, 0), 0);
  EXPECT_EQ(prompter.GapTokens(all, 1), 0) << "no gap before a reply";
  const int64_t gap = prompter.GapTokens(all, 2);
  const std::vector<Token> turn = prompter.Render(all, 2, true, false).value();
  EXPECT_EQ(turn[static_cast<size_t>(gap)], tokenizer_->Find("<|im_start|>"));
}

TEST_F(ChatPrompterTest, SystemTokensAreThoseEveryConversationBeginsWith) {
  const ChatPrompter prompter(*tokenizer_, ChatFormat::kChatMl);
  EXPECT_EQ(prompter.CountSystemTokens("").value(), 0);
  const auto n = static_cast<size_t>(prompter.CountSystemTokens("besilly").value());
  const std::vector<Token> a = prompter.Render({{"system", "besilly"}, {"user", "x"}}, 0, true, true).value();
  const std::vector<Token> b = prompter.Render({{"system", "besilly"}, {"user", "y"}}, 0, true, true).value();
  ASSERT_LT(n, a.size());
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()));
  EXPECT_EQ(a[n], tokenizer_->Find("<|im_start|>"));
}

TEST_F(ChatPrompterTest, OnlyACutReplyIsClosed) {
  const ChatPrompter prompter(*tokenizer_, ChatFormat::kChatMl);
  const Token end = tokenizer_->Find("<|im_end|>");
  EXPECT_EQ(prompter.end_of_turn(), end);
  EXPECT_EQ(prompter.Closing({5, 6}, StopReason::kBudget), end);
  EXPECT_EQ(prompter.Closing({5, 6}, StopReason::kStopString), end);
  EXPECT_EQ(prompter.Closing({}, StopReason::kInterrupted), end);
  EXPECT_FALSE(prompter.Closing({5, end}, StopReason::kEndOfTurn));
}

class ChosenByTemplate : public ChatPrompterTest {
 protected:
  // How a model with this template is talked to.
  Result<ChatPrompter> Choose(const std::string& source, const std::string& name = "") {
    const std::string path = testing::TempPath("chosen.gguf");
    EXPECT_TRUE(TinyLlama(Spec()).Builder().Set("tokenizer.chat_template", source).Write(path));
    file_ = TensorFile::Open(path);
    tokenizer_ = LoadTokenizer(*file_).value();
    warning_.clear();
    return ChooseChat(*file_, *tokenizer_, name, &warning_);
  }
  std::string warning_;
};

TEST_F(ChosenByTemplate, AKnownFormatIsUsedOnlyWhereItPrintsTheSame) {
  const std::string chatml =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(Choose(chatml)->name(), "chatml");
  EXPECT_EQ(Choose(chatml, "template")->name(), "template");
  const auto other = Choose("{{ 'Watch.' }}" + chatml);
  EXPECT_EQ(other->name(), "template");
  EXPECT_EQ(other->end_of_turn(), tokenizer_->Find("<|im_end|>"));
  EXPECT_EQ(warning_, "");
  const std::vector<Token> ids = other->Render({{"user", "q"}}, 0, true, true).value();
  EXPECT_EQ(ids.front(), tokenizer_->Find("W"));
}

TEST_F(ChosenByTemplate, WhatCannotBeRunIsNamedAndReplaced) {
  for (const char* bad : {"{% frob %}", "{{ messages|frobnicate }}", "{{ missing.name }}",
                          "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"}) {
    SCOPED_TRACE(bad);
    const auto chosen = Choose(bad);
    ASSERT_TRUE(chosen.ok()) << chosen.status().message();
    EXPECT_EQ(chosen->name(), "chatml");
    EXPECT_NE(warning_.find("line 1"), std::string::npos) << warning_;
    EXPECT_FALSE(Choose(bad, "template").ok());
  }
  EXPECT_EQ(Choose("{{ raise_exception('No.') }}")->name(), "template") << "it may take other messages";
}

TEST_F(ChosenByTemplate, TurnsJoinedAreTheWhole) {
  const auto prompter = Choose(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
  const std::vector<ChatMessage> all = {
      {"system", "be"}, {"user", "one"}, {"assistant", "two"}, {"user", "three"}};
  std::vector<Token> joined = prompter->Render({all.begin(), all.begin() + 2}, 0, true, true).value();
  EXPECT_EQ(prompter->CountSystemTokens("be").value(), 11);  // <|im_start|>system:be<|im_end|>
  const std::vector<Token> reply = prompter->EncodeReply("two");
  joined.insert(joined.end(), reply.begin(), reply.end());
  const std::vector<Token> next = prompter->Render(all, 3, true, false).value();
  joined.insert(joined.end(), next.begin(), next.end());
  EXPECT_EQ(joined, prompter->Render(all, 0, true, true).value());
}

TEST_F(ChatPrompterTest, AFormatIsChosenByNameOrTemplateOrVocabulary) {
  std::string warning;
  EXPECT_EQ(ChooseChat(*file_, *tokenizer_, "gemma", &warning)->name(), "gemma");
  EXPECT_TRUE(warning.empty());
  EXPECT_EQ(ChooseChat(*file_, *tokenizer_, "", &warning)->name(), "chatml");
  EXPECT_NE(warning.find("no chat template"), std::string::npos);
  EXPECT_FALSE(ChooseChat(*file_, *tokenizer_, "nonsense", &warning).ok());
  EXPECT_FALSE(ChooseChat(*file_, *tokenizer_, "template", &warning).ok()) << "there is none";
}

}  // namespace
}  // namespace ballast
