// StreamEval: what a stream still knows of the lines it was fed, by how long ago that was.
//
// Purpose: perplexity shows that a stream is stable; this shows that it is not a memory. After section 5 of
// StreamingLLM (arXiv 2309.17453; its data set was never released): an endless list of facts, one a line
// ("amber falcon stone"), between them questions with their answers ("again: amber falcon stone"), so that
// the list shows what is wanted of a model that follows no instructions; and from time to time questions
// about the line so many lines back, which was never repeated: what does the model think comes next, among
// the words that stand as answers in the list? The questions are asked of a copy of the stream, so that they
// leave no trace in it, and every distance is asked at the same places. Expected: near 1 inside the window as
// far as the model can copy at all, chance outside.
//
// Everything follows from the seed; keys do not come twice within 4,096 lines. Thread safety: none.
#ifndef BALLAST_EVAL_STREAMEVAL_H_
#define BALLAST_EVAL_STREAMEVAL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/stream.h"
#include "eval/interval.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ballast {

inline constexpr int64_t kMostDistance = 3999;  // lines

struct StreamEvalOptions {
  StreamOptions stream;
  // In lines, 1: the newest; even ones are rounded up. Empty: shares of the capacity, see DefaultDistances.
  std::vector<int64_t> distances;
  int64_t questions = 50;  // per distance
  uint64_t seed = 1;
  std::function<bool(int64_t done, int64_t total)> on_progress;  // questions; false interrupts
};

struct StreamEvalPoint {
  int64_t lines = 0;
  double tokens = 0;   // from the answer in the list to the question's last token, in the mean
  double visible = 0;  // share of questions whose line was still in the cache as a whole
  int64_t asked = 0;
  int64_t right = 0;             // the answer was the likeliest of the words
  Interval accuracy;             // 95%, Wilson
  double likelihood = 0;         // mean probability of the answer among the words
  Interval likelihood_interval;  // 95%, Student t over the questions
};

struct StreamEvalResult {
  Policy policy = Policy::kSinks;
  int64_t context = 0;
  int64_t sinks = 0;
  int64_t words = 0;  // to choose from; chance is 1 / words
  int64_t lines = 0;  // fed
  int64_t tokens = 0;
  double tokens_per_line = 0;
  std::string example;                  // a line
  std::vector<StreamEvalPoint> points;  // by distance
};

// Lines at shares of a cache that holds `lines` of them: close by, within, at the edge, and beyond;
// ascending, each once, at most kMostDistance.
std::vector<int64_t> DefaultDistances(double lines);

// kModel when the vocabulary has too few of the answers as one token; kUsage for a distance outside
// [1, kMostDistance]; errors of Stream.
Result<StreamEvalResult> RunStreamEval(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
                                       const StreamEvalOptions& options);

}  // namespace ballast

#endif  // BALLAST_EVAL_STREAMEVAL_H_
