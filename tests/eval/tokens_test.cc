// Tokens for an evaluation: a text of any length in pieces, and token files that may hold anything.
#include "eval/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/load_tokenizer.h"
#include "eval_fixture.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Tokenizer* SmolLm2Tokenizer() {
  static std::unique_ptr<const Tokenizer> tokenizer;
  if (tokenizer == nullptr) {
    auto file = TensorFile::Open(BALLAST_MODELS_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!file.ok()) return nullptr;
    auto loaded = LoadTokenizer(*file);
    if (!loaded.ok()) return nullptr;
    tokenizer = std::move(loaded).value();
  }
  return tokenizer.get();
}

// Text with everything that makes a cut dangerous: digits, contractions, runs of blanks, punctuation before
// blanks, line ends, other scripts, special tokens, bytes that are no UTF-8.
std::string AwkwardText() {
  const std::string once =
      "It's 12 o'clock, 2024-03-01; don't   panic.\n\n  Indented line with trailing blanks   \n\tand a tab. "
      "<|im_start|>user\nHello there<|im_end|>\n"
      "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e na\xc3\xafve caf\xc3\xa9 \xf0\x9f\x98\x80 \xff\xfe ok ...  x = "
      "y+z "
      "(see \"this\") the end of it all ";
  std::string text;
  for (int i = 0; i < 40; ++i) text += once + std::to_string(i * 977);
  return text;
}

TEST(TokenizeText, PiecesGiveTheIdsOfTheWhole) {
  const Tokenizer* tokenizer = SmolLm2Tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = AwkwardText();
  const std::vector<Token> whole = tokenizer->Encode(text);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100}, size_t{1000}, text.size()}) {
    EXPECT_EQ(TokenizeText(*tokenizer, text, -1, piece), whole) << "pieces of " << piece;
  }
}

TEST(TokenizeText, LimitKeepsTheFirstTokens) {
  const Tokenizer* tokenizer = SmolLm2Tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = AwkwardText();
  std::vector<Token> first = tokenizer->Encode(text);
  first.resize(100);
  EXPECT_EQ(TokenizeText(*tokenizer, text, 100, 64), first);
  EXPECT_TRUE(TokenizeText(*tokenizer, "", 100).empty());
}

// BOS only where the file asks for it, and never twice.
TEST(TokenizeText, BosAsTheFileSays) {
  Vocab vocab;
  vocab.pre = "gpt-2";
  vocab.tokens = {"<s>", "a", "b", "\u0120"};
  vocab.types = {Vocab::kControl, Vocab::kNormal, Vocab::kNormal, Vocab::kNormal};
  vocab.bos = 0;
  auto plain = Tokenizer::Create(vocab);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_THAT(TokenizeText(**plain, "ab"), ElementsAre(1, 2));
  vocab.add_bos = true;
  auto with_bos = Tokenizer::Create(vocab);
  ASSERT_TRUE(with_bos.ok()) << with_bos.status().message();
  EXPECT_THAT(TokenizeText(**with_bos, "ab"), ElementsAre(0, 1, 2));
  EXPECT_THAT(TokenizeText(**with_bos, "<s>ab"), ElementsAre(0, 1, 2));
  EXPECT_THAT(TokenizeText(**with_bos, "a b a b", -1, 1), ElementsAre(0, 1, 3, 2, 3, 1, 3, 2));
}

TEST(TokenFile, ReadsIdsAndIgnoresTheRest) {
  const auto ids = ParseTokenFile(
      "t.json", R"({"model":"x","nested":{"tokens":[9]},"runs":[[1.5],"s"],"tokens":[3, 0,7],"after":[{}]})",
      8);
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_THAT(*ids, ElementsAre(3, 0, 7));
  const auto limited = ParseTokenFile("t.json", R"({"tokens":[3,0,7]})", 8, 2);
  ASSERT_TRUE(limited.ok());
  EXPECT_THAT(*limited, ElementsAre(3, 0));
}

struct BadFile {
  const char* json;
  const char* message;
};
class BadTokenFile : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadTokenFile, IsRefusedByName) {
  const auto ids = ParseTokenFile("t.json", GetParam().json, 8);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), Code::kInput);
  EXPECT_THAT(ids.status().message(), HasSubstr("t.json: "));
  EXPECT_THAT(ids.status().message(), HasSubstr(GetParam().message));
  EXPECT_EQ(ids.status().message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Gallery, BadTokenFile,
    ::testing::Values(
        BadFile{R"({"tokens":[1,8]})", "tokens[1]: expected an integer in [0, 8), found 8"},
        BadFile{R"({"tokens":[1,2,-3]})", "tokens[2]: expected an integer in [0, 8), found -3"},
        BadFile{R"({"tokens":[18446744073709551615]})",
                "tokens[0]: expected an integer in [0, 8), found 184467"},
        BadFile{R"({"tokens":[4294967297]})", "tokens[0]: expected an integer in [0, 8), found 4294967297"},
        BadFile{R"({"tokens":[1.5]})", "tokens[0]: expected an integer in [0, 8), found 1.5"},
        BadFile{R"({"tokens":[1,"2"]})", "tokens[1]: expected an integer in [0, 8), found a string"},
        BadFile{R"({"tokens":[1,null]})", "tokens[1]: expected an integer in [0, 8), found null"},
        BadFile{R"({"tokens":[[1]]})", "tokens[0]: expected an integer in [0, 8), found an array"},
        BadFile{R"({"tokens":[{}]})", "tokens[0]: expected an integer in [0, 8), found an object"},
        BadFile{R"({"tokens":3})", "expected an object with an array \"tokens\""},
        BadFile{R"([1,2])", "expected an object with an array \"tokens\""},
        BadFile{R"({"tokens":[1],"tokens":[2]})", "expected one array, found two"},
        BadFile{R"({"tokens":[1,)", "expected JSON"}, BadFile{"", "expected JSON"},
        BadFile{"\xff\xfe", "expected JSON"}));

// A deep document must not exhaust the stack.
TEST(TokenFile, DeepNestingIsRefusedCalmly) {
  EXPECT_FALSE(ParseTokenFile("t.json", std::string(1000000, '['), 8).ok());
}

// A sample of one token has nothing to predict. (streaming-llm issue 77)
TEST(Scorable, NeedsTwoTokens) {
  EXPECT_THAT(CheckScorable(1).message(), HasSubstr("nothing to score: expected at least 2 tokens, found 1"));
  EXPECT_EQ(CheckScorable(0).code(), Code::kInput);
  EXPECT_TRUE(CheckScorable(2).ok());
}

TEST(SpanTokens, HandsOutPiecesAgainAfterRewind) {
  const std::vector<Token> ids = {1, 2, 3, 4, 5};
  SpanTokens source(ids);
  for (int round = 0; round < 2; ++round) {
    std::vector<Token> seen;
    for (auto piece = source.Next(2); piece.ok() && !piece->empty(); piece = source.Next(2)) {
      EXPECT_LE(piece->size(), 2u);
      seen.insert(seen.end(), piece->begin(), piece->end());
    }
    EXPECT_EQ(seen, ids);
    source.Rewind();
  }
}

}  // namespace
}  // namespace ballast
