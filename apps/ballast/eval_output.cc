#include "eval_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "eval/plot.h"
#include "eval_common.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using nlohmann::json;

// --- JSON -------------------------------------------------------------------------------------------------

json BlocksJson(const std::vector<PerplexityBlock>& blocks) {
  json out = json::array();
  for (const PerplexityBlock& b : blocks) {
    out.push_back({{"from", b.from},
                   {"to", b.to},
                   {"perplexity", b.perplexity},
                   {"seconds", b.seconds},
                   {"cpu_seconds", b.cpu_seconds},
                   {"rss_bytes", b.rss_bytes}});
  }
  return out;
}

json RunJson(const RolloverRun& run, bool per_token) {
  json out = {{"policy", PolicyName(run.policy)},
              {"sinks", run.sinks},
              {"context", run.context},
              {"kv", KvTypeName(run.kv)},
              {"compute", run.compute == Compute::kF32 ? "f32" : "fast"},
              {"mean_nll", run.mean_nll},
              {"perplexity", run.perplexity},
              {"blocks", BlocksJson(run.blocks)},
              {"evicted_tokens", run.evicted_tokens},
              {"seconds", run.seconds},
              {"cpu_seconds", run.cpu_seconds},
              {"tokens_per_second", run.tokens_per_second},
              {"kv_bytes", run.kv_bytes},
              {"rss_peak_bytes", run.rss_peak_bytes}};
  if (per_token) {
    json nll = json::array();
    for (const float v : run.nll) nll.push_back(std::round(static_cast<double>(v) * 1e6) / 1e6);
    out["nll"] = std::move(nll);
  }
  return out;
}

json GateJson(const Gate& gate) {
  const RolloverRun& reference = gate.reference;
  const GateVerdict& verdict = gate.verdict;
  const GateVerdict::Judged& worst = verdict.Worst();
  json judged = json::array();
  json ratios = json::array();
  for (const GateVerdict::Judged& j : verdict.judged) {
    ratios.push_back(j.paired.ratio);
    judged.push_back({{"policy", PolicyName(j.policy)},
                      {"context", j.context},
                      {"from", j.from + 1},
                      {"ratio", j.paired.ratio},
                      {"ci_low", j.paired.low},
                      {"ci_high", j.paired.high},
                      {"tokens", j.paired.tokens},
                      {"batches", j.paired.batches},
                      {"batch_tokens", j.paired.batch_tokens},
                      {"perplexity", j.perplexity},
                      {"reference_perplexity", j.reference_perplexity}});
  }
  return {{"ratio", worst.paired.ratio},
          {"limit", verdict.limit},
          {"passed", verdict.passed},
          {"conclusive", verdict.conclusive},
          {"ci_low", worst.paired.low},
          {"ci_high", worst.paired.high},
          {"tokens", worst.paired.tokens},
          {"method", kIntervalMethod},
          {"worst_policy", PolicyName(worst.policy)},
          {"ratios", std::move(ratios)},
          {"judged", std::move(judged)},
          {"tokens_after_rollover", worst.paired.tokens},
          {"reference",
           {{"policy", PolicyName(reference.policy)},
            {"context", reference.context},
            {"sinks", reference.sinks},
            {"blocks", BlocksJson(reference.blocks)},
            {"seconds", reference.seconds},
            {"cpu_seconds", reference.cpu_seconds},
            {"perplexity_after_rollover", worst.reference_perplexity}}}};
}

}  // namespace

json EvaluationJson(const Evaluation& evaluation, const Loaded& loaded, bool per_token) {
  json out = {
      {"model", ModelJson(loaded)}, {"tokens", evaluation.runs.front().tokens}, {"runs", json::array()}};
  for (const RolloverRun& run : evaluation.runs) out["runs"].push_back(RunJson(run, per_token));
  if (evaluation.gate) out["gate"] = GateJson(*evaluation.gate);
  return out;
}

namespace {

// --- For people -------------------------------------------------------------------------------------------

constexpr int kLabelWidth = 18;
constexpr int kColumnWidth = 14;

std::string Label(const std::string& text) { return fmt::format("{:>{}}", text, kLabelWidth); }
std::string Column(const std::string& text) { return fmt::format("{:>{}}", text, kColumnWidth); }

// Capacities at which some run starts to evict, ascending.
std::vector<int64_t> RollOvers(const std::vector<RolloverRun>& runs) {
  std::vector<int64_t> at;
  for (const RolloverRun& run : runs) {
    if (run.policy != Policy::kDense && run.context < run.tokens) at.push_back(run.context);
  }
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  return at;
}

std::string BlockRows(const std::vector<RolloverRun>& runs, bool colour) {
  std::string out;
  const std::vector<int64_t> marks = RollOvers(runs);
  size_t next_mark = 0;
  for (size_t i = 0; i < runs.front().blocks.size(); ++i) {
    const PerplexityBlock& block = runs.front().blocks[i];
    for (; next_mark < marks.size() && marks[next_mark] < block.to; ++next_mark) {
      // The line stands above the first row that eviction touches, which may hold some tokens from before.
      const char* inside = marks[next_mark] > block.from ? ", inside the next row" : "";
      const std::string mark =
          fmt::format("-- cache full at token {}: eviction starts{} --", Grouped(marks[next_mark]), inside);
      out += Styled(colour, "33", mark) + "\n";
    }
    double best = INFINITY;
    for (const RolloverRun& run : runs) best = std::min(best, run.blocks[i].perplexity);
    out += Label(fmt::format("{} - {}", Grouped(block.from), Grouped(block.to)));
    for (const RolloverRun& run : runs) {
      const double perplexity = run.blocks[i].perplexity;
      // Half again as bad as the best policy on the same tokens is worth a look.
      const bool bad = runs.size() > 1 && !(perplexity <= 1.5 * best);
      out += Styled(colour && bad, "31", Column(Number(perplexity, 2)));
    }
    out += "\n";
  }
  return out;
}

}  // namespace

