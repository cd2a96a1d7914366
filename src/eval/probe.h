// The probe: does a model park its attention on the first token, and so break when that token is evicted?
//
// Purpose: softmax must spend exactly 1 on visible keys, so many models learned to spend the surplus on the
// first token (StreamingLLM, arXiv 2309.17453). The probe feeds a text through a dense cache and records, for
// every layer, head and query, the share of the softmax that falls on position 0. Query 0 sees nothing else,
// so its share is 1; it is one of the queries counted. Thread safety: none; a probe owns its stream.
//
// Verdict, over the heads of global layers (layers trained with a local window lose token 0 by design, and
// are left out):
//   vulnerable      when at least 25% of the heads give more than the threshold by their mean, or 10% do so
//                   for nine queries out of ten (10th percentile);
//   mild            when at least 5% do by their mean;
//   not vulnerable  otherwise.
#ifndef BALLAST_EVAL_PROBE_H_
#define BALLAST_EVAL_PROBE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "eval/tokens.h"
#include "model/model.h"

namespace ballast {

inline constexpr double kVulnerableShare = 0.25;        // of heads, by mean
inline constexpr double kVulnerableAlwaysShare = 0.10;  // of heads, by 10th percentile
inline constexpr double kMildShare = 0.05;              // of heads, by mean

enum class SinkVerdict { kNotVulnerable, kMild, kVulnerable };
std::string_view SinkVerdictName(SinkVerdict verdict);  // as in the JSON: "not vulnerable"

struct SinkMap {
  int64_t tokens = 0;
  double threshold = 0;
  std::vector<std::vector<double>> mean;  // (layer, head): mean share over queries; 0 in local layers
  std::vector<std::vector<double>> p10;   // (layer, head): 10th percentile over queries
  std::vector<int> local_layers;          // trained with a local window
  double heads_over_threshold = 0;        // share of global heads whose mean is above the threshold
  double heads_always_over = 0;           // the same by p10
  SinkVerdict verdict = SinkVerdict::kNotVulnerable;
  std::string why;      // the verdict's reason with its figures, one sentence or two
  std::string warning;  // empty, or why the figures should not be trusted
};

struct ProbeOptions {
  double threshold = 0.05;
  int64_t limit = 1024;  // tokens
  KvType kv = KvType::kQ8;
  int64_t chunk = 256;
  std::function<bool(int64_t done, int64_t total)> on_progress;  // false interrupts
};

// kInput for fewer than two tokens. Holds 4 bytes per token, layer and head while it runs.
Result<SinkMap> RunProbe(const Model& model, ThreadPool& pool, TokenSource& source,
                         const ProbeOptions& options);

// Fills the shares, verdict, why and warning from mean, p10, local_layers, tokens and threshold.
void JudgeSinkMap(SinkMap* map);

// The q-quantile, 0 <= q <= 1, with linear interpolation between neighbours; reorders `values`. REQUIRES: not
// empty.
double Quantile(std::vector<float>& values, double q);

}  // namespace ballast

#endif  // BALLAST_EVAL_PROBE_H_
