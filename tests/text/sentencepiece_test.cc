// SentencePiece-style BPE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "test_vocab.h"
#include "text/tokenizer.h"

namespace ballast {
namespace {

using testing::AddToken;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RandomText;
using testing::SentencePieceVocab;

const std::string kMark = "\xE2\x96\x81";

std::unique_ptr<const Tokenizer> Make(Vocab vocab) {
  auto made = Tokenizer::Create(std::move(vocab));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

Token ByteToken(int byte) { return 3 + byte; }

// The definition, over the whole text at once: the neighbours whose join scores highest (leftmost among
// equals) become one, until no join is a token. The text is of a, b, c and spaces.
std::vector<std::string> MergeByDefinition(const Vocab& vocab, const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.push_back(c == ' ' ? kMark : std::string(1, c));
  for (;;) {
    float best = -INFINITY;
    size_t best_at = parts.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t id = 259; id < vocab.tokens.size(); ++id) {
        if (vocab.tokens[id] != parts[i] + parts[i + 1] || vocab.scores[id] <= best) continue;
        best = vocab.scores[id];
        best_at = i;
      }
    }
    if (best_at == parts.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + best_at + 1);
  }
}

// Also proves that cutting before spaces changes nothing: some tokens reach across a space here.
TEST(SentencePieceTest, MergesEqualTheDefinition) {
  std::mt19937 rng(4);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::pair<std::string, float>> tokens = {{kMark, -99}, {"a", -99}, {"b", -99}, {"c", -99}};
    std::set<std::string> known = {kMark, "a", "b", "c"};
    while (tokens.size() < 30) {
      const std::string joined = tokens[rng() % tokens.size()].first + tokens[rng() % tokens.size()].first;
      // Few scores, so that ties are common; every third round no token reaches across a space.
      const size_t inner = joined.find(kMark, 1);
      if (round % 3 == 0 && inner != std::string::npos) continue;
      if (known.insert(joined).second) tokens.push_back({joined, -static_cast<float>(rng() % 8)});
    }
    const Vocab vocab = SentencePieceVocab(tokens);
    const auto tokenizer = Make(vocab);
    for (int i = 0; i < 40; ++i) {
      const std::string text = RandomText(&rng, {"a", "b", "c", " "}, 1 + rng() % 20);
      std::vector<std::string> parts;
      for (const Token id : tokenizer->Encode(text)) parts.push_back(vocab.tokens[id]);
      ASSERT_EQ(parts, MergeByDefinition(vocab, text)) << text;
    }
  }
}

TEST(SentencePieceTest, WhatHasNoTokenFallsBackToBytes) {
  const auto tokenizer = Make(SentencePieceVocab({{"a", -1}}));
  EXPECT_THAT(tokenizer->Encode("a\xC3\xA9"), ElementsAre(259, ByteToken(0xC3), ByteToken(0xA9)));
  EXPECT_THAT(tokenizer->Encode(" "), ElementsAre(ByteToken(0x20)));
  EXPECT_EQ(tokenizer->Piece(ByteToken(0x0A)), "\n");
}

// llama.cpp issue 5064: byte tokens typed as ordinary text printed "<0x0A>" for every line break.
TEST(SentencePieceTest, MistypedByteTokensAreBytes) {
  Vocab vocab = SentencePieceVocab({{"a", -1}});
  for (int b = 0; b < 256; ++b) vocab.types[ByteToken(b)] = Vocab::kNormal;
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("\n"), ElementsAre(ByteToken('\n')));
  EXPECT_EQ(tokenizer->Piece(ByteToken('\n')), "\n");
  vocab.types.clear();
  EXPECT_EQ(Make(vocab)->Piece(ByteToken('\n')), "\n");
}

// A user who types "<0x0A>" means six characters.
TEST(SentencePieceTest, TypedByteTokenNamesAreText) {
  const auto tokenizer = Make(SentencePieceVocab({{"<", -1},
                                                  {"0", -1},
                                                  {"<0", -1},
                                                  {"x", -1},
                                                  {"<0x", -1},
                                                  {"A", -1},
                                                  {"0A", -1},
                                                  {">", -1},
                                                  {"<0x0A", -1}}));
  const std::vector<Token> ids = tokenizer->Encode("<0x0A>");
  EXPECT_EQ(tokenizer->Decode(ids), "<0x0A>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ByteToken('\n')), 0);
}

// llama.cpp issue 25969: "<0x-1>" parsed as -1 and wrote before an array.
TEST(SentencePieceTest, MalformedByteTokensAreRefused) {
  for (const char* text :
       {"<0x-1>", "<0x>", "<0x0>", "<0x000>", "<0xG0>", "<0x 1>", "<0x+1>", "0x01", "<0x01", "", "a"}) {
    Vocab vocab = SentencePieceVocab({});
    AddToken(&vocab, text, Vocab::kByte);
    const auto made = Tokenizer::Create(std::move(vocab));
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.status().code(), Code::kModel);
    EXPECT_THAT(made.status().message(), HasSubstr("byte token 259: expected <0xHH> with two hex digits"));
  }
  Vocab vocab = SentencePieceVocab({});
  const Token id = AddToken(&vocab, "<0x-1>", Vocab::kNormal);  // as ordinary text it is harmless
  EXPECT_EQ(Make(vocab)->Piece(id), "<0x-1>");
}

