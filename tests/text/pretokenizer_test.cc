#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "test_vocab.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Words(std::string_view name, std::string_view text) {
  auto pre = PreTokenizer::Create(name);
  EXPECT_TRUE(pre.ok()) << pre.status().message();
  std::vector<size_t> ends;
  (*pre)->Split(text, &ends);
  std::vector<std::string> words;
  size_t begin = 0;
  for (const size_t end : ends) {
    EXPECT_GT(end, begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

// Scanners written from the meaning of the expressions, as an oracle for their translation to PCRE2. They
// know these characters only.
struct Char {
  std::string bytes;
  char kind;  // L letter, N number, s space, r line break (a space too), o other
};
const std::vector<Char>& Alphabet() {
  static const std::vector<Char>* const kAlphabet =
      new std::vector<Char>{{"a", 'L'},
                            {"S", 'L'},
                            {"t", 'L'},
                            {"\xC3\xA9", 'L'},
                            {"\xE4\xB8\xAD", 'L'},
                            {"1", 'N'},
                            {"\xD9\xA3", 'N'},
                            {"\xC2\xBD", 'N'},
                            {".", 'o'},
                            {"'", 'o'},
                            {"$", 'o'},
                            {"\xCC\x81", 'o'},
                            {"\xF0\x9F\x98\x80", 'o'},
                            {"\xE2\x80\x8B", 'o'},
                            {"\xE1\xA0\x8E", 'o'},  // U+180E, no white space any more
                            {" ", 's'},
                            {" ", 's'},
                            {"\t", 's'},
                            {"\xC2\xA0", 's'},
                            {"\xE3\x80\x80", 's'},
                            {"\xC2\x85", 's'},
                            {"\n", 'r'},
                            {"\r", 'r'}};
  return *kAlphabet;
}
using Chars = std::vector<Char>;

size_t RunOf(const Chars& text, size_t at, const char* kinds) {
  size_t n = 0;
  while (at + n < text.size() && std::string_view(kinds).find(text[at + n].kind) != std::string_view::npos)
    ++n;
  return n;
}

// Length of 's, 't, ... at `at`; the alphabet has S and t only.
size_t Contraction(const Chars& text, size_t at, bool any_case) {
  if (text[at].bytes != "'" || at + 1 >= text.size()) return 0;
  const std::string& next = text[at + 1].bytes;
  return next == "t" || (any_case && next == "S") ? 2 : 0;
}

// \s+(?!\S)|\s+ : all of a run at the end of the text, else all but its last, else the last.
size_t Spaces(const Chars& text, size_t at) {
  const size_t n = RunOf(text, at, "sr");
  return n > 1 && at + n < text.size() ? n - 1 : n;
}

size_t Gpt2Word(const Chars& text, size_t at) {
  if (const size_t n = Contraction(text, at, false); n > 0) return n;
  const size_t lead = text[at].bytes == " " ? 1 : 0;
  for (const char* kinds : {"L", "N", "o"}) {
    if (const size_t n = RunOf(text, at + lead, kinds); n > 0) return lead + n;
  }
  return Spaces(text, at);
}

size_t Llama3Word(const Chars& text, size_t at, size_t max_digits) {
  if (const size_t n = Contraction(text, at, true); n > 0) return n;
  const size_t lead = text[at].kind == 'o' || text[at].kind == 's' ? 1 : 0;
  if (const size_t n = RunOf(text, at + lead, "L"); n > 0) return lead + n;
  if (const size_t n = RunOf(text, at, "N"); n > 0) return std::min(n, max_digits);
  const size_t space = text[at].bytes == " " ? 1 : 0;
  if (const size_t n = RunOf(text, at + space, "o"); n > 0)
    return space + n + RunOf(text, at + space + n, "r");
  const size_t run = RunOf(text, at, "sr");
  for (size_t n = run; n > 0; --n) {
    if (text[at + n - 1].kind == 'r') return n;  // \s*[\r\n]+
  }
  return Spaces(text, at);
}

template <typename Next>
std::vector<std::string> Scan(const Chars& text, const Next& next) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    std::string word;
    for (size_t n = next(text, at); n > 0; --n) word += text[at++].bytes;
    words.push_back(word);
  }
  return words;
}

// Digits first stand alone, then what lies between them is scanned on its own.
std::vector<std::string> ScanSmolLm(const Chars& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t n = text[at].kind == 'N' ? 1 : RunOf(text, at, "Lsro");
    const Chars part(text.begin() + at, text.begin() + at + n);
    for (const std::string& word : Scan(part, Gpt2Word)) words.push_back(word);
    at += n;
  }
  return words;
}

TEST(PreTokenizerTest, ExpressionsMeanWhatAScannerDoes) {
  std::mt19937 rng(7);
  for (int round = 0; round < 1500; ++round) {
    Chars chars;
    std::string text;
    for (size_t n = rng() % 24; n > 0; --n) {
      chars.push_back(Alphabet()[rng() % Alphabet().size()]);
      text += chars.back().bytes;
    }
    ASSERT_EQ(Words("gpt-2", text), Scan(chars, Gpt2Word)) << text;
    ASSERT_EQ(Words("smollm", text), ScanSmolLm(chars)) << text;
    ASSERT_EQ(Words("llama-bpe", text),
              Scan(chars, [](const Chars& t, size_t at) { return Llama3Word(t, at, 3); }))
        << text;
    ASSERT_EQ(Words("qwen2", text),
              Scan(chars, [](const Chars& t, size_t at) { return Llama3Word(t, at, 1); }))
        << text;
  }
}

