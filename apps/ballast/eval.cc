// ballast eval: perplexity across roll-over, policy against policy, and a gate with an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app.h"
#include "eval/gate.h"
#include "eval/plot.h"
#include "eval/rollover.h"
#include "eval_common.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using nlohmann::json;

struct EvalFlags {
  CommonFlags common;
  TextFlags text;
  int64_t chunk = 256;
  int64_t dense_context = 0;  // 0: as --context
  bool per_token = false;
  double gate = 0;
  bool gated = false;
  std::string plot;
};

struct Gate {
  GateVerdict verdict;
  RolloverRun reference;
};

struct Evaluation {
  std::vector<RolloverRun> runs;
  std::optional<Gate> gate;
};

Status CheckFlags(EvalFlags& flags) {
  BALLAST_RETURN_IF_ERROR(CheckTextFlags(flags.text, "eval"));
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "eval"));
  if (flags.dense_context < 0 || flags.dense_context > kMaxContext) {
    return Status::Expected(Code::kUsage, "--dense-context",
                            "1 to " + std::to_string(kMaxContext) + " tokens",
                            std::to_string(flags.dense_context));
  }
  for (const std::string& policy : flags.common.policies) {
    BALLAST_RETURN_IF_ERROR(MakeStreamOptions(flags.common, policy).status());
  }
  if (!flags.plot.empty()) BALLAST_RETURN_IF_ERROR(CheckWritable(flags.plot));
  // Half of the check: a bad limit need not wait for the model. The text's length is checked later.
  if (flags.gated) return CheckGate(flags.gate, 0, 2);
  return Status();
}

// One StreamOptions per --policy. Every one is checked against the text and tried on the model (which costs
// nothing: a cache's memory is touched when used), so that the last policy is not refused after the first
// ran.
Result<std::vector<StreamOptions>> PlanRuns(const EvalFlags& flags, const Loaded& loaded, int64_t tokens) {
  const ModelConfig& config = loaded.model->config();
  std::vector<std::string> policies = flags.common.policies;
  if (policies.empty()) policies = {"sinks"};
  std::vector<StreamOptions> plan;
  for (const std::string& policy : policies) {
    BALLAST_ASSIGN_OR_RETURN(StreamOptions options, MakeStreamOptions(flags.common, policy));
    options.chunk = flags.chunk;
    if (options.policy == Policy::kDense && flags.dense_context > 0) options.context = flags.dense_context;
    if (options.context == 0) options.context = DefaultContext(config);
    BALLAST_RETURN_IF_ERROR(CheckRollover(config, options, tokens));
    if (flags.gated && options.policy != Policy::kDense) {
      BALLAST_RETURN_IF_ERROR(CheckGate(flags.gate, options.context, tokens));
    }
    BALLAST_RETURN_IF_ERROR(Stream::Create(*loaded.model, *loaded.pool, options).status());
    plan.push_back(options);
  }
  const bool evicts = std::any_of(plan.begin(), plan.end(),
                                  [](const StreamOptions& o) { return o.policy != Policy::kDense; });
  if (flags.gated && !evicts) {
    return Status::Expected(Code::kUsage, "--gate", "a policy that evicts", "dense alone",
                            "name the policy to judge; the reference is run by itself");
  }
  return plan;
}

// The index from which the judged runs' values count: where they start to evict. -1 without such a run.
int64_t TailFrom(const std::vector<StreamOptions>& plan) {
  for (const StreamOptions& o : plan) {
    if (o.policy != Policy::kDense) return o.context;
  }
  return -1;
}

Result<RolloverRun> RunOne(const EvalFlags& flags, const Loaded& loaded, TokenSource& source,
                           const StreamOptions& stream, int64_t tail_from, const std::string& label) {
  EvalProgress progress(label, flags.common.verbose);
  RolloverOptions options;
  options.stream = stream;
  options.tail_from = tail_from;
  options.per_token = flags.per_token;
  options.on_progress = [&](int64_t done, int64_t total) { return progress(done, total); };
  Result<RolloverRun> run = RunRollover(*loaded.model, *loaded.pool, source, options);
  progress.Done();
  return run;
}

