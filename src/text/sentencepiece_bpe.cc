// SentencePiece-style BPE (Kudo & Richardson 2018) as GGUF's "llama" model stores it: characters are joined
// into tokens by score, a space is written U+2581, and what has no token falls back to bytes.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "text/pair_merger.h"
#include "text/tokenizer_base.h"
#include "text/utf8_scan.h"

namespace ballast {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr Token kNeverMerge = -2;  // id of a symbol that stays bytes: not UTF-8, or a literal U+2581

// The byte that exactly "<0xHH>" names. (A looser parser wrote to index -1 for "<0x-1>".)
std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

// Higher scores first: maps a float to an integer that falls as the float rises.
uint32_t RankOfScore(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes +0
  const uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~rising;
}

class SentencePieceBpe : public TokenizerBase {
 public:
  explicit SentencePieceBpe(Vocab vocab) : TokenizerBase(std::move(vocab)) {}

  Status Create() {
    space_prefix_ = vocab_.add_space_prefix;
    BALLAST_RETURN_IF_ERROR(Init());
    BALLAST_RETURN_IF_ERROR(BuildRanks());
    ordinary_.Reset(&vocab_.tokens);
    for (Token id = 0; Valid(id); ++id) {
      if (type(id) != Vocab::kNormal && type(id) != Vocab::kUnused) continue;
      ordinary_.Insert(id);
      NoteInnerSpaces(vocab_.tokens[id]);
    }
    return Status();
  }

 protected:
  Status FixTypes() override;
  void EncodeText(std::string_view text, bool leading_space, std::vector<Token>* out) const override;
  std::string PieceBytes(Token id) const override;

 private:
  Status BuildRanks();
  void NoteInnerSpaces(std::string_view token);
  void EncodeWord(const std::string& word, const std::vector<bool>& never_merge, PairMerger* merger,
                  std::vector<Token>* out) const;
  void EmitSymbol(const std::string& word, const MergeSymbol& symbol, std::vector<Token>* out) const;
  void EmitBytes(std::string_view bytes, std::vector<Token>* out) const;

