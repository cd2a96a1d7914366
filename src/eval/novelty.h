// NoveltyJudge: which lines are new to this log, and worth an alarm.
//
// It finds novelty, not badness: a harmless line never seen before scores high, a grave one that comes every
// day does not. Three measures that fail on different lines: how often the line's template came (blind to
// numbers, noisy where words come in ever new combinations), its most unusual word in its place (WordModel),
// and the language model's surprise at its text (knows no more than the window, but knows what text is like).
// Each is turned into bits of evidence by the log's own newest lines, -log2 of the share of them that were as
// unusual, so that a measure which is noisy on this log says little; the score is their sum, the model's
// weighted by half. After five unusual lines in a row, what follows belongs to what they began and counts
// half. A line whose template, and every word of it that is unusual, came ten times before is no alarm: the
// score tells how rare it is, and rare things that come again and again are not new. Thread safety: one
// thread. Invariants: 1. a line is judged by what came before it only. 2. memory is bounded. 3. the same
// lines in the same order give the same judgements.
#ifndef BALLAST_EVAL_NOVELTY_H_
#define BALLAST_EVAL_NOVELTY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "eval/line_scorer.h"
#include "eval/log_template.h"
#include "eval/word_model.h"

namespace ballast {

struct NoveltyOptions {
  double threshold = 7;   // bits of score from which a line is an alarm
  int64_t warm_up = 200;  // lines before the first alarm
};

struct Judgement {
  int64_t seen = 0;                  // lines of its template before it
  double words = 0;                  // bits: cost of its most unusual word
  double surprise = 0;               // bits per token of its text, numbers and ids left out
  std::array<double, 3> evidence{};  // bits, of seen, words, surprise
  double score = 0;                  // bits
  double z = 0;  // of the score: distance from the median of the newest lines, in deviations
  bool alarm = false;
};

class NoveltyJudge {
 public:
  explicit NoveltyJudge(const NoveltyOptions& options) : options_(options) {}

  // Judges the next line and learns it. `exempt`: a user has marked it as normal; it is learnt, never an
  // alarm.
  Judgement Judge(std::string_view line, const LineSurprise& surprise, bool exempt);

  // The newest lines, from which the log's normal is taken: at most kNormalLines, oldest first.
  static constexpr size_t kNormalLines = 1024;
  // A trivially copyable record, saved as it is.
  struct Recent {
    std::array<double, 3> measures{};  // larger is more unusual: -seen, words, surprise
    double score = 0;
  };
  // All that is learnt, for snapshots.
  struct State {
    int64_t lines = 0;
    int64_t run = 0, quiet = 0;
    std::vector<TemplateTable::Entry> templates;
    std::vector<WordModel::Pair> pairs;
    std::vector<Recent> recent;
  };
  State state() const;
  void Restore(const State& state);
  int64_t lines() const { return templates_.total(); }

 private:
  double Evidence(size_t measure, double value, double most) const;
  double MedianOf(double (*value)(const Recent&)) const;
  double Z(double score) const;
  double Discount(double score);

  NoveltyOptions options_;
  TemplateTable templates_;
  WordModel words_;
  std::deque<Recent> recent_;
  int64_t run_ = 0;    // unusual lines in a row
  int64_t quiet_ = 0;  // others since
};

}  // namespace ballast

#endif  // BALLAST_EVAL_NOVELTY_H_
