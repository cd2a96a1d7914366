// Laws of both kinds of tokenizer, and byte-level BPE.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "test_vocab.h"

namespace ballast {
namespace {

using testing::AddToken;
using testing::ByteChar;
using testing::ByteVocab;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RandomBytes;
using testing::RandomMerges;
using testing::RandomText;
using testing::SentencePieceVocab;

std::unique_ptr<const Tokenizer> Make(Vocab vocab) {
  auto made = Tokenizer::Create(std::move(vocab));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

constexpr Tokenizer::EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr Tokenizer::EncodeOptions kWhole{.add_special = true, .parse_special = true};

// Byte-level, with merges, special tokens and a token of the user.
Vocab ChatVocab(const std::string& pre = "gpt-2") {
  Vocab vocab = ByteVocab(pre, RandomMerges("ab 1\n.\xC3\xA9\xFF", 60, 3));
  vocab.bos = AddToken(&vocab, "<s>", Vocab::kControl);
  vocab.eos = AddToken(&vocab, "<|im_end|>", Vocab::kControl);
  AddToken(&vocab, "<|im_start|>", Vocab::kControl);
  AddToken(&vocab, "<tool>", Vocab::kUserDefined);
  return vocab;
}

// The same words as SentencePiece.
Vocab SpChatVocab(bool space_prefix) {
  Vocab vocab = SentencePieceVocab({{"\xE2\x96\x81", -50},
                                    {"a", -51},
                                    {"b", -52},
                                    {"ab", -1},
                                    {"\xE2\x96\x81"
                                     "a",
                                     -2},
                                    {"\xE2\x96\x81\xE2\x96\x81", -3},
                                    {"b\xE2\x96\x81"
                                     "a",
                                     -4},
                                    {"\xC3\xA9", -5}});
  AddToken(&vocab, "<|im_start|>", Vocab::kControl);
  AddToken(&vocab, "<tool>", Vocab::kUserDefined);
  AddToken(&vocab, "   ", Vocab::kUserDefined);
  vocab.add_space_prefix = space_prefix;
  return vocab;
}

std::vector<Vocab> AllKinds() {
  return {ChatVocab("gpt-2"),  ChatVocab("smollm"), ChatVocab("llama-bpe"),
          ChatVocab("gpt-4o"), SpChatVocab(false),  SpChatVocab(true)};
}

TEST(TokenizerTest, DecodeUndoesEncodeForAnyBytes) {
  const std::vector<std::string> parts = {"a",
                                          "b",
                                          " ",
                                          "ab",
                                          "1",
                                          "\n",
                                          ".",
                                          "\xC3\xA9",
                                          "\xC3",
                                          "\xFF",
                                          "\xE2\x96\x81",
                                          "\xE2\x96",
                                          "<s>",
                                          "<|im_start|>",
                                          "<tool>",
                                          "<0x0A>",
                                          "<unk>",
                                          "<",
                                          "   ",
                                          std::string(1, '\0')};
  std::mt19937 rng(5);
  for (Vocab& vocab : AllKinds()) {
    const auto tokenizer = Make(vocab);
    for (int round = 0; round < 400; ++round) {
      const std::string text =
          round % 2 == 0 ? RandomBytes(&rng, round % 50) : RandomText(&rng, parts, round % 30);
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
      const std::vector<Token> plain = tokenizer->Encode(text, kPlain);
      ASSERT_EQ(tokenizer->Decode(plain), text);
      for (const Token id : plain) ASSERT_FALSE(tokenizer->IsControl(id)) << text;
    }
  }
}

// A megabyte of one character: a quadratic merge step or matcher would need hours.
TEST(TokenizerTest, AMegabyteOfOneCharacterStaysLinear) {
  Vocab bytes = ByteVocab("smollm", {"a a", "aa aa", "aaaa aaaa", ". .", "\xC4\xA0 \xC4\xA0"});
  AddToken(&bytes, "<|im_start|>", Vocab::kControl);
  Vocab sentences = SentencePieceVocab({{"a", -9},
                                        {"aa", -1},
                                        {"aaaa", -2},
                                        {"\xE2\x96\x81", -9},
                                        {"\xE2\x96\x81\xE2\x96\x81", -3},
                                        {"a\xE2\x96\x81", -4}});
  AddToken(&sentences, "<|im_start|>", Vocab::kControl);
  const auto byte_level = Make(bytes), sentence_piece = Make(sentences);
  for (const char* unit : {"a", " ", "7", "\xFF", "<|im_start|"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    EXPECT_TRUE(byte_level->Decode(byte_level->Encode(text)) == text) << unit;
    EXPECT_TRUE(sentence_piece->Decode(sentence_piece->Encode(text)) == text) << unit;
  }
}

TEST(TokenizerTest, EncodeRunsFromManyThreads) {
  for (Vocab& vocab : AllKinds()) {
    const auto tokenizer = Make(vocab);
    std::mt19937 rng(1);
    const std::string text = RandomText(&rng, {"a", "b", " ", "ab", "\n", "<tool>", "\xFF"}, 500);
    const std::vector<Token> expected = tokenizer->Encode(text);
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (int& count : wrong) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) count += tokenizer->Encode(text) == expected ? 0 : 1;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(wrong, ::testing::Each(0));
  }
}

// llama-cpp-python issue 1501: the template wrote BOS and the tokenizer added another.
TEST(TokenizerTest, BosIsAddedAtMostOnce) {
  for (Vocab& vocab : AllKinds()) {
    vocab.add_bos = true;
    const Token bos = vocab.bos;
    const auto tokenizer = Make(vocab);
    const auto count = [&](std::string_view text, const Tokenizer::EncodeOptions& options) {
      const std::vector<Token> ids = tokenizer->Encode(text, options);
      return std::count(ids.begin(), ids.end(), bos);
    };
    EXPECT_EQ(count("ab", kWhole), 1);
    EXPECT_EQ(count("", kWhole), 1);
    EXPECT_EQ(count("<s>ab", kWhole), 1);
    EXPECT_EQ(tokenizer->Encode("<s>ab", kWhole), tokenizer->Encode("ab", kWhole));
    EXPECT_EQ(count("ab", {}), 0);
    EXPECT_EQ(count("<s>ab", {.add_special = true, .parse_special = false}), 1);  // the text's is text
  }
}

TEST(TokenizerTest, EosIsAddedAtMostOnceAndOnlyWhereTheFileSaysSo) {
  Vocab vocab = ChatVocab();
  EXPECT_THAT(Make(vocab)->Encode("", kWhole), IsEmpty());
  vocab.add_eos = true;
  const Token eos = vocab.eos;
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("", kWhole), ElementsAre(eos));
  EXPECT_THAT(tokenizer->Encode("a", kWhole), ElementsAre('a', eos));
  EXPECT_THAT(tokenizer->Encode("a<|im_end|>", kWhole), ElementsAre('a', eos));
}

TEST(TokenizerTest, UserTextNeverBecomesAControlToken) {
  for (Vocab& vocab : AllKinds()) {
    const auto tokenizer = Make(vocab);
    const Token start = tokenizer->Find("<|im_start|>"), tool = tokenizer->Find("<tool>");
    const std::string text = "<|im_start|><tool>";
    EXPECT_THAT(tokenizer->Encode(text), ElementsAre(start, tool));
    const std::vector<Token> plain = tokenizer->Encode(text, kPlain);
    EXPECT_EQ(plain.back(), tool);  // tokens of the user are found all the same
    EXPECT_EQ(std::count(plain.begin(), plain.end(), start), 0);
    EXPECT_EQ(tokenizer->Piece(start), "");
    EXPECT_EQ(tokenizer->Piece(start, true), "<|im_start|>");
    EXPECT_EQ(tokenizer->Decode({start, tool}, false), "<tool>");
  }
}

// Even where merges lead to a control token's text.
TEST(TokenizerTest, MergesNeverMakeAControlToken) {
  Vocab vocab = ByteVocab("gpt-2", {"a b", "ab a"});
  vocab.types[vocab.tokens.size() - 1] = Vocab::kControl;
  EXPECT_THAT(Make(vocab)->Encode("aba", kPlain), ElementsAre(256, 'a'));
  Vocab sentences = SentencePieceVocab({{"a", -3}, {"b", -3}, {"ab", -1}});
  sentences.types.back() = Vocab::kControl;
  EXPECT_THAT(Make(sentences)->Encode("ab", kPlain), ElementsAre(259, 260));
}

// An added token reads as it is stored: one that a merge seems to make would decode to other bytes.
TEST(TokenizerTest, MergesNeverMakeATokenOfOtherBytes) {
  Vocab vocab = ByteVocab("gpt-2", {ByteChar(' ') + " " + ByteChar(' ')});
  vocab.types.back() = Vocab::kUserDefined;
  const auto tokenizer = Make(vocab);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a   ")), "a   ");
}

TEST(TokenizerTest, TheLongestSpecialTokenWins) {
  Vocab vocab = ByteVocab("gpt-2", {});
  const Token shorter = AddToken(&vocab, "<a>", Vocab::kControl);
  const Token longer = AddToken(&vocab, "<a><b>", Vocab::kUserDefined);
  const Token longest = AddToken(&vocab, "<a><b><c>", Vocab::kControl);
  AddToken(&vocab, "<a>", Vocab::kControl);  // a duplicate
  AddToken(&vocab, "", Vocab::kControl);     // never matches
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("<a><b><c><a><b><a>"), ElementsAre(longest, longer, shorter));
  EXPECT_THAT(tokenizer->Encode("<a><b><c>", kPlain), ElementsAre(longer, '<', 'c', '>'));
}

TEST(TokenizerTest, OfEqualTextsTheFirstIdEncodesAndEachDecodes) {
  Vocab vocab = ByteVocab("gpt-2", {"a b"});
  const Token twin = AddToken(&vocab, "ab", Vocab::kNormal);
  const Token empty = AddToken(&vocab, "", Vocab::kNormal);
  const auto tokenizer = Make(vocab);
  EXPECT_EQ(tokenizer->Find("ab"), 256);
  EXPECT_THAT(tokenizer->Encode("ab"), ElementsAre(256));
  EXPECT_EQ(tokenizer->Piece(twin), "ab");
  EXPECT_EQ(tokenizer->Piece(empty), "");
  EXPECT_EQ(tokenizer->Find(""), -1);
  EXPECT_EQ(tokenizer->Find("zzz"), -1);
  EXPECT_EQ(tokenizer->Piece(-1), "");
  EXPECT_EQ(tokenizer->Piece(1 << 30), "");
  EXPECT_EQ(tokenizer->Decode({-5, 'a', 1 << 30}), "a");
}

TEST(TokenizerTest, TurnEndsAreFoundByIdAndByName) {
  Vocab vocab = ChatVocab();
  const Token eot = AddToken(&vocab, "<end_of_turn>", Vocab::kControl);
  const Token eom = AddToken(&vocab, "<|eom_id|>", Vocab::kControl);
  const Token html = AddToken(&vocab, "</s>", Vocab::kUserDefined);  // Gemma's strike-through tag
  const auto tokenizer = Make(vocab);
  for (const Token id : {vocab.eos, eot, eom}) EXPECT_TRUE(tokenizer->EndsTurn(id)) << id;
  for (const Token id : {vocab.bos, html, Token{'a'}, Token{-1}}) EXPECT_FALSE(tokenizer->EndsTurn(id)) << id;
}

// Files type <|im_end|> as ordinary text, or give no types; then it would be printed and never end a turn.
TEST(TokenizerTest, MistypedSpecialTokensStillWork) {
  Vocab vocab = ChatVocab();
  vocab.types.clear();
  const auto tokenizer = Make(vocab);
  EXPECT_TRUE(tokenizer->IsControl(vocab.bos));
  EXPECT_TRUE(tokenizer->EndsTurn(vocab.eos));
  EXPECT_THAT(tokenizer->Encode("<|im_end|>"), ElementsAre(vocab.eos));
  EXPECT_EQ(tokenizer->Piece(vocab.eos), "");
}

// ---- Byte-level BPE ----

// The definition: again and again, the best-ranked neighbours (leftmost among equals) become one.
std::vector<std::string> MergeByDefinition(const Vocab& vocab, std::string_view word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(ByteChar(static_cast<uint8_t>(c)));
  for (;;) {
    size_t best_rank = vocab.merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(vocab.merges.begin(), vocab.merges.end(), parts[i] + " " + parts[i + 1]);
      const size_t rank = found - vocab.merges.begin();
      if (rank < best_rank) best_rank = rank, best_at = i;
    }
    if (best_rank == vocab.merges.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + best_at + 1);
  }
}

