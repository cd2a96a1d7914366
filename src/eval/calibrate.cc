#include "eval/calibrate.h"

#include <algorithm>
#include <cmath>

#include "cache/policy.h"

namespace ballast {
namespace {

StreamOptions CellOptions(const CalibrateOptions& options, int64_t context, int64_t sinks) {
  StreamOptions stream;
  stream.policy = sinks == 0 ? Policy::kWindow : Policy::kSinks;
  stream.context = context;
  stream.pinned = sinks;
  stream.kv = options.kv;
  stream.chunk = options.chunk;
  return stream;
}

}  // namespace

Status CheckCalibration(const CalibrateOptions& options, int64_t tokens) {
  if (options.contexts.empty() || options.sinks.empty()) {
    return Status::Expected(Code::kUsage, "calibrate", "capacities and sinks to try", "none");
  }
  for (const int64_t context : options.contexts) {
    for (const int64_t sinks : options.sinks) {
      const StreamOptions o = CellOptions(options, context, sinks);
      BALLAST_RETURN_IF_ERROR(MakePlan(o.policy, o.context, o.pinned).status());
    }
  }
  const int64_t needed = options.contexts.back() + 2 * TailSums::kFirstWidth + 1;
  if (tokens < needed) {
    return Status::Expected(Code::kInput, "calibrate: text too short to roll over",
                            "at least " + std::to_string(needed) + " tokens for a cache of " +
                                std::to_string(options.contexts.back()),
                            std::to_string(tokens), "give a longer text, or smaller capacities");
  }
  return Status();
}

Result<Calibration> RunCalibration(const Model& model, ThreadPool& pool, TokenSource& source,
                                   const CalibrateOptions& options) {
  BALLAST_RETURN_IF_ERROR(CheckCalibration(options, source.size()));
  Calibration out;
  out.tokens = source.size();
  out.tolerance = options.tolerance;
  const int64_t from = options.contexts.back();
  std::vector<TailSums> tails;
  for (const int64_t context : options.contexts) {
    for (const int64_t sinks : options.sinks) {
      RolloverOptions rollover;
      rollover.stream = CellOptions(options, context, sinks);
      rollover.tails = {from};
      const size_t cell = out.cells.size();
      rollover.on_progress = [&options, cell](int64_t done, int64_t total) {
        return !options.on_progress || options.on_progress(cell, done, total);
      };
      BALLAST_ASSIGN_OR_RETURN(const RolloverRun run, RunRollover(model, pool, source, rollover));
      tails.push_back(run.tails.front());
      CalibrationCell made;
      made.context = context;
      made.sinks = sinks;
      made.perplexity = tails.back().perplexity();
      made.tokens_per_second = run.tokens_per_second;
      made.cpu_seconds_per_token = run.cpu_seconds / static_cast<double>(run.tokens);
      made.kv_bytes = run.kv_bytes;
      out.cells.push_back(made);
    }
  }
  out.compared = tails.front().count;
  ChooseCell(tails, &out);
  BALLAST_RETURN_IF_ERROR(CheckFinite("calibrate: the best perplexity", out.cells[out.best].perplexity));
  return out;
}

void ChooseCell(const std::vector<TailSums>& tails, Calibration* calibration) {
  std::vector<CalibrationCell>& cells = calibration->cells;
  BALLAST_CHECK(!cells.empty() && cells.size() == tails.size());
  // What is no number is never the best.
  const auto key = [&](size_t i) { return std::isnan(cells[i].perplexity) ? INFINITY : cells[i].perplexity; };
  calibration->best = 0;
  for (size_t i = 1; i < cells.size(); ++i) {
    if (key(i) < key(calibration->best)) calibration->best = i;
  }
  for (size_t i = 0; i < cells.size(); ++i)
    cells[i].to_best = ComparePaired(tails[i], tails[calibration->best]);
  calibration->chosen = calibration->best;
  const double limit = 1 + calibration->tolerance;
  for (size_t i = cells.size();
       i-- > 0;) {  // the cells ascend: the last one that passes here is the smallest
    if (cells[i].to_best.ratio <= limit) calibration->chosen = i;
  }
  const PairedRatio& chosen = cells[calibration->chosen].to_best;
  calibration->certain = calibration->chosen == calibration->best || chosen.high <= limit;
}

}  // namespace ballast
