// Tokenizer: bytes to token ids and back.
//
// Purpose: byte-level BPE (GPT-2 kind) and SentencePiece-style BPE with byte fallback, as GGUF files describe
// them. Thread safety: const after Create; Encode and Decode may run from many threads. Invariants:
// 1. Decode(Encode(x)) == x for any bytes the vocabulary can spell, valid UTF-8 or not. (SmolLM2's has no
//    token for 21 of the 256 bytes, among them 0x04 and 0xFF.) Each byte it cannot spell becomes U+FFFD, or
//    its <unk>; text never becomes a control token to make up for a missing byte.
// 2. Encode is linear in the input length up to a log factor, whatever the input.
// 3. BOS is added at most once.
// 4. With parse_special off, Encode yields no control token but the added BOS and EOS.
#ifndef BALLAST_TEXT_TOKENIZER_H_
#define BALLAST_TEXT_TOKENIZER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ballast {

using Token = int32_t;

// Plain description of a vocabulary; the engine fills it from a model file (text never sees file formats).
struct Vocab {
  enum class Kind { kByteLevelBpe, kSentencePieceBpe, kPipeline };  // kPipeline: see hf_pipeline.h
  // As GGUF numbers them.
  enum TokenType : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  Kind kind = Kind::kByteLevelBpe;
  std::string pre;  // pre-tokenizer name: "smollm", "gpt-2", "llama-bpe", "qwen2", ... (byte-level BPE)
  std::vector<std::string> tokens;  // by id, as stored in the file
  // By id; empty means all kNormal. Create mends what files get wrong: byte tokens and BOS, EOS, EOT, UNK and
  // PAD typed as ordinary text, and turn ends ("<|im_end|>") not typed control.
  std::vector<int32_t> types;
  std::vector<float> scores;                               // by id (SentencePiece)
  std::vector<std::string> merges;                         // "left right", best first (byte-level BPE)
  Token bos = -1, eos = -1, eot = -1, unk = -1, pad = -1;  // -1: none
  bool add_bos = false, add_eos = false, add_space_prefix = false;
  std::vector<Token> turn_ends;  // more ids that end a turn
};

class Tokenizer {
 public:
  // kModel errors name what is missing or malformed (unknown pre-tokenizer: names it and lists the known
  // ones).
  static Result<std::unique_ptr<const Tokenizer>> Create(Vocab vocab);
  virtual ~Tokenizer() = default;

  struct EncodeOptions {
    bool add_special =
        false;  // add BOS/EOS as the file says; never a second BOS when the text starts with it
    bool parse_special =
        true;  // control tokens written in the text become their ids; otherwise they are plain text
    bool leading_space =
        true;  // false: `text` continues ordinary text, so add_space_prefix puts no space before it
    // Once true, a long text is left where it is, within a megabyte: what comes back is of no use then.
    const std::atomic<bool>* stop = nullptr;
    bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
  };
  // `text` is any bytes. Appends nothing else.
  virtual std::vector<Token> Encode(std::string_view text, const EncodeOptions& options) const = 0;
  std::vector<Token> Encode(std::string_view text) const { return Encode(text, EncodeOptions{}); }

  // The bytes a token stands for. Control tokens give "" unless `special`; ids out of range give "".
  virtual std::string_view Piece(Token id, bool special = false) const = 0;
  // Concatenated pieces, with the family's leading-space rule undone (add_space_prefix). Control tokens keep
  // their text when `special`.
  virtual std::string Decode(const std::vector<Token>& ids, bool special = true) const = 0;

  virtual int64_t size() const = 0;
  // As given to Create, with mistyped tokens put right (see types).
  virtual const Vocab& vocab() const = 0;
  virtual bool IsControl(Token id) const = 0;
  // True for EOS, EOT and the other tokens that end a turn (<|im_end|>, <|eot_id|>, <end_of_turn>, <|end|>,
  // ...).
  virtual bool EndsTurn(Token id) const = 0;
  // The id whose text, as stored in the file, is exactly `text`, or -1. Of duplicates the first id wins; the
  // others still decode.
  virtual Token Find(std::string_view text) const = 0;
};

// True when models with this pre-tokenizer start with BOS even where the file does not say so (llama-bpe).
bool PreTokenizerImpliesBos(std::string_view pre);

}  // namespace ballast

#endif  // BALLAST_TEXT_TOKENIZER_H_
