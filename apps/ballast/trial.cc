// `ballast trial`: puts the collapse monitor to the test, on a text that is fed or on streams that write
// freely.
#include "eval/trial.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include "app.h"
#include "eval/nll_stats.h"
#include "eval/rollover.h"
#include "eval_common.h"
#include "terminal.h"

namespace ballast::app {
namespace {

struct TrialFlags {
  CommonFlags common;
  TextFlags text;
  SamplingFlags sampling;
  int64_t streams = 0, length = 2048, chunk = 256;
  bool rescue = false;
};

using nlohmann::json;

json AlarmJson(const Alarm& alarm, int64_t context) {
  return {{"stream", alarm.stream},
          {"position", alarm.position},
          {"since", alarm.since},
          {"reason", AilmentName(alarm.reason)},
          {"after_roll_over", alarm.position - context},
          {"loop_period", alarm.loop_period},
          {"loop_share", std::round(alarm.loop_share * 1000) / 1000},
          {"loop_tokens", alarm.loop_tokens}};
}

// Under a policy that keeps the sinks nothing but a loop is a reason to cry.
bool IsFalse(const Alarm& alarm) {
  return alarm.reason != Ailment::kRepetition || alarm.loop_share < kConfirmedLoop;
}

json TrialJson(const TrialRun& run, const TrialFlags& flags, Policy policy) {
  json alarms = json::array();
  int64_t unconfirmed = 0;
  for (const Alarm& alarm : run.alarms) {
    alarms.push_back(AlarmJson(alarm, run.context));
    unconfirmed += IsFalse(alarm);
  }
  json out = {{"policy", PolicyName(policy)},
              {"context", run.context},
              {"streams", std::max<int64_t>(1, flags.streams)},
              {"tokens", run.tokens},
              {"alarms", std::move(alarms)},
              {"lowest_share", run.lowest_share},
              {"highest_rise", run.highest_rise},
              {"monitor_seconds", run.monitor_seconds},
              {"other_seconds", run.other_seconds}};
  if (policy == Policy::kSinks) out["false_alarms"] = unconfirmed;
  return out;
}

double Perplexity(const std::vector<float>& nll, size_t from, size_t count) {
  double sum = 0;
  for (size_t i = from; i < from + count; ++i) sum += double{nll[i]};
  return std::exp(sum / static_cast<double>(count));
}

// What follows the first rescue, beside the same tokens in a stream that kept its sinks all along.
Result<json> CompareRescue(const Loaded& loaded, TokenSource& source, const TrialOptions& options,
                           const TrialRun& rescued) {
  if (rescued.rescues.empty()) return json(nullptr);
  TrialOptions calm = options;
  calm.rescue = false;
  calm.stream.policy = Policy::kSinks;
  BALLAST_ASSIGN_OR_RETURN(const TrialRun run,
                           RunFedTrial(*loaded.model, *loaded.tokenizer, *loaded.pool, source, calm));
  const auto from = static_cast<size_t>(rescued.rescues.front());
  const size_t count = rescued.nll.size() > from ? rescued.nll.size() - from : 0;
  if (count == 0) return json(nullptr);
  const double mine = Perplexity(rescued.nll, from, count), its = Perplexity(run.nll, from, count);
  return json{
      {"from", from}, {"tokens", count}, {"perplexity", mine}, {"undisturbed", its}, {"ratio", mine / its}};
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Result<json> Free(const TrialFlags& flags, const Loaded& loaded, const TrialOptions& base) {
  FreeTrialOptions options;
  static_cast<TrialOptions&>(options) = base;
  options.sampler = flags.sampling.options;
  options.streams = flags.streams;
  options.length = flags.length;
  if (!flags.text.text.given) {
    return Status::Expected(Code::kUsage, "trial --streams", "-f TEXT, an opening a line", "none");
  }
  BALLAST_ASSIGN_OR_RETURN(const std::string text, ReadAll(flags.text.text.value));
  options.openings = Lines(text);
  if (options.openings.empty()) {
    return Status::Expected(Code::kInput, flags.text.text.value, "an opening a line", "no line");
  }
  BALLAST_ASSIGN_OR_RETURN(const TrialRun run,
                           RunFreeTrial(*loaded.model, *loaded.tokenizer, *loaded.pool, options));
  return TrialJson(run, flags, options.stream.policy);
}

Result<json> Fed(const TrialFlags& flags, const Loaded& loaded, const TrialOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> tokens, LoadTokens(flags.text, loaded));
  BALLAST_RETURN_IF_ERROR(
      CheckRollover(loaded.model->config(), options.stream, static_cast<int64_t>(tokens.size())));
  SpanTokens source(tokens);
  BALLAST_ASSIGN_OR_RETURN(const TrialRun run,
                           RunFedTrial(*loaded.model, *loaded.tokenizer, *loaded.pool, source, options));
  json out = TrialJson(run, flags, options.stream.policy);
  out["perplexity"] = Perplexity(run.nll, 0, run.nll.size());
  if (options.rescue) {
    out["rescues"] = run.rescues;
    BALLAST_ASSIGN_OR_RETURN(out["after_rescue"], CompareRescue(loaded, source, options, run));
  }
  return out;
}

std::string ForPeople(const json& out) {
  std::string text = fmt::format("{} tokens under {}, cache of {}\n", Grouped(out["tokens"].get<int64_t>()),
                                 out["policy"].get<std::string>(), Grouped(out["context"].get<int64_t>()));
  for (const json& a : out["alarms"]) {
    const auto after = a["after_roll_over"].get<int64_t>();
    text += fmt::format("  stream {}: {} at {}, {} {} roll-over, suspected at {}\n",
                        a["stream"].get<int64_t>(), a["reason"].get<std::string>(),
                        Grouped(a["position"].get<int64_t>()), Grouped(std::abs(after)),
                        after < 0 ? "before" : "after", Grouped(a["since"].get<int64_t>()));
  }
  if (out["alarms"].empty()) text += "  no alarm\n";
  if (const auto after = out.find("after_rescue"); after != out.end() && !after->is_null()) {
    text += fmt::format("after the rescue: perplexity {:.3f}, undisturbed {:.3f}, ratio {:.4f}\n",
                        (*after)["perplexity"].get<double>(), (*after)["undisturbed"].get<double>(),
                        (*after)["ratio"].get<double>());
  }
  const double cost = out["monitor_seconds"].get<double>(), other = out["other_seconds"].get<double>();
  return text + fmt::format("the monitor took {:.2f}% of the time\n", 100 * cost / (cost + other));
}

Status CheckFlags(TrialFlags& flags) {
  BALLAST_RETURN_IF_ERROR(CheckTextFlags(flags.text, "trial"));
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "trial"));
  BALLAST_RETURN_IF_ERROR(CheckCount("--streams", flags.streams, 0, 4096));
  if (flags.streams > 0 && (flags.rescue || flags.text.limit >= 0)) {
    return Status::Expected(Code::kUsage, "--streams", "streams that write freely alone",
                            flags.rescue ? "--rescue too" : "--limit too");
  }
  BALLAST_RETURN_IF_ERROR(CheckCount("--length", flags.length, 1, int64_t{1} << 40, "tokens"));
  return CheckSamplingFlags(flags.sampling);
}

