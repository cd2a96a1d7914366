// ballast eval: perplexity across roll-over, policy against policy, and a gate with an exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app.h"
#include "base/mmap.h"
#include "engine/model_identity.h"
#include "eval/gate.h"
#include "eval/probe.h"
#include "eval/rollover.h"
#include "eval_common.h"
#include "eval_output.h"
#include "terminal.h"

namespace ballast::app {
namespace {

struct EvalFlags {
  CommonFlags common;
  TextFlags text;
  int64_t chunk = 256;
  int64_t dense_context = 0;  // 0: as --context
  bool per_token = false;
  double gate = 0;
  bool gated = false;
  std::string reference;  // a policy; empty: GateReference's choice
  int64_t reference_context = 0;
  int64_t block = kPerplexityBlock;
  std::string checkpoint;  // a folder
  int64_t checkpoint_every = 65536;
  std::string plot;
  std::string report;
};

Status CheckReference(const std::string& name) {
  if (ParsePolicy(name).ok()) return Status();
  return Status::Expected(Code::kUsage, "--reference", "dense, sinks, recompute or window",
                          "\"" + name + "\"");
}

Status CheckGateFlags(const EvalFlags& flags) {
  if (!flags.gated && (!flags.reference.empty() || flags.reference_context != 0)) {
    return Status::Expected(Code::kUsage, "--reference", "--gate R beside it", "none");
  }
  if (!flags.reference.empty()) BALLAST_RETURN_IF_ERROR(CheckReference(flags.reference));
  if (flags.reference_context != 0) {
    BALLAST_RETURN_IF_ERROR(
        CheckCount("--reference-context", flags.reference_context, 1, kMaxContext, "tokens"));
  }
  // Half of the check: a bad limit need not wait for the model. The text's length is checked later.
  return flags.gated ? CheckGate(flags.gate, 0, 2) : Status();
}

Status CheckFlags(EvalFlags& flags) {
  BALLAST_RETURN_IF_ERROR(CheckTextFlags(flags.text, "eval"));
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "eval"));
  if (flags.dense_context != 0) {
    BALLAST_RETURN_IF_ERROR(CheckCount("--dense-context", flags.dense_context, 1, kMaxContext, "tokens"));
  }
  for (const std::string& policy : flags.common.policies) {
    BALLAST_RETURN_IF_ERROR(MakeStreamOptions(flags.common, policy).status());
  }
  BALLAST_RETURN_IF_ERROR(CheckCount("--block", flags.block, 1, int64_t{1} << 40, "tokens"));
  BALLAST_RETURN_IF_ERROR(
      CheckCount("--checkpoint-every", flags.checkpoint_every, 1, int64_t{1} << 40, "tokens"));
  if (!flags.checkpoint.empty()) {
    if (flags.per_token) {
      return Status::Expected(Code::kUsage, "--checkpoint", "a run without --per-token", "both");
    }
    BALLAST_RETURN_IF_ERROR(MakeFolder("--checkpoint", flags.checkpoint));
  }
  BALLAST_RETURN_IF_ERROR(
      CheckOutputs({{"--plot", flags.plot}, {"--report", flags.report}}, flags.text, flags.common));
  return CheckGateFlags(flags);
}

// Where the judged runs' values start to count, each index once.
std::vector<int64_t> Tails(const ModelConfig& config, const std::vector<StreamOptions>& plan,
                           int64_t tokens) {
  std::vector<int64_t> tails;
  for (const StreamOptions& options : plan) {
    const std::optional<int64_t> from = JudgedFrom(config, options, tokens);
    if (from && std::find(tails.begin(), tails.end(), *from) == tails.end()) tails.push_back(*from);
  }
  return tails;
}