TEST(PreTokenizerTest, FamiliesCutAsPublished) {
  const std::string text = "Don't PANIC: 12345 CamelCase\xCC\x81s\n\n  x=1";
  EXPECT_THAT(Words("gpt-2", text), ElementsAre("Don", "'t", " PANIC", ":", " 12345", " CamelCase",
                                                "\xCC\x81", "s", "\n\n ", " x", "=", "1"));
  EXPECT_THAT(Words("smollm", text), ElementsAre("Don", "'t", " PANIC", ":", " ", "1", "2", "3", "4", "5",
                                                 " CamelCase", "\xCC\x81", "s", "\n\n ", " x", "=", "1"));
  EXPECT_THAT(Words("llama-bpe", text), ElementsAre("Don", "'t", " PANIC", ":", " ", "123", "45",
                                                    " CamelCase", "\xCC\x81s", "\n\n", " ", " x", "=", "1"));
  EXPECT_THAT(Words("qwen35", text), ElementsAre("Don", "'t", " PANIC", ":", " ", "1", "2", "3", "4", "5",
                                                 " CamelCase\xCC\x81s", "\n\n", " ", " x", "=", "1"));
  EXPECT_THAT(Words("gpt-4o", text), ElementsAre("Don't", " PANIC", ":", " ", "123", "45", " Camel",
                                                 "Case\xCC\x81s", "\n\n", " ", " x", "=", "1"));
  EXPECT_THAT(Words("tekken", text), ElementsAre("Don", "'t", " PANIC", ":", " ", "1", "2", "3", "4", "5",
                                                 " Camel", "Case\xCC\x81s", "\n\n", " ", " x", "=", "1"));
  EXPECT_THAT(Words("deepseek-v3", "ab中文1234 !x?"), ElementsAre("ab", "中文", "123", "4", " !", "x", "?"));
  EXPECT_THAT(Words("falcon", "a `b` 12345."), ElementsAre("a", " ", "`", "b", "`", " ", "123", "45", "."));
  EXPECT_THAT(Words("bloom", "ab, cd 12"), ElementsAre("ab", ",", " cd", " 12"));
  EXPECT_THAT(Words("default", "a  12345!"), ElementsAre("a", " ", " ", "123", "45", "!"));
}

TEST(PreTokenizerTest, ABrokenStretchIsAWordOfItsOwn) {
  EXPECT_THAT(Words("gpt-2", "ab\xFF\xFE cd\xC3"), ElementsAre("ab", "\xFF\xFE", " cd", "\xC3"));
  EXPECT_THAT(Words("gpt-2", "\xED\xA0\x80"), ElementsAre("\xED\xA0\x80"));  // a surrogate
}

TEST(PreTokenizerTest, EveryKnownOneCoversAnyBytes) {
  std::mt19937 rng(11);
  const std::vector<std::string> parts = {"a", "B", " ", "  ",       "\n",          "\r",
                                          ".", "9", "'", "\xCC\x81", "\xE4\xB8\xAD"};
  for (const std::string& name : KnownPreTokenizers()) {
    for (int round = 0; round < 20; ++round) {
      Words(name, testing::RandomBytes(&rng, 40));
      Words(name, testing::RandomText(&rng, parts, 40));
    }
  }
}

// llama.cpp issue 27783: 26,000 characters of one class overflowed the regex stack. A quadratic expression
// would keep this test busy for minutes.
TEST(PreTokenizerTest, LongRunsOfOneClassStayLinear) {
  const std::vector<std::string> units = {"a",
                                          "A",
                                          "9",
                                          ".",
                                          " ",
                                          "\t",
                                          "\n",
                                          "\r",
                                          "'",
                                          " \n",
                                          "Aa",
                                          "\xCC\x81",
                                          "\xE4\xB8\xAD",
                                          "\xE2\x80\x82",
                                          "\xFF",
                                          "\xC3",
                                          std::string(1, '\0'),
                                          " a"};
  for (const std::string& name : KnownPreTokenizers()) {
    auto pre = PreTokenizer::Create(name);
    ASSERT_TRUE(pre.ok());
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < (32u << 10)) text += unit;
      std::vector<size_t> ends;
      (*pre)->Split(text + "x", &ends);
      ASSERT_EQ(ends.back(), text.size() + 1) << name;
    }
  }
}

// The limit that cuts off a quadratic expression must not strike here: a run stays one word.
TEST(PreTokenizerTest, NoLimitStrikesInAMegabyteOfOneCharacter) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-v3"}) {
    for (const char* unit : {"a", "A", ".", " ", "\n", "\xE4\xB8\xAD"}) {
      std::string text;
      while (text.size() < (1u << 20)) text += unit;
      EXPECT_EQ(Words(name, text).size(), 1u) << name << " " << unit;
    }
  }
}

TEST(PreTokenizerTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto made = PreTokenizer::Create("frobnicate-9000");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kModel);
  EXPECT_THAT(made.status().message(), HasSubstr("'frobnicate-9000'"));
  EXPECT_THAT(made.status().message(), HasSubstr("smollm"));
  EXPECT_THAT(made.status().message(), HasSubstr("qwen2"));
}

}  // namespace
}  // namespace ballast
