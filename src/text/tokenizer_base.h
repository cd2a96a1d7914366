// TokenizerBase: what both kinds of tokenizer share: the checks of a vocabulary, pieces, special tokens, and
// the BOS and EOS rules. The kinds differ in EncodeText and in how a token's text stands for bytes.
//
// Thread safety: const after Init.
#ifndef BALLAST_TEXT_TOKENIZER_BASE_H_
#define BALLAST_TEXT_TOKENIZER_BASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/special_matcher.h"
#include "text/token_index.h"
#include "text/tokenizer.h"

namespace ballast {

class TokenizerBase : public Tokenizer {
 public:
  std::vector<Token> Encode(std::string_view text, const EncodeOptions& options) const override;
  using Tokenizer::Encode;
  std::string_view Piece(Token id, bool special) const override;
  std::string Decode(const std::vector<Token>& ids, bool special) const override;
  int64_t size() const override { return static_cast<int64_t>(vocab_.tokens.size()); }
  const Vocab& vocab() const override { return vocab_; }
  bool IsControl(Token id) const override { return Valid(id) && (flags_[id] & kIsControl) != 0; }
  bool EndsTurn(Token id) const override { return Valid(id) && (flags_[id] & kEndsTurn) != 0; }
  Token Find(std::string_view text) const override { return all_.Find(text); }

 protected:
  explicit TokenizerBase(Vocab vocab) : vocab_(std::move(vocab)) {}

  // Checks the vocabulary, mends its types and builds everything shared. The kind's own set-up follows.
  Status Init();

  // Appends the ids of `text`, which holds no special tokens. `leading_space`: add_space_prefix applies.
  virtual void EncodeText(std::string_view text, bool leading_space, std::vector<Token>* out) const = 0;
  // The bytes that the stored text of an ordinary or user-defined token stands for.
  virtual std::string PieceBytes(Token id) const = 0;
  // Mends types that only this kind knows to be wrong.
  virtual Status FixTypes() { return Status(); }

  bool Valid(Token id) const { return id >= 0 && id < static_cast<Token>(vocab_.tokens.size()); }
  Vocab::TokenType type(Token id) const { return static_cast<Vocab::TokenType>(vocab_.types[id]); }
  bool adds_space_prefix() const { return space_prefix_; }

  Vocab vocab_;
  TokenIndex all_;             // every token, by stored text
  bool space_prefix_ = false;  // the kind's Create says whether add_space_prefix means anything to it

 private:
  enum Flag : uint8_t { kIsControl = 1, kEndsTurn = 2, kIsUserDefined = 4 };

  Status CheckSizes() const;
  Status CheckIds() const;
  Status CheckTypes();
  void MendSpecialTypes();
  void FindTurnEnds();
  void BuildPieces();
  Status BuildSpecials();

  void EncodePlain(std::string_view text, bool leading_space, const EncodeOptions& options,
                   std::vector<Token>* out) const;

  std::vector<uint8_t> flags_;      // by id
  std::string pieces_;              // all of them, one after another
  std::vector<size_t> piece_ends_;  // by id
  SpecialMatcher specials_;
};

Result<std::unique_ptr<const Tokenizer>> MakeByteLevelBpe(Vocab vocab);
Result<std::unique_ptr<const Tokenizer>> MakeSentencePieceBpe(Vocab vocab);

// Where to cut a long text: at most 16 MiB on, before a space if there is one near, else between characters.
size_t StretchBytes(std::string_view text);

// "token 17" and its text, for messages; long texts are cut, and what is not printable ASCII is escaped.
std::string DescribeToken(const Vocab& vocab, size_t id);
std::string QuoteForMessage(std::string_view text);

}  // namespace ballast

#endif  // BALLAST_TEXT_TOKENIZER_BASE_H_
