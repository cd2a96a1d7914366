// LineScorer: how surprising each line of a log is to the model that has read all before it.
//
// A line is its bytes and a newline, encoded by itself (control tokens written in it are plain text). Its
// surprise is the sum of -log2 p(token | everything in the window) over its tokens. Thread safety: none; it
// owns the stream's growth. Invariants: 1. what a line gets does not depend on which lines were fed with it,
// beyond float rounding (under --compute fast, flipped roundings). 2. tokens are fed in order, each once.
#ifndef BALLAST_EVAL_LINE_SCORER_H_
#define BALLAST_EVAL_LINE_SCORER_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/stream.h"
#include "text/tokenizer.h"

namespace ballast {

struct LineSurprise {
  double bits = 0;  // of the whole line, its end included
  int64_t tokens = 0;
  double text_bits = 0;  // of the tokens that lie outside the numbers and ids that templates mask
  int64_t text_tokens = 0;
};

struct EncodedLine {
  std::vector<Token> ids;
  std::vector<uint8_t> masked;  // (ids): part of a number or an id
};

class LineScorer {
 public:
  // Both must outlive it. Puts the beginning (BOS, a line end) into an empty stream with the first lines.
  LineScorer(const Tokenizer& tokenizer, Stream& stream) : tokenizer_(tokenizer), stream_(stream) {}

  EncodedLine Encode(std::string_view line) const;
  // Feeds the lines of a batch together; one result for each. Errors are Stream::Append's, and kModel when a
  // surprise is no number.
  Result<std::vector<LineSurprise>> Score(std::span<const EncodedLine> lines);

 private:
  Status Begin();
  const Tokenizer& tokenizer_;
  Stream& stream_;
};

}  // namespace ballast

#endif  // BALLAST_EVAL_LINE_SCORER_H_
