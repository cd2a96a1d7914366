// Small vocabularies for the tokenizer tests, and the definitions of merging they are checked against.
#ifndef BALLAST_TESTS_TEXT_TEST_VOCAB_H_
#define BALLAST_TESTS_TEXT_TEST_VOCAB_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace ballast::testing {

// GPT-2's printable stand-in for a byte, as UTF-8.
inline std::string ByteChar(int byte) {
  const auto prints = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD); };
  int c = byte;
  if (!prints(byte)) {
    c = 256;
    for (int b = 0; b < byte; ++b) c += prints(b) ? 0 : 1;
  }
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
}

inline Token AddToken(Vocab* vocab, std::string text, Vocab::TokenType type, float score = 0) {
  vocab->tokens.push_back(std::move(text));
  vocab->types.push_back(type);
  if (vocab->kind == Vocab::Kind::kSentencePieceBpe) vocab->scores.push_back(score);
  return static_cast<Token>(vocab->tokens.size()) - 1;
}

// 256 byte tokens (id = byte), then one token per merge.
inline Vocab ByteVocab(std::string pre, const std::vector<std::string>& merges) {
  Vocab vocab;
  vocab.kind = Vocab::Kind::kByteLevelBpe;
  vocab.pre = std::move(pre);
  for (int b = 0; b < 256; ++b) AddToken(&vocab, ByteChar(b), Vocab::kNormal);
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    AddToken(&vocab, joined, Vocab::kNormal);
    vocab.merges.push_back(merge);
  }
  return vocab;
}

// `count` merges of random tokens made of `alphabet`'s bytes.
inline std::vector<std::string> RandomMerges(std::string_view alphabet, int count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<std::string> parts;
  std::set<std::string> known;
  for (const char c : alphabet) {
    parts.push_back(ByteChar(static_cast<uint8_t>(c)));
    known.insert(parts.back());
  }
  std::vector<std::string> merges;
  while (static_cast<int>(merges.size()) < count) {
    const std::string left = parts[rng() % parts.size()], right = parts[rng() % parts.size()];
    if (!known.insert(left + right).second) continue;
    merges.push_back(left + " " + right);
    parts.push_back(left + right);
  }
  return merges;
}

// <unk>, <s>, </s>, 256 byte tokens (id = 3 + byte), then the given tokens with their scores.
inline Vocab SentencePieceVocab(const std::vector<std::pair<std::string, float>>& tokens) {
  Vocab vocab;
  vocab.kind = Vocab::Kind::kSentencePieceBpe;
  vocab.unk = AddToken(&vocab, "<unk>", Vocab::kUnknown);
  vocab.bos = AddToken(&vocab, "<s>", Vocab::kControl);
  vocab.eos = AddToken(&vocab, "</s>", Vocab::kControl);
  for (int b = 0; b < 256; ++b) {
    const char* hex = "0123456789ABCDEF";
    AddToken(&vocab, std::string("<0x") + hex[b / 16] + hex[b % 16] + ">", Vocab::kByte);
  }
  for (const auto& [text, score] : tokens) AddToken(&vocab, text, Vocab::kNormal, score);
  return vocab;
}

inline std::string RandomText(std::mt19937* rng, const std::vector<std::string>& parts, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += parts[(*rng)() % parts.size()];
  return text;
}

inline std::string RandomBytes(std::mt19937* rng, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>((*rng)() & 0xFF);
  return text;
}

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_TEXT_TEST_VOCAB_H_