std::string GateSentence(const Gate& gate) {
  const GateVerdict& verdict = gate.verdict;
  const GateVerdict::Judged& worst = verdict.Worst();
  const bool finite = std::isfinite(worst.paired.ratio);
  std::string text =
      fmt::format("{}: {} is {} {} at {} {} (limit {:g}; {} tokens", verdict.passed ? "passed" : "failed",
                  PolicyName(worst.policy),
                  finite ? fmt::format("{:.3f} times", worst.paired.ratio) : "not to be compared with",
                  PolicyName(gate.reference.policy), Grouped(gate.reference.context),
                  worst.policy == Policy::kDense ? "beyond the trained length" : "after roll-over",
                  verdict.limit, Grouped(worst.paired.tokens));
  if (std::isfinite(worst.paired.low)) {
    text += fmt::format("; 95%: {:.3f} to {:.3f}", worst.paired.low, worst.paired.high);
  }
  if (!finite) return text + "; the model's output is not finite)";
  return text + (verdict.conclusive ? ")" : "; inconclusive: a longer text would tell)");
}

std::string EvaluationTable(const Evaluation& evaluation, const Loaded& loaded, bool colour) {
  const std::vector<RolloverRun>& runs = evaluation.runs;
  const auto row = [&](const char* label, auto&& cell) {
    std::string line = Label(label);
    for (const RolloverRun& run : runs) line += Column(cell(run));
    return line + "\n";
  };
  std::string out = fmt::format("Perplexity of {} over {} tokens\n\n", loaded.model->config().name,
                                Grouped(runs.front().tokens));
  out += row("predicted tokens", [](const RolloverRun& r) { return std::string(PolicyName(r.policy)); });
  out += BlockRows(runs, colour);
  out += "\n";
  out += row("perplexity", [](const RolloverRun& r) { return Number(r.perplexity, 3); });
  out += row("mean nll", [](const RolloverRun& r) { return Number(r.mean_nll, 4); });
  out += row("context", [](const RolloverRun& r) { return Grouped(r.context); });
  out += row("pinned", [](const RolloverRun& r) { return Grouped(r.sinks); });
  out += row("evicted tokens", [](const RolloverRun& r) { return Grouped(r.evicted_tokens); });
  out += row("tokens/s", [](const RolloverRun& r) { return fmt::format("{:.1f}", r.tokens_per_second); });
  out += row("cache", [](const RolloverRun& r) { return Bytes(static_cast<double>(r.kv_bytes)); });
  if (evaluation.gate) {
    const bool passed = evaluation.gate->verdict.passed;
    const std::string text = "gate: " + GateSentence(*evaluation.gate);
    out += "\n" + Styled(colour, passed ? "32" : "31", text) + "\n";
  }
  return out;
}

std::string RunLabel(const RolloverRun& run) {
  switch (run.policy) {
    case Policy::kSinks:
      return fmt::format("sinks: {} + {}", run.sinks, Grouped(run.context - run.sinks));
    case Policy::kWindow:
      return fmt::format("window: {}, no sinks", Grouped(run.context));
    case Policy::kDense:
      return "dense: keeps everything";
    case Policy::kRecompute:
      return fmt::format("recompute: last {}", Grouped(run.context));
  }
  return "";
}

namespace {

CurvePlot::Curve CurveOf(const RolloverRun& run, const std::string& label, int style) {
  CurvePlot::Curve curve{label, style, {}};
  for (const PerplexityBlock& b : run.curve) {
    curve.points.push_back({static_cast<double>(b.from + b.to) / 2, b.perplexity});
  }
  return curve;
}

}  // namespace

std::string EvaluationSvg(const Evaluation& evaluation, const Loaded& loaded) {
  const std::vector<RolloverRun>& runs = evaluation.runs;
  CurvePlot plot;
  plot.title = "Perplexity while the cache rolls over";
  const int64_t width = runs.front().curve.front().to - runs.front().curve.front().from;
  plot.subtitle = fmt::format("{}, trained on {} tokens; each point is the mean over {} tokens",
                              loaded.model->config().name, Grouped(loaded.model->config().trained_context),
                              Grouped(width));
  plot.x_label = "tokens fed";
  plot.y_label = "perplexity";
  // One look per policy, in every picture: sinks is the solid line.
  for (const RolloverRun& run : runs) {
    plot.curves.push_back(CurveOf(run, RunLabel(run), static_cast<int>(run.policy)));
  }
  if (evaluation.gate && !evaluation.gate->reference_is_a_run) {
    const RolloverRun& reference = evaluation.gate->reference;
    plot.curves.push_back(CurveOf(reference, "reference " + RunLabel(reference), 4));
  }
  for (const int64_t at : RollOvers(runs)) {
    plot.marks.push_back({static_cast<double>(at), fmt::format("cache of {} full", Grouped(at))});
  }
  const int64_t trained = loaded.model->config().trained_context;
  if (trained > 0 && trained < runs.front().tokens) {
    plot.marks.push_back({static_cast<double>(trained), "trained length"});
  }
  return RenderCurves(plot);
}

}  // namespace ballast::app