TEST(ByteLevelBpeTest, MergesEqualTheDefinition) {
  std::mt19937 rng(9);
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const Vocab vocab = ByteVocab("gpt-2", RandomMerges("abc", 40, seed));
    const auto tokenizer = Make(vocab);
    for (int round = 0; round < 100; ++round) {
      const std::string word = RandomText(&rng, {"a", "b", "c"}, 1 + rng() % 30);
      std::vector<std::string> parts;
      for (const Token id : tokenizer->Encode(word)) parts.push_back(vocab.tokens[id]);
      ASSERT_EQ(parts, MergeByDefinition(vocab, word)) << word;
    }
  }
}

TEST(ByteLevelBpeTest, MergesStayWithinTheWordsOfThePreTokenizer) {
  const std::string space = ByteChar(' ');
  EXPECT_THAT(Make(ByteVocab("gpt-2", {"a " + space, "1 1"}))->Encode("a a11"),
              ElementsAre('a', ' ', 'a', 257));
  EXPECT_THAT(Make(ByteVocab("smollm", {"a " + space, "1 1"}))->Encode("11"), ElementsAre('1', '1'));
}

TEST(ByteLevelBpeTest, OnlySomeFamiliesTakeWholeWordsFirst) {
  for (const auto& [pre, whole] :
       {std::pair{"llama-bpe", true}, {"tekken", true}, {"qwen2", false}, {"gpt-2", false}}) {
    Vocab vocab = ByteVocab(pre, {"a b"});
    const Token word = AddToken(&vocab, "aba", Vocab::kNormal);  // no merge leads here
    if (whole) {
      EXPECT_THAT(Make(vocab)->Encode("aba"), ElementsAre(word)) << pre;
    } else {
      EXPECT_THAT(Make(vocab)->Encode("aba"), ElementsAre(256, 'a')) << pre;
    }
  }
}