int RunTrial(TrialFlags& flags) {
  if (const Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  const Result<std::string> policy = OnePolicy(flags.common);
  if (!policy.ok()) return Fail(policy.status());
  Result<StreamOptions> stream = MakeStreamOptions(flags.common, *policy);
  if (!stream.ok()) return Fail(stream.status());
  stream->chunk = flags.chunk;
  ClearInterrupt();
  const Result<Loaded> loaded = LoadModel(flags.common, flags.common.json);
  if (!loaded.ok()) return Fail(loaded.status());
  EvalProgress progress("trial", flags.common.verbose);
  TrialOptions options;
  options.stream = *stream;
  options.rescue = flags.rescue;
  options.on_progress = [&](int64_t done, int64_t total) { return progress(done, total); };
  Result<json> out = flags.streams > 0 ? Free(flags, *loaded, options) : Fed(flags, *loaded, options);
  progress.Done();
  if (!out.ok()) return Fail(out.status());
  if (flags.common.json) (*out)["model"] = ModelJson(*loaded);
  const Status printed = flags.common.json ? PrintJson(*out) : Print(ForPeople(*out));
  if (!printed.ok()) return Fail(printed);
  // A text that was fed has a perplexity.
  const Status finite =
      out->contains("perplexity") ? CheckFinite("perplexity", (*out)["perplexity"].get<double>()) : Status();
  return finite.ok() ? 0 : Fail(finite);
}

}  // namespace

Runner AddTrial(CLI::App& app) {
  auto flags = std::make_shared<TrialFlags>();
  CLI::App* trial =
      app.add_subcommand("trial", "Does the collapse monitor notice, and is it quiet otherwise?");
  AddCommonFlags(*trial, flags->common);
  AddTextFlags(*trial, flags->text);
  AddFlag(*trial, "--streams", "STREAMS", flags->streams,
          "So many streams write freely, turn ends banned; -f: an opening a line (0: the text is fed)");
  AddFlag(*trial, "--length", "LENGTH", flags->length, "Tokens that each of them writes (2048)");
  AddFlag(*trial, "--chunk", "CHUNK", flags->chunk, "Tokens fed at once (256)")->type_name("N");
  AddFlag(*trial, "--rescue", "RESCUE", flags->rescue,
          "At sink loss, rescue; then compare with a stream that kept its sinks");
  AddSamplingFlags(*trial, flags->sampling);
  return [flags] { return RunTrial(*flags); };
}

}  // namespace ballast::app
