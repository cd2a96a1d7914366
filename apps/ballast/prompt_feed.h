// TextCutter: token ids of a text that arrives in pieces and may never end.
//
// Invariants: 1. the ids are those of the whole text encoded at once: it is cut only at a line end, and there
// only where the tokenizer gives the same ids for the lines around the cut in one piece and in two.
// Exceptions, each stated where it happens: a line longer than kLongestLine, and Flush. 2. It holds at most
// kLongestLine bytes and one read. 3. BOS comes first, once, when the file asks.
// Thread safety: one thread.
#ifndef BALLAST_APPS_PROMPT_FEED_H_
#define BALLAST_APPS_PROMPT_FEED_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ballast::app {

class TextCutter {
 public:
  static constexpr size_t kLongestLine = 1 << 18;
  explicit TextCutter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Push(std::string_view bytes) { held_ += bytes; }
  // Ids of everything up to the last safe cut.
  std::vector<Token> Take();
  // Ids of all that is held: at the end, or when the source pauses and its text is wanted now.
  std::vector<Token> Flush();
  bool empty() const { return held_.empty(); }

 private:
  size_t SafeCut() const;
  bool CutsCleanly(size_t cut) const;
  std::vector<Token> EncodeContinued(std::string_view text) const;
  std::vector<Token> Encode(std::string_view text);

  const Tokenizer& tokenizer_;
  std::string held_;
  bool begun_ = false;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_PROMPT_FEED_H_
