// HfPipeline: a tokenizer as Hugging Face's tokenizer.json describes it, as plain facts.
//
// A text passes through: added tokens found in it; the normaliser; more added tokens; the pre-tokenizer,
// which cuts it into words; the model (BPE or Unigram), word by word; and the template, which puts BOS and
// EOS around it. The engine fills this from JSON (text never sees file formats); MakeHfTokenizer runs it.
// Source of the rules: the behaviour of the `tokenizers` package, compared id by id in
// tests/engine/hf_tokenizer_test.cc.
// Thread safety: plain values.
#ifndef BALLAST_TEXT_HF_PIPELINE_H_
#define BALLAST_TEXT_HF_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace ballast {

struct HfPattern {
  std::string text;
  bool regex = false;  // Oniguruma's dialect; else the text itself
};

struct HfNormalizer {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,         // white space at the ends, as left and right say
    kStripAccents,  // every mark
    kReplace,       // each match of `pattern` becomes `content`
    kPrepend,       // `content` before a text that is not empty
    kByteLevel,     // bytes as printable characters
    kNmt,           // control characters away, odd blanks to spaces
  };
  Kind kind = Kind::kNfc;
  HfPattern pattern;
  std::string content;
  bool left = false, right = false;
};

struct HfPreTokenizer {
  enum class Kind : uint8_t {
    kSplit,
    kByteLevel,
    kDigits,
    kMetaspace,
    kWhitespace,       // words and runs of the rest; white space dropped
    kWhitespaceSplit,  // white space dropped
    kPunctuation,
    kBert,       // white space dropped, punctuation on its own
    kDelimiter,  // `pattern` dropped
  };
  enum class Behavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  Kind kind = Kind::kSplit;
  HfPattern pattern;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;                 // kSplit: the pattern matches words, not what separates them
  bool individual = false;             // kDigits: each digit a word
  bool use_regex = true;               // kByteLevel: GPT-2's expression first
  bool add_prefix_space = false;       // kByteLevel
  std::string mark = "\xE2\x96\x81";   // kMetaspace: U+2581, what a space becomes
  Prepend prepend = Prepend::kAlways;  // kMetaspace
  bool split = true;                   // kMetaspace: before each mark
};

struct HfAddedToken {
  std::string text;
  Token id = -1;
  bool special = false;
  bool lstrip = false, rstrip = false;  // takes the white space around it along
  bool single_word = false;             // only where no word character touches it
  bool normalized = false;              // looked for in normalised text
};

struct HfMerge {
  std::string text;  // left, then right
  uint32_t left_bytes = 0;
};

struct HfPipeline {
  enum class Model : uint8_t { kBpe, kUnigram };

  std::vector<HfAddedToken> added;
  std::vector<HfNormalizer> normalizers;
  std::vector<HfPreTokenizer> pre_tokenizers;

  Model model = Model::kBpe;
  std::vector<bool> in_model;   // by id: the model may produce it; false for tokens only added
  std::vector<HfMerge> merges;  // BPE: best first
  std::string word_prefix;      // BPE: before every symbol of a word but the first
  std::string word_suffix;      // BPE: behind a word's last symbol
  bool ignore_merges = false;   // BPE: a word that is a token is that token
  bool byte_fallback = false;   // a character without a token becomes "<0xHH>" tokens
  bool fuse_unk = false;        // neighbouring unknowns are one
  bool has_unk = false;         // vocab.unk stands for what has no token
  std::vector<double> scores;   // Unigram: by id

  std::vector<Token> before, after;  // the template around one text

  // How a token's text becomes bytes again.
  bool decode_bytes = false;                                  // byte-level characters
  bool decode_byte_tokens = false;                            // "<0xHH>"
  std::vector<std::pair<std::string, std::string>> replaced;  // in turn: U+2581 by a space
  std::string decode_suffix;                                  // becomes a space at a word's end
  bool strip_leading_space = false;                           // of the whole text
};

// `vocab`: tokens, special ids, merges and scores left empty. kModel errors name what is wrong.
Result<std::unique_ptr<const Tokenizer>> MakeHfTokenizer(Vocab vocab, HfPipeline pipeline);

}  // namespace ballast

#endif  // BALLAST_TEXT_HF_PIPELINE_H_