// The gate's reference. REQUIRES: a judged run in `plan`.
Result<StreamOptions> WantedReference(const EvalFlags& flags, const ModelConfig& config,
                                      const std::vector<StreamOptions>& plan, int64_t tokens) {
  ReferenceChoice choice;
  choice.context = flags.reference_context;
  if (!flags.reference.empty()) {
    BALLAST_ASSIGN_OR_RETURN(choice.policy, ParsePolicy(flags.reference));
  }
  const auto judged = std::find_if(plan.begin(), plan.end(), [&](const StreamOptions& options) {
    return JudgedFrom(config, options, tokens).has_value();
  });
  BALLAST_CHECK(judged != plan.end());
  return GateReference(config, *judged, tokens, choice);
}

// The capacity of a run without -c. One that is judged holds half of what its reference does where both would
// be the same.
Result<int64_t> DefaultToJudge(const EvalFlags& flags, const ModelConfig& config, StreamOptions options,
                               int64_t tokens) {
  options.context = DefaultContext(config);
  if (!flags.gated || options.policy == Policy::kDense || flags.reference_context != 0)
    return options.context;
  BALLAST_ASSIGN_OR_RETURN(const StreamOptions reference, WantedReference(flags, config, {options}, tokens));
  if (reference.policy == Policy::kRecompute || reference.context != options.context) return options.context;
  return options.context / 2;
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
    // A gate that names dense asks what becomes of it, not how much room it has.
    const bool open = options.policy == Policy::kDense && flags.gated && flags.dense_context == 0;
    if (open) options.context = std::min(tokens, kMaxContext);
    if (options.context == 0) {
      BALLAST_ASSIGN_OR_RETURN(options.context, DefaultToJudge(flags, config, options, tokens));
    }
    BALLAST_RETURN_IF_ERROR(CheckRollover(config, options, tokens));
    if (const auto from = JudgedFrom(config, options, tokens); flags.gated && from) {
      BALLAST_RETURN_IF_ERROR(CheckGate(flags.gate, *from, tokens));
    }
    BALLAST_RETURN_IF_ERROR(Stream::Create(*loaded.model, *loaded.pool, options).status());
    plan.push_back(options);
  }
  if (flags.gated && Tails(config, plan, tokens).empty()) {
    return Status::Expected(Code::kUsage, "--gate", "a policy that evicts", "dense alone",
                            "name the policy to judge; dense itself is judged on a text beyond the trained "
                            "length");
  }
  if (flags.gated) {
    BALLAST_ASSIGN_OR_RETURN(const StreamOptions reference, WantedReference(flags, config, plan, tokens));
    BALLAST_RETURN_IF_ERROR(CheckRollover(config, reference, tokens));
    BALLAST_RETURN_IF_ERROR(RenameFlag(Stream::Create(*loaded.model, *loaded.pool, reference).status(),
                                       "--context", "--reference-context"));
    // A run beside itself would always pass.
    const bool all_same = std::all_of(plan.begin(), plan.end(), [&](const StreamOptions& run) {
      return !JudgedFrom(config, run, tokens) || IsReference(run, reference, tokens);
    });
    if (all_same) {
      return Status::Expected(
          Code::kUsage, "--gate", "a run to judge beside its reference",
          fmt::format("{} at {} tokens for both", PolicyName(reference.policy), reference.context),
          "-c C judges a smaller cache, --reference-context another reference");
    }
  }
  return plan;
}

// A file of the folder --checkpoint per run: a name that tells its configuration.
std::string CheckpointPath(const EvalFlags& flags, const StreamOptions& stream) {
  return fmt::format("{}/{}-{}-{}-{}.ckpt", flags.checkpoint, PolicyName(stream.policy), stream.context,
                     stream.pinned, KvTypeName(stream.kv));
}

