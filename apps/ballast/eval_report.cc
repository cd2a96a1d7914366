// The page that `eval --report` writes.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "eval/plot.h"
#include "eval/report.h"
#include "eval_common.h"
#include "eval_output.h"
#include "kernels/isa.h"
#include "terminal.h"

namespace ballast::app {
namespace {

// This process's arguments as a shell would take them.
std::string CommandLine() {
  Result<std::string> bytes = ReadAll("/proc/self/cmdline");
  if (!bytes.ok()) return "unknown";
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=:,+@%";
  std::string out;
  for (size_t begin = 0; begin < bytes->size();) {
    const size_t end = std::min(bytes->find('\0', begin), bytes->size());
    const std::string word = bytes->substr(begin, end - begin);
    if (!out.empty()) out += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      out += word;
    } else {
      out += '\'';
      for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
      out += '\'';
    }
    begin = end + 1;
  }
  return ValidUtf8(out);
}

std::string GateTable(const Gate& gate) {
  std::vector<std::vector<std::string>> rows;
  for (const GateVerdict::Judged& j : gate.verdict.judged) {
    const bool bad = !(j.paired.ratio <= gate.verdict.limit);
    const std::string interval = std::isfinite(j.paired.low)
                                     ? fmt::format("{:.3f} to {:.3f}", j.paired.low, j.paired.high)
                                     : "too few tokens";
    rows.push_back({fmt::format("{} at {}", PolicyName(j.policy), Grouped(j.context)), Grouped(j.from + 1),
                    Grouped(j.paired.tokens), Number(j.perplexity, 2), Number(j.reference_perplexity, 2),
                    (bad ? "!" : "") + Number(j.paired.ratio, 3), interval});
  }
  return HtmlTable({"judged", "from token", "tokens", "perplexity", "reference", "ratio", "95% interval"},
                   rows);
}

// Runs beside each other; those after the first `own` are references.
std::string ColumnLabel(const std::vector<RolloverRun>& runs, size_t i, size_t own) {
  return RunLabel(runs[i]) + (i < own ? "" : " (reference)");
}

std::string RunsTable(const std::vector<RolloverRun>& runs, size_t own) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RolloverRun& run = runs[i];
    rows.push_back({ColumnLabel(runs, i, own), std::string(KvTypeName(run.kv)), Number(run.perplexity, 3),
                    Number(run.mean_nll, 4), Grouped(run.evicted_tokens), Number(run.tokens_per_second, 0),
                    Bytes(static_cast<double>(run.kv_bytes))});
  }
  return HtmlTable({"policy", "cache as", "perplexity", "mean nll", "evicted", "tokens/s", "cache"}, rows);
}

std::string BlocksTable(const std::vector<RolloverRun>& runs, size_t own) {
  std::vector<std::string> head = {"predicted tokens"};
  for (size_t i = 0; i < runs.size(); ++i) head.push_back(ColumnLabel(runs, i, own));
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < runs.front().blocks.size(); ++i) {
    const PerplexityBlock& block = runs.front().blocks[i];
    std::vector<std::string> row = {fmt::format("{} - {}", Grouped(block.from), Grouped(block.to))};
    double best = INFINITY;
    for (const RolloverRun& run : runs) best = std::min(best, run.blocks[i].perplexity);
    for (const RolloverRun& run : runs) {
      const double perplexity = run.blocks[i].perplexity;
      row.push_back((perplexity <= 1.5 * best ? "" : "!") + Number(perplexity, 2));
    }
    rows.push_back(std::move(row));
  }
  return HtmlTable(head, rows);
}

std::vector<std::pair<std::string, std::string>> Facts(const RolloverRun& run, const Loaded& loaded) {
  const ModelConfig& config = loaded.model->config();
  return {
      {"Model", fmt::format("{} ({})", config.name, config.architecture)},
      {"sha256", loaded.sha256},
      {"Trained length",
       config.trained_context > 0 ? Grouped(config.trained_context) + " tokens" : "unknown"},
      {"Machine", fmt::format("{}, {}, {} threads", CpuName(), CurrentIsa(), loaded.pool->threads())},
      {"Compute", run.compute == Compute::kF32 ? "f32" : "fast"},
      {"Command", CommandLine()},
      {"Version", "ballast " BALLAST_VERSION},
      {"Date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
  };
}

}  // namespace

std::string EvaluationPage(const Evaluation& evaluation, const Loaded& loaded) {
  const ModelConfig& config = loaded.model->config();
  std::vector<RolloverRun> runs = evaluation.runs;
  const size_t own = runs.size();
  const int64_t tokens = runs.front().tokens;
  ReportPage page;
  page.title = "Roll-over report: " + config.name;
  page.subtitle = fmt::format(
      "Perplexity over {} tokens of text, streamed through a cache that fills and evicts.", Grouped(tokens));
  if (evaluation.gate) {
    const Gate& gate = *evaluation.gate;
    page.verdict = "Gate " + GateSentence(gate) + ".";
    page.tone = gate.verdict.passed ? ReportPage::Tone::kGood : ReportPage::Tone::kBad;
    page.sections.push_back(
        {"Gate",
         fmt::format(
             "Each policy beside {} at {} on the same tokens; limit {:g}. Interval: {}. The verdict goes "
             "by the ratio.",
             PolicyName(gate.reference.policy), Grouped(gate.reference.context), gate.verdict.limit,
             kIntervalMethod),
         GateTable(gate)});
    if (!gate.reference_is_a_run) runs.push_back(gate.reference);
  }
  page.sections.push_back({"Curves", "Where a curve leaves the others, the model has broken.",
                           EvaluationSvg(evaluation, loaded)});
  page.sections.push_back({"Policies", "", RunsTable(runs, own)});
  page.sections.push_back(
      {fmt::format("Perplexity per {} tokens", Grouped(runs.front().block)),
       "Compare columns, not rows: texts differ from page to page. Red: half again as bad as "
       "the best beside it.",
       BlocksTable(runs, own), runs.front().blocks.size() > 24});
  if (evaluation.sink_map) {
    const SinkMap& map = *evaluation.sink_map;
    page.sections.push_back({"Sink map", map.why + "." + (map.warning.empty() ? "" : " " + map.warning),
                             SinkMapSvg(map, loaded)});
  }
  page.facts = Facts(runs.front(), loaded);
  page.footer =
      "Stability, not recall: a flat curve says that the model goes on as well as it began, not that it "
      "remembers what has left its window.";
  return RenderPage(page);
}

}  // namespace ballast::app
