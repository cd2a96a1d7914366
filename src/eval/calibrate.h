// Calibration: how many pinned tokens and how large a cache a model needs on a text.
//
// Every pair of capacity and sinks streams the same text; compared are the tokens after the largest cache was
// full, so that every setting evicts and all see the same tokens. The best is the lowest perplexity; chosen
// is the smallest setting (capacity first, then sinks) whose perplexity is within the tolerance of the best,
// by the point ratio; its interval says how certain that is. Thread safety: none.
#ifndef BALLAST_EVAL_CALIBRATE_H_
#define BALLAST_EVAL_CALIBRATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "eval/gate.h"
#include "eval/tokens.h"
#include "model/model.h"

namespace ballast {

struct CalibrateOptions {
  std::vector<int64_t> contexts;                     // ascending
  std::vector<int64_t> sinks = {0, 1, 2, 4, 8, 16};  // ascending; 0: a plain window
  double tolerance = 0.005;                          // of perplexity
  KvType kv = KvType::kQ8;
  int64_t chunk = 256;
  // Which setting, how far within it; false interrupts.
  std::function<bool(size_t cell, int64_t done, int64_t total)> on_progress;
};

struct CalibrationCell {
  int64_t context = 0;
  int64_t sinks = 0;
  double perplexity = 0;  // over the compared tokens
  PairedRatio to_best;    // 1 for the best itself
  double tokens_per_second = 0;
  double cpu_seconds_per_token = 0;
  int64_t kv_bytes = 0;
};

struct Calibration {
  int64_t tokens = 0;    // of the text
  int64_t compared = 0;  // tokens after the largest cache was full
  double tolerance = 0;
  std::vector<CalibrationCell> cells;  // (context, sinks), both ascending
  size_t best = 0;                     // index
  size_t chosen = 0;                   // index
  // The chosen one's whole interval lies within the tolerance.
  bool certain = false;
};

// kUsage for lists that are empty or hold a pair no cache can have; kInput when the text is too short for the
// largest capacity to roll over. RunCalibration: kModel when no setting gives a finite perplexity.
Status CheckCalibration(const CalibrateOptions& options, int64_t tokens);
Result<Calibration> RunCalibration(const Model& model, ThreadPool& pool, TokenSource& source,
                                   const CalibrateOptions& options);

// Sets best, chosen and certain, and every cell's to_best. `tails`: (cell) over the same tokens.
void ChooseCell(const std::vector<TailSums>& tails, Calibration* calibration);

}  // namespace ballast

#endif  // BALLAST_EVAL_CALIBRATE_H_