Result<RolloverRun> RunOne(const EvalFlags& flags, const Loaded& loaded, TokenSource& source,
                           const StreamOptions& stream, const std::vector<int64_t>& tails,
                           const std::string& label) {
  EvalProgress progress(label, flags.common.verbose);
  RolloverOptions options;
  options.stream = stream;
  options.tails = tails;
  options.block = flags.block;
  options.per_token = flags.per_token;
  options.on_progress = [&](int64_t done, int64_t total) { return progress(done, total); };
  MappedFile before;
  if (!flags.checkpoint.empty()) {
    const std::string path = CheckpointPath(flags, stream);
    RolloverCheckpoints& checkpoints = options.checkpoints;
    checkpoints.every = flags.checkpoint_every;
    checkpoints.save = [path](std::span<const uint8_t> image) {
      return WriteFileAtomically(path, {reinterpret_cast<const char*>(image.data()), image.size()},
                                 path + ".tmp");  // one name: a kill leaves no second one
    };
    checkpoints.identity = IdentifyModel(*loaded.file, *loaded.tokenizer, loaded.model->config(),
                                         loaded.model->compute(), MakeLoadOptions(flags.common).weights);
    if (access(path.c_str(), F_OK) == 0) {
      BALLAST_ASSIGN_OR_RETURN(before, MappedFile::Open(path, Code::kInput));
      checkpoints.resume = before.bytes();
      checkpoints.name = path;
    }
  }
  Result<RolloverRun> run = RunRollover(*loaded.model, *loaded.pool, source, options);
  progress.Done();
  if (run.ok() && run->resumed_at > 0) {
    Note(fmt::format("[{}: went on from token {}]", label, Grouped(run->resumed_at)));
  }
  return run;
}

Result<Gate> RunGate(const EvalFlags& flags, const Loaded& loaded, TokenSource& source,
                     const std::vector<StreamOptions>& plan, const std::vector<RolloverRun>& runs) {
  const ModelConfig& config = loaded.model->config();
  std::vector<JudgedRun> judged;
  for (size_t i = 0; i < plan.size(); ++i) {
    const std::optional<int64_t> from = JudgedFrom(config, plan[i], source.size());
    if (from) judged.push_back({&runs[i], *from});
  }
  BALLAST_ASSIGN_OR_RETURN(const StreamOptions wanted, WantedReference(flags, config, plan, source.size()));
  Gate gate;
  const auto ready = std::find_if(runs.begin(), runs.end(),
                                  [&](const RolloverRun& run) { return ServesAsReference(run, wanted); });
  gate.reference_is_a_run = ready != runs.end();
  if (gate.reference_is_a_run) {
    gate.reference = *ready;
  } else {
    BALLAST_ASSIGN_OR_RETURN(gate.reference, RunOne(flags, loaded, source, wanted,
                                                    Tails(config, plan, source.size()), "eval reference"));
  }
  gate.verdict = JudgeGate(flags.gate, gate.reference, judged);
  return gate;
}

constexpr size_t kReportProbe = 1024;  // tokens the sink map of a report is made of

Result<Evaluation> Evaluate(const EvalFlags& flags, const Loaded& loaded, std::span<const Token> tokens) {
  SpanTokens source(tokens);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<StreamOptions> plan, PlanRuns(flags, loaded, source.size()));
  const std::vector<int64_t> tails = Tails(loaded.model->config(), plan, source.size());
  Evaluation evaluation;
  for (const StreamOptions& options : plan) {
    const std::string label = fmt::format("eval {}", PolicyName(options.policy));
    BALLAST_ASSIGN_OR_RETURN(RolloverRun run, RunOne(flags, loaded, source, options, tails, label));
    evaluation.runs.push_back(std::move(run));
  }
  if (flags.gated) {
    BALLAST_ASSIGN_OR_RETURN(evaluation.gate, RunGate(flags, loaded, source, plan, evaluation.runs));
  }
  if (!flags.report.empty()) {
    SpanTokens beginning(tokens.subspan(0, std::min<size_t>(tokens.size(), kReportProbe)));
    ProbeOptions options;
    options.kv = plan.front().kv;
    EvalProgress progress("sink map", flags.common.verbose);
    options.on_progress = [&](int64_t done, int64_t total) { return progress(done, total); };
    Result<SinkMap> map = RunProbe(*loaded.model, *loaded.pool, beginning, options);
    progress.Done();
    // A model without numbers has no map; the runs, which may have taken hours, say what is wrong with it.
    if (!map.ok() && map.status().code() != Code::kModel) return map.status();
    if (map.ok()) evaluation.sink_map = std::move(*map);
  }
  return evaluation;
}

