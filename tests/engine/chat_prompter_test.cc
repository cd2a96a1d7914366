// Turns as tokens: what `chat` and the server share.
#include "engine/chat_prompter.h"

#include <gtest/gtest.h>

#include "engine/load_tokenizer.h"
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

TEST_F(ChatPrompterTest, AFormatIsChosenByNameOrTemplateOrVocabulary) {
  std::string warning;
  EXPECT_EQ(ChooseChatFormat(*file_, *tokenizer_, "gemma", &warning).value(), ChatFormat::kGemma);
  EXPECT_TRUE(warning.empty());
  EXPECT_EQ(ChooseChatFormat(*file_, *tokenizer_, "", &warning).value(), ChatFormat::kChatMl);
  EXPECT_NE(warning.find("no template"), std::string::npos);
  EXPECT_FALSE(ChooseChatFormat(*file_, *tokenizer_, "nonsense", &warning).ok());
}

}  // namespace
}  // namespace ballast
