// Regular expressions on UTF-8 text, in time that the text cannot blow up.
//
// Purpose: the one place that talks to PCRE2. Pre-tokenizers come in the dialect of Oniguruma (what Hugging
// Face's tokenizers compiles); FromOniguruma rewrites what PCRE2 reads differently, and refuses what it
// cannot say. Thread safety: Regex is const after Compile; a RegexMatcher belongs to one thread.
// Invariants: 1. a search takes at most a fixed number of steps per byte of its subject, then gives up;
// 2. \s, \w, \d and \h mean what they mean in Oniguruma, whatever PCRE2's tables say.
#ifndef BALLAST_TEXT_REGEX_H_
#define BALLAST_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace ballast {

struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  // A pattern in PCRE2's dialect, with UTF and UCP. kModel when it does not compile.
  static Result<Regex> Compile(std::string_view pattern);
  static Result<Regex> FromOniguruma(std::string_view pattern);

 private:
  friend class RegexMatcher;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// What matching needs besides the pattern; nothing here is shared.
class RegexMatcher {
 public:
  RegexMatcher();
  ~RegexMatcher();
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  // The first match in `text` at or after `from`; `match` is set for an empty one too. REQUIRES: `text` is
  // UTF-8: checking it again on every call would make the whole quadratic.
  enum class Found { kMatch, kEmpty, kNothing, kGaveUp };
  Found Find(const Regex& regex, std::string_view text, size_t from, TextSpan* match);

  // Appends every match in turn. Where the search gives up, one character is left out; a pattern that does so
  // again and again is not searched for to the end.
  void FindAll(const Regex& regex, std::string_view text, std::vector<TextSpan>* matches);

 private:
  int Run(const Regex& regex, std::string_view text, size_t from, uint32_t options);

  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

// Oniguruma's dialect (as Ruby writes it) in PCRE2's. kModel names what cannot be said.
Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace ballast

#endif  // BALLAST_TEXT_REGEX_H_
