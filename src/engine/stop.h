// Stop strings over a token stream: they may span tokens, and no byte of one is ever shown.
#ifndef BALLAST_ENGINE_STOP_H_
#define BALLAST_ENGINE_STOP_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// Invariants: 1. the concatenation of everything returned is the text before the earliest stop string (all of
// it when none occurs); 2. holds back only a suffix that could still become a stop string; 3. pieces passed
// and pieces cut elsewhere give the same text. 4. Linear in the text: at most two steps per byte and stop
// string, on average.
// "Earliest" is by where a stop begins. When one is complete while a longer one that began before it may yet
// complete, stopped() stays false until that is settled (by more text or by Finish).
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);  // empty strings are ignored
  std::string Push(std::string_view text);              // text that may be shown now; "" once stopped
  std::string Finish();  // what was held back, when generation ends without a stop
  bool stopped() const { return stopped_; }

 private:
  // One stop string and its automaton (Knuth, Morris, Pratt, 1977).
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // [i]: longest proper border of text[0, i]
    size_t matched = 0;          // longest prefix of `text` that the input ends with
    bool found = false;          // its first occurrence is known; later ones cannot be earlier
    void Step(char c);
  };
  // Everything before this may be shown whatever follows. In bytes since the start of the text.
  uint64_t Certain() const;

  std::vector<Pattern> patterns_;
  std::string held_;  // the bytes from shown_ to seen_
  uint64_t shown_ = 0;
  uint64_t seen_ = 0;
  uint64_t cut_ = UINT64_MAX;  // start of the earliest stop found so far
  bool stopped_ = false;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_STOP_H_
