// Where evaluated tokens come from: a text or a token file, whatever its length.
//
// Purpose: a text may be longer than anything a context holds, so nothing here keeps it twice: a text is
// tokenised in pieces into ids of 4 bytes each, a token file is parsed without a document tree, and a
// TokenSource hands ids out a piece at a time. Thread safety: none; one reader per source.
#ifndef BALLAST_EVAL_TOKENS_H_
#define BALLAST_EVAL_TOKENS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace ballast {

// Tokens in order, a piece at a time, as often as wanted.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual void Rewind() = 0;
  // The next tokens, at most `most` of them; empty at the end. Valid until the next call. REQUIRES: most
  // >= 1.
  virtual Result<std::span<const Token>> Next(int64_t most) = 0;
};

// Ids that already lie in memory; does not copy them, so they must outlive it.
class SpanTokens : public TokenSource {
 public:
  explicit SpanTokens(std::span<const Token> ids) : ids_(ids) {}
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  void Rewind() override { at_ = 0; }
  Result<std::span<const Token>> Next(int64_t most) override;

 private:
  std::span<const Token> ids_;
  size_t at_ = 0;
};

// The ids of `text` (any bytes), with a BOS in front only when the tokenizer's file asks for one; at most
// `limit` of them (-1: all). The text is encoded in pieces of about `piece_bytes`, cut where a word is
// followed by one blank and another word: no pre-tokenizer joins anything across that place, so the ids are
// those of the whole text (tests/eval/tokens_test.cc). SentencePiece merges may span blanks: there the text
// stays whole.
inline constexpr size_t kPieceBytes = size_t{256} << 10;
std::vector<Token> TokenizeText(const Tokenizer& tokenizer, std::string_view text, int64_t limit = -1,
                                size_t piece_bytes = kPieceBytes);

// {"tokens": [1, 2, ...]} (other keys are ignored), the first `limit` of them (-1: all). kInput names `name`,
// and the index and value of an id outside [0, vocab).
Result<std::vector<Token>> ParseTokenFile(std::string_view name, std::string_view json, int64_t vocab,
                                          int64_t limit = -1);

// kInput "nothing to score" unless there are at least two tokens.
Status CheckScorable(int64_t tokens);

}  // namespace ballast

#endif  // BALLAST_EVAL_TOKENS_H_
