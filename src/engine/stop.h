// Stop strings over a token stream: they may span tokens, and no byte of one is ever shown.
#ifndef BALLAST_ENGINE_STOP_H_
#define BALLAST_ENGINE_STOP_H_

#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// Invariants: 1. the concatenation of everything returned is the text before the earliest stop string (all of
// it when none occurs); 2. holds back only a suffix that could still become a stop string; 3. pieces passed
// and pieces cut elsewhere give the same text.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);  // empty strings are ignored
  std::string Push(std::string_view text);              // text that may be shown now; "" once stopped
  std::string Finish();  // what was held back, when generation ends without a stop
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_STOP_H_
