// Whole code points out of a stream of token bytes.
#ifndef BALLAST_TEXT_UTF8_H_
#define BALLAST_TEXT_UTF8_H_

#include <string>
#include <string_view>

namespace ballast {

// Invariants: 1. holds back at most 3 bytes; 2. everything it returns is valid UTF-8; 3. each maximal invalid
// subpart becomes one U+FFFD (Unicode 15, table 3-8); 4. valid input passes unchanged, however it is cut.
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);  // what is certain so far
  std::string Finish();                      // the rest: U+FFFD for an unfinished character; then empty again
  size_t held() const { return held_.size(); }

 private:
  std::string held_;
};

bool IsValidUtf8(std::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_TEXT_UTF8_H_