// What is wrong with results that are there: a failed gate first, then runs without a perplexity.
Status Verdict(const Evaluation& evaluation) {
  if (evaluation.gate) {
    BALLAST_RETURN_IF_ERROR(GateStatus(evaluation.gate->verdict, evaluation.gate->reference));
  }
  for (const RolloverRun& run : evaluation.runs) {
    BALLAST_RETURN_IF_ERROR(
        CheckFinite(fmt::format("perplexity ({})", PolicyName(run.policy)), run.perplexity));
  }
  return Status();
}

int RunEval(EvalFlags& flags) {
  if (const Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  ClearInterrupt();
  const Result<Loaded> loaded = LoadModel(flags.common, flags.common.json || !flags.report.empty());
  if (!loaded.ok()) return Fail(loaded.status());
  const Result<std::vector<Token>> tokens = LoadTokens(flags.text, *loaded);
  if (!tokens.ok()) return Fail(tokens.status());
  const Result<Evaluation> evaluation = Evaluate(flags, *loaded, *tokens);
  if (!evaluation.ok()) return Fail(evaluation.status());
  const Status printed = flags.common.json ? PrintJson(EvaluationJson(*evaluation, *loaded, flags.per_token))
                                           : Print(EvaluationTable(*evaluation, *loaded, StyledStdout()));
  if (!printed.ok()) return Fail(printed);
  const Status verdict = Verdict(*evaluation);
  int code = 0;
  if (!flags.report.empty()) {
    const Status written = WriteFileAtomically(flags.report, EvaluationPage(*evaluation, *loaded));
    if (!written.ok()) code = Fail(written);
  }
  const std::string svg = flags.plot.empty() ? "" : EvaluationSvg(*evaluation, *loaded);
  if (const int finished = Finish(flags.plot, svg, verdict); finished != 0) code = finished;
  return code;
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
          "Capacity of the dense runs (default: as --context; with --gate the whole text)")
      ->type_name("C");
  AddFlag(*command, "--per-token", "PER_TOKEN", flags->per_token,
          "Every token's negative log-likelihood in the JSON");
  CLI::Option* gate = AddFlag(*command, "--gate", "GATE", flags->gate,
                              "Exit 5 when the perplexity after roll-over exceeds R times the reference's");
  gate->type_name("R");
  AddFlag(*command, "--reference", "REFERENCE", flags->reference,
          "What the gate compares with: dense, sinks, recompute or window (dense, beyond the trained length "
          "sinks)")
      ->type_name("NAME");
  AddFlag(*command, "--reference-context", "REFERENCE_CONTEXT", flags->reference_context,
          "Its capacity (dense: the text; sinks: the trained length; others: as --context)")
      ->type_name("C");
  AddFlag(*command, "--block", "BLOCK", flags->block, "Tokens per line of the table (1024)")->type_name("N");
  AddFlag(*command, "--checkpoint", "CHECKPOINT", flags->checkpoint,
          "Folder to save the runs in, and to go on from after a kill; one per evaluation")
      ->type_name("DIR");
  AddFlag(*command, "--checkpoint-every", "CHECKPOINT_EVERY", flags->checkpoint_every,
          "Tokens between two saves (65536)")
      ->type_name("N");
  AddFlag(*command, "--report", "REPORT", flags->report,
          "One HTML page: curves, sink map, table, verdict, machine")
      ->type_name("FILE.html");
  AddFlag(*command, "--plot", "PLOT", flags->plot, "Draw the curves into an SVG file")->type_name("FILE.svg");
  return [flags, gate] {
    flags->gated = gate->count() > 0;
    return RunEval(*flags);
  };
}

}  // namespace ballast::app