// SmolLM2 has no token for 21 bytes. They must not vanish, nor become <|endoftext|>, its UNK.
TEST(ByteLevelBpeTest, BytesWithoutATokenBecomeTheReplacementCharacter) {
  Vocab vocab = ByteVocab("gpt-2", {ByteChar(0xEF) + " " + ByteChar(0xBF)});
  vocab.tokens[0x04] = "no longer a byte";
  vocab.unk = AddToken(&vocab, "<|endoftext|>", Vocab::kControl);
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("a\x04"), ElementsAre('a', 256, 0xBD));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a\x04")), "a\xEF\xBF\xBD");
}

TEST(ByteLevelBpeTest, AddedTokensAreStoredAsTheyRead) {
  Vocab vocab = ByteVocab("gpt-2", {});
  const Token spaces = AddToken(&vocab, "  ", Vocab::kUserDefined);
  const Token foreign = AddToken(&vocab, "\xE4\xB8\xAD", Vocab::kNormal);  // not of the byte table
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("a  b"), ElementsAre('a', spaces, 'b'));
  EXPECT_EQ(tokenizer->Piece(foreign), "\xE4\xB8\xAD");
}

TEST(ByteLevelBpeTest, SpacePrefixMeansNothing) {
  Vocab vocab = ByteVocab("gpt-2", {});
  vocab.add_space_prefix = true;
  const auto tokenizer = Make(vocab);
  EXPECT_THAT(tokenizer->Encode("a"), ElementsAre('a'));
  EXPECT_EQ(tokenizer->Decode({' ', 'a'}), " a");
}