Result<Gate> RunGate(const EvalFlags& flags, const Loaded& loaded, TokenSource& source,
                     const std::vector<StreamOptions>& plan, const std::vector<RolloverRun>& runs) {
  const int64_t tail_from = TailFrom(plan);
  const StreamOptions& first_judged = *std::find_if(
      plan.begin(), plan.end(), [](const StreamOptions& o) { return o.policy != Policy::kDense; });
  const StreamOptions wanted = GateReference(loaded.model->config(), first_judged, source.size());
  Gate gate;
  const auto ready = std::find_if(runs.begin(), runs.end(),
                                  [&](const RolloverRun& run) { return ServesAsReference(run, wanted); });
  if (ready != runs.end()) {
    gate.reference = *ready;
  } else {
    BALLAST_ASSIGN_OR_RETURN(gate.reference,
                             RunOne(flags, loaded, source, wanted, tail_from, "eval reference"));
  }
  std::vector<const RolloverRun*> judged;
  for (const RolloverRun& run : runs) {
    if (run.policy != Policy::kDense) judged.push_back(&run);
  }
  gate.verdict = JudgeGate(flags.gate, gate.reference, judged);
  return gate;
}

Result<Evaluation> Evaluate(const EvalFlags& flags, const Loaded& loaded, TokenSource& source) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<StreamOptions> plan, PlanRuns(flags, loaded, source.size()));
  Evaluation evaluation;
  for (const StreamOptions& options : plan) {
    const std::string label = fmt::format("eval {}", PolicyName(options.policy));
    BALLAST_ASSIGN_OR_RETURN(RolloverRun run, RunOne(flags, loaded, source, options, TailFrom(plan), label));
    evaluation.runs.push_back(std::move(run));
  }
  if (flags.gated) {
    BALLAST_ASSIGN_OR_RETURN(evaluation.gate, RunGate(flags, loaded, source, plan, evaluation.runs));
  }
  return evaluation;
}

// --- JSON -------------------------------------------------------------------------------------------------

json BlocksJson(const std::vector<PerplexityBlock>& blocks) {
  json out = json::array();
  for (const PerplexityBlock& b : blocks) {
    out.push_back({{"from", b.from},
                   {"to", b.to},
                   {"perplexity", b.perplexity},
                   {"seconds", b.seconds},
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
  return {{"ratio", gate.verdict.ratio},
          {"limit", gate.verdict.limit},
          {"passed", gate.verdict.passed},
          {"worst_policy", PolicyName(gate.verdict.worst)},
          {"ratios", gate.verdict.ratios},
          {"tokens_after_rollover", reference.tail_tokens},
          {"reference",
           {{"policy", PolicyName(reference.policy)},
            {"context", reference.context},
            {"perplexity_after_rollover", reference.tail_perplexity}}}};
}

json EvaluationJson(const Evaluation& evaluation, const Loaded& loaded, int64_t tokens, bool per_token) {
  json out = {{"model", ModelJson(loaded)}, {"tokens", tokens}, {"runs", json::array()}};
  for (const RolloverRun& run : evaluation.runs) out["runs"].push_back(RunJson(run, per_token));
  if (evaluation.gate) out["gate"] = GateJson(*evaluation.gate);
  return out;
}

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
      out += Styled(colour && bad, "31", Column(fmt::format("{:.2f}", perplexity)));
    }
    out += "\n";
  }
  return out;
}