  std::array<Token, 256> byte_tokens_{};
  std::vector<uint32_t> ranks_;  // by id
  TokenIndex ordinary_;          // tokens that plain text may be merged into
  // By byte: some token holds a space mark right after this byte, so merges may cross there.
  std::array<bool, 256> space_may_follow_{};
};

// Byte tokens must be exact; those a file types as ordinary text count as byte tokens all the same, or
// "<0x0A>" would be printed instead of a line break.
Status SentencePieceBpe::FixTypes() {
  byte_tokens_.fill(-1);
  for (Token id = 0; Valid(id); ++id) {
    const std::optional<uint8_t> byte = ParseByteToken(vocab_.tokens[id]);
    if (type(id) == Vocab::kByte && !byte.has_value()) {
      return Status::Expected(Code::kModel, "byte token " + std::to_string(id), "<0xHH> with two hex digits",
                              QuoteForMessage(vocab_.tokens[id]));
    }
    if (!byte.has_value()) continue;
    vocab_.types[id] = Vocab::kByte;
    if (byte_tokens_[*byte] < 0) byte_tokens_[*byte] = id;  // of two spellings the first encodes
  }
  return Status();
}

Status SentencePieceBpe::BuildRanks() {
  ranks_.reserve(vocab_.scores.size());
  for (size_t id = 0; id < vocab_.scores.size(); ++id) {
    if (std::isnan(vocab_.scores[id])) {
      return Status::Expected(Code::kModel, "score of " + DescribeToken(vocab_, id), "a number",
                              "not a number");
    }
    ranks_.push_back(RankOfScore(vocab_.scores[id]));
  }
  return Status();
}

void SentencePieceBpe::NoteInnerSpaces(std::string_view token) {
  size_t at = token.find(kSpaceMark, 1);
  for (; at != std::string_view::npos; at = token.find(kSpaceMark, at + 1)) {
    const std::string_view before = token.substr(0, at);
    if (!before.ends_with(kSpaceMark)) space_may_follow_[static_cast<uint8_t>(before.back())] = true;
  }
}

std::string SentencePieceBpe::PieceBytes(Token id) const {
  const std::string& text = vocab_.tokens[id];
  if (type(id) == Vocab::kByte) return std::string(1, static_cast<char>(*ParseByteToken(text)));
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (std::string_view(text).substr(at).starts_with(kSpaceMark)) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

// Cuts before a space wherever no token could reach across, which leaves the ids as they were and the heap
// small, and merges each word.
void SentencePieceBpe::EncodeText(std::string_view text, bool leading_space, std::vector<Token>* out) const {
  PairMerger merger;
  std::string word;               // spaces written as the mark
  std::vector<bool> never_merge;  // by byte of word: opens a symbol that stays bytes
  const auto flush = [&] {
    if (!word.empty()) EncodeWord(word, never_merge, &merger, out);
    word.clear();
    never_merge.clear();
  };
  const auto add = [&](std::string_view bytes, bool stays) {
    never_merge.resize(word.size() + bytes.size(), false);
    never_merge[word.size()] = stays;
    word += bytes;
  };
  if (leading_space && space_prefix_) add(kSpaceMark, false);
  char before = ' ';
  for (size_t at = 0; at < text.size();) {
    const size_t n = Utf8CharBytes(text, at);
    const std::string_view bytes = text.substr(at, n > 0 ? n : 1);
    if (bytes == " ") {
      if (before != ' ' && !space_may_follow_[static_cast<uint8_t>(before)]) flush();
      add(kSpaceMark, false);
    } else {
      add(bytes, n == 0 || bytes == kSpaceMark);
    }
    before = bytes.back();
    at += bytes.size();
  }
  flush();
}

void SentencePieceBpe::EncodeWord(const std::string& word, const std::vector<bool>& never_merge,
                                  PairMerger* merger, std::vector<Token>* out) const {
  merger->Clear();
  for (size_t at = 0; at < word.size();) {
    const size_t n = std::max<size_t>(Utf8CharBytes(word, at), 1);
    merger->Add(static_cast<uint32_t>(at), static_cast<uint32_t>(n), never_merge[at] ? kNeverMerge : -1);
    at += n;
  }
  merger->Merge([&](const MergeSymbol& left, const MergeSymbol& right, uint32_t* rank, Token* id) {
    if (left.id == kNeverMerge || right.id == kNeverMerge) return false;
    *id = ordinary_.Find(std::string_view(word).substr(left.begin, left.bytes + right.bytes));
    if (*id < 0) return false;
    *rank = ranks_[*id];
    return true;
  });
  for (const MergeSymbol& symbol : merger->symbols) {
    if (symbol.bytes > 0) EmitSymbol(word, symbol, out);
  }
}

void SentencePieceBpe::EmitSymbol(const std::string& word, const MergeSymbol& symbol,
                                  std::vector<Token>* out) const {
  const std::string_view bytes = std::string_view(word).substr(symbol.begin, symbol.bytes);
  if (symbol.id == kNeverMerge) return EmitBytes(bytes, out);
  const Token id = symbol.id >= 0 ? symbol.id : ordinary_.Find(bytes);
  if (id >= 0) {
    out->push_back(id);
  } else {
    EmitBytes(bytes == kSpaceMark ? " " : bytes, out);
  }
}

// One character, or one byte that belongs to none.
void SentencePieceBpe::EmitBytes(std::string_view bytes, std::vector<Token>* out) const {
  const size_t before = out->size();
  for (const char c : bytes) {
    const Token id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      out->push_back(id);
      continue;
    }
    // A vocabulary without byte tokens: the whole character is unknown.
    out->resize(before);
    if (vocab_.unk >= 0 && type(vocab_.unk) != Vocab::kControl) {
      out->push_back(vocab_.unk);
    } else if (const Token replacement = ordinary_.Find("\xEF\xBF\xBD"); replacement >= 0) {
      out->push_back(replacement);
    }
    return;
  }
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> MakeSentencePieceBpe(Vocab vocab) {
  auto made = std::make_unique<SentencePieceBpe>(std::move(vocab));
  BALLAST_RETURN_IF_ERROR(made->Create());
  return std::unique_ptr<const Tokenizer>(std::move(made));
}

}  // namespace ballast
