// The tokens of a template: text, tags, and what stands inside tags.
//
// White space is controlled as transformers sets it: trim_blocks and lstrip_blocks on, one newline at the end
// of the template dropped, all newlines read as \n; -, + at a tag's edge override. Comments and raw blocks
// are resolved here. Thread safety: a pure function. Invariant: linear in the source.
#ifndef BALLAST_TEXT_JINJA_LEXER_H_
#define BALLAST_TEXT_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ballast {

struct JinjaToken {
  enum class Kind {
    kData,
    kVarBegin,
    kVarEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInt,
    kFloat,
    kOp,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: its value; of numbers: digits without underscores
  int line = 1;
};

// "chat template, line N: ...", a kModel error.
Status JinjaSyntaxError(int line, std::string_view what);

// The last token is kEnd.
Result<std::vector<JinjaToken>> LexJinja(std::string_view source);

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_LEXER_H_
