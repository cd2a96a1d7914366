// WordModel: how unusual the words of a log's line are after those before them, learnt from the log alone.
//
// A line is cut into words, masked as in templates, and single other characters, blanks left out. For each,
// after the two, the one or none before it, the longest of these contexts that was seen kLeast times decides:
// n words followed it so far, k of them different, this one c times. Its cost is log2((n + k) / max(c, k)): a
// word never seen costs much where few different ones come, little where ever new ones do (the escape of PPM
// method C, Moffat 1990). A number of up to three digits is also judged as itself, so that a status code
// which never came before stands out and a duration does not. Thread safety: one thread. Invariants: 1.
// memory is bounded: at most kMostPairs pairs of context and word; beyond that the half that was not seen for
// longest is forgotten. 2. what it holds depends only on the lines, in order.
#ifndef BALLAST_EVAL_WORD_MODEL_H_
#define BALLAST_EVAL_WORD_MODEL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ballast {

class WordModel {
 public:
  static constexpr size_t kMostPairs = 1 << 18;
  static constexpr int64_t kLeast = 3;
  static constexpr double kNotable = 3;

  // A trivially copyable record, saved as it is.
  struct Pair {
    uint64_t key = 0;  // of context and word
    uint64_t context = 0;
    int64_t count = 0;
    int64_t last = 0;  // line in which it was seen last
  };

  struct Verdict {
    double cost = 0;     // in bits, of the line's most unusual word
    int64_t fewest = 0;  // how often that of its words of kNotable bits came in its place which came least
  };
  // Then the line is learnt.
  Verdict Judge(std::string_view line);

  int64_t lines() const { return lines_; }
  std::vector<Pair> Pairs() const;  // by key
  void Restore(int64_t lines, std::span<const Pair> pairs);

 private:
  struct Context {
    int64_t words = 0;      // n
    int64_t different = 0;  // k
  };
  struct Word {
    double cost = 0;
    int64_t count = 0;
  };
  std::optional<Word> Cost(uint64_t context, uint64_t word, bool any) const;
  void Learn(uint64_t context, uint64_t word);
  void Forget();

  int64_t lines_ = 0;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::unordered_map<uint64_t, Context> contexts_;
  std::vector<std::pair<uint64_t, uint64_t>> seen_;  // scratch: (context, word) of the line
};

}  // namespace ballast

#endif  // BALLAST_EVAL_WORD_MODEL_H_
