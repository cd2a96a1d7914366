// PreTokenizer: cuts text into the words that byte-level BPE merges within.
//
// Purpose: each family of vocabularies was trained behind its own regular expressions, and merging across
// their cuts gives ids the model never saw. Thread safety: const after Create; Split may run from many
// threads (match data and JIT stack belong to the call). Invariants: 1. the words cover the text, in order,
// without gaps; 2. cost is linear in the text, whatever it holds: every expression is bounded by a match
// limit in proportion to its subject, and where that would strike the text is cut after one character;
// 3. a stretch that is not UTF-8 is a word of its own.
#ifndef BALLAST_TEXT_PRETOKENIZER_H_
#define BALLAST_TEXT_PRETOKENIZER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ballast {

class PreTokenizer {
 public:
  // kModel when `name` (tokenizer.ggml.pre) is not known; the message lists those that are.
  static Result<std::unique_ptr<const PreTokenizer>> Create(std::string_view name);
  virtual ~PreTokenizer() = default;

  // Appends the end of each word.
  virtual void Split(std::string_view text, std::vector<size_t>* ends) const = 0;
  // True when a word that is a token as a whole is that token, whatever the merges would make of it.
  virtual bool whole_words_first() const = 0;
};

// Every name Create knows, in the order of the table.
std::vector<std::string> KnownPreTokenizers();

}  // namespace ballast

#endif  // BALLAST_TEXT_PRETOKENIZER_H_