TEST(SentencePieceTest, ALiteralSpaceMarkIsNotASpace) {
  const auto tokenizer = Make(SentencePieceVocab({{kMark, -1}, {"a", -1}, {kMark + "a", 0}}));
  const std::vector<Token> ids = tokenizer->Encode(kMark + "a a");
  EXPECT_THAT(ids, ElementsAre(ByteToken(0xE2), ByteToken(0x96), ByteToken(0x81), 260, 261));
  EXPECT_EQ(tokenizer->Decode(ids), kMark + "a a");
}

TEST(SentencePieceTest, TheSpacePrefixComesAndGoesOnce) {
  Vocab vocab = SentencePieceVocab({{kMark, -9}, {"a", -9}, {kMark + "a", -1}, {kMark + kMark, -2}});
  vocab.add_space_prefix = true;
  const Token tag = AddToken(&vocab, "<tag>", Vocab::kUserDefined);
  const Token mark = 259, a = 260, mark_a = 261, marks = 262;
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode(""), ElementsAre());
  EXPECT_THAT(tokenizer->Encode("a"), ElementsAre(mark_a));
  EXPECT_THAT(tokenizer->Encode(" a"), ElementsAre(mark, mark_a));
  EXPECT_THAT(tokenizer->Encode(" "), ElementsAre(marks));
  EXPECT_THAT(tokenizer->Encode("<s>a"), ElementsAre(vocab.bos, mark_a));
  EXPECT_THAT(tokenizer->Encode("<tag>a"), ElementsAre(tag, a));
  EXPECT_THAT(tokenizer->Encode("a", {.leading_space = false}), ElementsAre(a));
  EXPECT_EQ(tokenizer->Decode({mark_a, mark_a}), "a a");
  EXPECT_EQ(tokenizer->Decode({vocab.bos, mark_a}), "<s>a");
  EXPECT_EQ(tokenizer->Decode({vocab.bos, mark_a}, false), "a");
  EXPECT_EQ(tokenizer->Decode({tag, mark_a}), "<tag> a");
}

// Gemma's runs of spaces and line breaks are tokens of the user: the longest first, before any merge.
TEST(SentencePieceTest, WhitespaceTokensOfTheUserComeFirst) {
  Vocab vocab = SentencePieceVocab({{kMark, -9}, {"a", -9}, {kMark + "a", -1}});
  const Token two = AddToken(&vocab, "  ", Vocab::kUserDefined);
  const Token three =
      AddToken(&vocab, kMark + kMark + kMark, Vocab::kUserDefined);  // as older files write it
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("   a"), ElementsAre(three, 260));
  EXPECT_THAT(tokenizer->Encode("      a"), ElementsAre(three, three, 260));
  EXPECT_THAT(tokenizer->Encode("     a a"), ElementsAre(three, two, 260, 261));
  EXPECT_EQ(tokenizer->Decode({three, two}), "     ");
}

TEST(SentencePieceTest, WithoutByteTokensACharacterIsUnknown) {
  Vocab vocab;
  vocab.kind = Vocab::Kind::kSentencePieceBpe;
  vocab.unk = AddToken(&vocab, "<unk>", Vocab::kUnknown);
  const Token a = AddToken(&vocab, "a", Vocab::kNormal);
  EXPECT_THAT(Make(vocab)->Encode("a\xC3\xA9"
                                  "a"),
              ElementsAre(a, vocab.unk, a));
}

TEST(SentencePieceTest, ScoresMustBeNumbersAndComplete) {
  Vocab vocab = SentencePieceVocab({{"a", NAN}});
  EXPECT_THAT(Tokenizer::Create(vocab).status().message(), HasSubstr("score of token 259 'a'"));
  vocab = SentencePieceVocab({{"a", -INFINITY}});
  EXPECT_TRUE(Tokenizer::Create(vocab).ok());
  vocab.scores.clear();
  EXPECT_THAT(Tokenizer::Create(vocab).status().message(), HasSubstr("token scores: expected one for each"));
}

}  // namespace
}  // namespace ballast