std::string TableText(const Evaluation& evaluation, const Loaded& loaded, bool colour) {
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
  out += row("perplexity", [](const RolloverRun& r) { return fmt::format("{:.3f}", r.perplexity); });
  out += row("mean nll", [](const RolloverRun& r) { return fmt::format("{:.4f}", r.mean_nll); });
  out += row("context", [](const RolloverRun& r) { return Grouped(r.context); });
  out += row("pinned", [](const RolloverRun& r) { return Grouped(r.sinks); });
  out += row("evicted tokens", [](const RolloverRun& r) { return Grouped(r.evicted_tokens); });
  out += row("tokens/s", [](const RolloverRun& r) { return fmt::format("{:.1f}", r.tokens_per_second); });
  out += row("cache", [](const RolloverRun& r) { return Bytes(static_cast<double>(r.kv_bytes)); });
  if (evaluation.gate) {
    const GateVerdict& verdict = evaluation.gate->verdict;
    const std::string text = fmt::format("gate: {}: {} is {:.3f} times {} at {} after roll-over (limit {:g})",
                                         verdict.passed ? "passed" : "failed", PolicyName(verdict.worst),
                                         verdict.ratio, PolicyName(evaluation.gate->reference.policy),
                                         Grouped(evaluation.gate->reference.context), verdict.limit);
    out += "\n" + Styled(colour, verdict.passed ? "32" : "31", text) + "\n";
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

std::string PlotSvg(const Evaluation& evaluation, const Loaded& loaded) {
  const std::vector<RolloverRun>& runs = evaluation.runs;
  CurvePlot plot;
  plot.title = "Perplexity while the cache rolls over";
  const int64_t width = runs.front().curve.front().to - runs.front().curve.front().from;
  plot.subtitle = fmt::format("{}, trained on {} tokens; each point is the mean over {} tokens",
                              loaded.model->config().name, Grouped(loaded.model->config().trained_context),
                              Grouped(width));
  plot.x_label = "tokens fed";
  plot.y_label = "perplexity";
  for (const RolloverRun& run : runs) {
    // One look per policy, in every picture: sinks is the solid line.
    CurvePlot::Curve curve{RunLabel(run), static_cast<int>(run.policy), {}};
    for (const PerplexityBlock& b : run.curve) {
      curve.points.push_back({static_cast<double>(b.from + b.to) / 2, b.perplexity});
    }
    plot.curves.push_back(std::move(curve));
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

int RunEval(EvalFlags& flags) {
  if (const Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  ClearInterrupt();
  const Result<Loaded> loaded = LoadModel(flags.common);
  if (!loaded.ok()) return Fail(loaded.status());
  const Result<std::vector<Token>> tokens = LoadTokens(flags.text, *loaded);
  if (!tokens.ok()) return Fail(tokens.status());
  SpanTokens source(*tokens);
  const Result<Evaluation> evaluation = Evaluate(flags, *loaded, source);
  if (!evaluation.ok()) return Fail(evaluation.status());
  const Status printed = flags.common.json
                             ? PrintJson(EvaluationJson(*evaluation, *loaded, source.size(), flags.per_token))
                             : Print(TableText(*evaluation, *loaded, StyledStdout()));
  if (!printed.ok()) return Fail(printed);
  const Status verdict =
      evaluation->gate ? GateStatus(evaluation->gate->verdict, evaluation->gate->reference) : Status();
  return Finish(flags.plot, flags.plot.empty() ? "" : PlotSvg(*evaluation, *loaded), verdict);
}

}  // namespace

Runner AddEval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand("eval", "Perplexity across roll-over, policy against policy");
  AddCommonFlags(*command, flags->common);
  command->get_option("--policy")->description("sinks, window, dense or recompute; repeatable (sinks)");
  AddTextFlags(*command, flags->text);
  AddFlag(*command, "--chunk", "CHUNK", flags->chunk,
          "Tokens fed at once; changes speed; results only by rounding (256)")
      ->type_name("N");
  AddFlag(*command, "--dense-context", "DENSE_CONTEXT", flags->dense_context,
          "Capacity of the dense runs (default: as --context)")
      ->type_name("C");
  AddFlag(*command, "--per-token", "PER_TOKEN", flags->per_token,
          "Every token's negative log-likelihood in the JSON");
  CLI::Option* gate = AddFlag(*command, "--gate", "GATE", flags->gate,
                              "Exit 5 when the perplexity after roll-over exceeds R times the reference's");
  gate->type_name("R");
  AddFlag(*command, "--plot", "PLOT", flags->plot, "Draw the curves into an SVG file")->type_name("FILE.svg");
  return [flags, gate] {
    flags->gated = gate->count() > 0;
    return RunEval(*flags);
  };
}

}  // namespace ballast::app
