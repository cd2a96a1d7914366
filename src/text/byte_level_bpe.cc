// Byte-level BPE, as GPT-2 introduced it (Radford et al. 2019): text is bytes, each byte is written as a
// printable character, and merges join those within the words of a pre-tokenizer.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "text/byte_table.h"
#include "text/merge_table.h"
#include "text/pair_merger.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_base.h"

namespace ballast {
namespace {

class ByteLevelBpe : public TokenizerBase {
 public:
  explicit ByteLevelBpe(Vocab vocab) : TokenizerBase(std::move(vocab)) {}

  Status Create() {
    BALLAST_ASSIGN_OR_RETURN(pre_, PreTokenizer::Create(vocab_.pre));
    BALLAST_RETURN_IF_ERROR(Init());
    ordinary_.Reset(&vocab_.tokens);
    for (Token id = 0; Valid(id); ++id) {
      if (!IsControl(id) && type(id) != Vocab::kUserDefined) ordinary_.Insert(id);
    }
    FindByteTokens();
    return BuildMerges();
  }

 protected:
  void EncodeText(std::string_view text, bool leading_space, std::vector<Token>* out) const override;

  std::string PieceBytes(Token id) const override {
    const std::string& text = vocab_.tokens[id];
    std::string bytes;
    // Added tokens are stored as they are; so is a text the byte table did not make.
    if (type(id) == Vocab::kUserDefined || !ByteCharsToBytes(text, &bytes)) return text;
    return bytes;
  }

 private:
  void FindByteTokens();
  Status BuildMerges();
  Token WholeWord(std::string_view word, std::string* scratch) const;
  void EncodeWord(std::string_view word, PairMerger* merger, std::vector<Token>* out) const;

  std::unique_ptr<const PreTokenizer> pre_;
  TokenIndex ordinary_;  // tokens that plain text may become
  std::array<Token, 256> byte_tokens_{};
  std::vector<Token> missing_;  // what a byte without a token becomes
  MergeTable merges_;
};

void ByteLevelBpe::FindByteTokens() {
  for (int b = 0; b < 256; ++b) {
    std::string text;
    AppendByteChar(static_cast<uint8_t>(b), &text);
    byte_tokens_[b] = ordinary_.Find(text);
  }
  const Token replacement[] = {byte_tokens_[0xEF], byte_tokens_[0xBF], byte_tokens_[0xBD]};  // U+FFFD
  if (std::find(std::begin(replacement), std::end(replacement), -1) == std::end(replacement)) {
    missing_.assign(std::begin(replacement), std::end(replacement));
  } else if (vocab_.unk >= 0 && type(vocab_.unk) != Vocab::kControl) {
    missing_.assign(1, vocab_.unk);
  }
}

Status ByteLevelBpe::BuildMerges() {
  merges_.Reset(vocab_.merges.size());
  const auto find = [&](std::string_view text) {
    const Token id = ordinary_.Find(text);
    return id >= 0 ? id : all_.Find(text);
  };
  std::string joined;
  for (size_t rank = 0; rank < vocab_.merges.size(); ++rank) {
    const std::string_view merge = vocab_.merges[rank];
    const auto refuse = [&](const char* expected) {
      return Status::Expected(Code::kModel, "merge " + std::to_string(rank), expected,
                              QuoteForMessage(merge));
    };
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return refuse("two tokens with a space between them");
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const Token left_id = find(left), right_id = find(right);
    if (left_id < 0 || right_id < 0) return refuse("two tokens of the vocabulary");
    joined.assign(left).append(right);
    const Token id = find(joined);
    if (id < 0) return refuse("two parts that join into a token of the vocabulary");
    // Plain text never becomes a control token, nor an added token that is stored as it reads and stands for
    // other bytes, even where a merge says so.
    joined.assign(Piece(left_id, true)).append(Piece(right_id, true));
    if (Piece(id, true) == joined && !IsControl(id))
      merges_.Insert(left_id, right_id, static_cast<uint32_t>(rank), id);
  }
  return Status();
}

void ByteLevelBpe::EncodeText(std::string_view text, bool, std::vector<Token>* out) const {
  std::vector<size_t> ends;
  pre_->Split(text, &ends);
  PairMerger merger;
  std::string scratch;
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    const Token whole = pre_->whole_words_first() ? WholeWord(word, &scratch) : -1;
    if (whole >= 0) {
      out->push_back(whole);
    } else {
      EncodeWord(word, &merger, out);
    }
  }
}

Token ByteLevelBpe::WholeWord(std::string_view word, std::string* scratch) const {
  if (word.size() > ordinary_.max_bytes()) return -1;
  scratch->clear();
  for (const char c : word) AppendByteChar(static_cast<uint8_t>(c), scratch);
  return ordinary_.Find(*scratch);
}

void ByteLevelBpe::EncodeWord(std::string_view word, PairMerger* merger, std::vector<Token>* out) const {
  merger->Clear();
  uint32_t at = 0;
  for (const char c : word) {
    const Token id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      merger->Add(at++, 1, id);
    } else {
      for (const Token stand_in : missing_) merger->Add(at++, 1, stand_in);
    }
  }
  merger->Merge([this](const MergeSymbol& left, const MergeSymbol& right, uint32_t* rank, Token* id) {
    return merges_.Find(left.id, right.id, rank, id);
  });
  for (const MergeSymbol& symbol : merger->symbols) {
    if (symbol.bytes > 0) out->push_back(symbol.id);
  }
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> MakeByteLevelBpe(Vocab vocab) {
  auto made = std::make_unique<ByteLevelBpe>(std::move(vocab));
  BALLAST_RETURN_IF_ERROR(made->Create());
  return std::unique_ptr<const Tokenizer>(std::move(made));
}

}  // namespace ballast