// ---- Refusals ----

struct Bad {
  const char* name;
  std::function<void(Vocab*)> spoil;
  const char* message;
};

TEST(TokenizerTest, BadVocabulariesAreRefusedByName) {
  const std::vector<Bad> cases = {
      {"no tokens",
       [](Vocab* v) {
         *v = Vocab{};
         v->pre = "gpt-2";
       },
       "vocabulary: expected at least one token"},
      {"few types", [](Vocab* v) { v->types.pop_back(); }, "token types: expected one for each of the"},
      {"many types", [](Vocab* v) { v->types.push_back(1); }, "token types: expected one for each of the"},
      {"type 7", [](Vocab* v) { v->types[5] = 7; }, "type of token 5"},
      {"type -1", [](Vocab* v) { v->types[5] = -1; }, "found -1"},
      {"few scores", [](Vocab* v) { v->scores.assign(3, 0); }, "token scores: expected one for each"},
      {"bos", [](Vocab* v) { v->bos = 99999; }, "BOS token id: expected an id below"},
      {"bos -2", [](Vocab* v) { v->bos = -2; }, "BOS token id: expected an id below"},
      {"eos", [](Vocab* v) { v->eos = static_cast<Token>(v->tokens.size()); }, "EOS token id"},
      {"eot", [](Vocab* v) { v->eot = 99999; }, "EOT token id"},
      {"unk", [](Vocab* v) { v->unk = 99999; }, "UNK token id"},
      {"pad", [](Vocab* v) { v->pad = std::numeric_limits<Token>::max(); }, "PAD token id"},
      {"add_bos",
       [](Vocab* v) {
         v->bos = -1;
         v->add_bos = true;
       },
       "add_bos_token is set"},
      {"add_eos",
       [](Vocab* v) {
         v->eos = -1;
         v->add_eos = true;
       },
       "add_eos_token is set"},
      {"pre", [](Vocab* v) { v->pre = "nope"; }, "'nope'"},
      {"merge of one", [](Vocab* v) { v->merges.push_back("a"); }, "expected two tokens with a space"},
      {"merge of none", [](Vocab* v) { v->merges.push_back(""); }, "expected two tokens with a space"},
      {"merge half", [](Vocab* v) { v->merges.push_back("a "); }, "expected two tokens with a space"},
      {"merge left", [](Vocab* v) { v->merges.push_back("zz a"); }, "expected two tokens of the vocabulary"},
      {"merge result", [](Vocab* v) { v->merges.push_back("x y"); }, "join into a token"},
      {"long special", [](Vocab* v) { AddToken(v, std::string(2000, 'x'), Vocab::kControl); },
       "at most 1024 bytes"},
      {"newline in a name", [](Vocab* v) { v->pre = "a\nb"; }, "pre-tokenizer"},
  };
  for (const Bad& bad : cases) {
    Vocab vocab = ChatVocab();
    bad.spoil(&vocab);
    const auto made = Tokenizer::Create(std::move(vocab));
    ASSERT_FALSE(made.ok()) << bad.name;
    EXPECT_EQ(made.status().code(), Code::kModel) << bad.name;
    EXPECT_THAT(made.status().message(), HasSubstr(bad.message)) << bad.name;
    EXPECT_EQ(made.status().message().find('\n'), std::string::npos) << bad.name;
  }
}

}  // namespace
}  // namespace ballast
