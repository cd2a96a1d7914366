// SpecialMatcher: control and user-defined tokens written out in text.
//
// Thread safety: const after Build. Invariants: 1. at each position the longest token wins; 2. a token of the
// user is found whether or not control tokens are looked for; 3. a search costs at most kMaxBytes steps per
// byte of text, and one for a byte that opens no token.
#ifndef BALLAST_TEXT_SPECIAL_MATCHER_H_
#define BALLAST_TEXT_SPECIAL_MATCHER_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ballast {

class SpecialMatcher {
 public:
  static constexpr size_t kMaxBytes = 1024;  // of one token's text; longer ones are refused at load

  struct Entry {
    std::string_view text;  // not empty; must outlive the matcher
    Token id = -1;
    bool control = false;
  };
  struct Match {
    size_t begin = 0;
    size_t bytes = 0;  // 0: no match
    Token id = -1;
  };

  // Of equal texts the first entry wins.
  void Build(std::vector<Entry> entries);
  // The first match at or after `from`.
  Match Find(std::string_view text, size_t from, bool control) const;

 private:
  Match MatchAt(std::string_view text, size_t at, bool control) const;

  std::vector<Entry> entries_;         // sorted by text
  std::array<uint32_t, 257> first_{};  // entries_[first_[b] .. first_[b + 1]) open with byte b
};

}  // namespace ballast

#endif  // BALLAST_TEXT_SPECIAL_MATCHER_H_
