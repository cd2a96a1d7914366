// ballast streameval: what a stream still knows, by distance. Stability, not recall.
#include "eval/streameval.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "app.h"
#include "eval_common.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using nlohmann::json;

struct StreamEvalFlags {
  CommonFlags common;
  std::vector<std::string> distances;
  int64_t questions = 50;
  uint64_t seed = 1;
};

Result<StreamEvalOptions> MakeOptions(const StreamEvalFlags& flags) {
  StreamEvalOptions options;
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "streameval"));
  BALLAST_ASSIGN_OR_RETURN(const std::string policy, OnePolicy(flags.common));
  BALLAST_ASSIGN_OR_RETURN(options.stream, MakeStreamOptions(flags.common, policy));
  BALLAST_RETURN_IF_ERROR(CheckCount("--questions", flags.questions, 1, 100000));
  for (const std::string& text : flags.distances) {
    int64_t lines = 0;
    if (ParseValue(text, lines) != nullptr || lines < 1 || lines > kMostDistance) {
      return Status::Expected(Code::kUsage, "--distance", fmt::format("1 to {} lines", kMostDistance),
                              "\"" + text + "\"");
    }
    options.distances.push_back(lines);
  }
  options.questions = flags.questions;
  options.seed = flags.seed;
  return options;
}

json ResultJson(const StreamEvalResult& result, const Loaded& loaded) {
  json points = json::array();
  for (const StreamEvalPoint& p : result.points) {
    points.push_back({{"lines", p.lines},
                      {"tokens", p.tokens},
                      {"visible", p.visible},
                      {"asked", p.asked},
                      {"right", p.right},
                      {"accuracy", static_cast<double>(p.right) / static_cast<double>(p.asked)},
                      {"accuracy_ci", {p.accuracy.low, p.accuracy.high}},
                      {"likelihood", p.likelihood},
                      {"likelihood_ci", {p.likelihood_interval.low, p.likelihood_interval.high}}});
  }
  return {{"model", ModelJson(loaded)},
          {"policy", PolicyName(result.policy)},
          {"context", result.context},
          {"sinks", result.sinks},
          {"words", result.words},
          {"chance", 1.0 / static_cast<double>(result.words)},
          {"lines", result.lines},
          {"tokens", result.tokens},
          {"tokens_per_line", result.tokens_per_line},
          {"example", result.example},
          {"points", std::move(points)}};
}

std::string Range(const Interval& interval) {
  if (!(interval.low <= interval.high)) return "unknown";  // of one question
  return fmt::format("{:.3f} to {:.3f}", interval.low, interval.high);
}

std::string ResultText(const StreamEvalResult& result, const Loaded& loaded) {
  std::string out = fmt::format(
      "StreamEval of {}: {} at {}, {} lines like \"{}\"\nAnswers among {} words; chance is {:.3f}. "
      "Stability, not "
      "recall.\n\n",
      loaded.model->config().name, PolicyName(result.policy), Grouped(result.context), Grouped(result.lines),
      result.example, result.words, 1.0 / static_cast<double>(result.words));
  out += fmt::format("{:>10}{:>10}{:>12}{:>10}{:>18}{:>12}{:>18}\n", "lines ago", "tokens", "in window",
                     "accuracy", "95%", "likelihood", "95%");
  for (const StreamEvalPoint& p : result.points) {
    out += fmt::format("{:>10}{:>10.0f}{:>11.0f}%{:>10.3f}{:>18}{:>12.3f}{:>18}\n", Grouped(p.lines),
                       p.tokens, 100 * p.visible, static_cast<double>(p.right) / static_cast<double>(p.asked),
                       Range(p.accuracy), p.likelihood, Range(p.likelihood_interval));
  }
  return out;
}

int RunStreamEvalCommand(const StreamEvalFlags& flags) {
  Result<StreamEvalOptions> options = MakeOptions(flags);
  if (!options.ok()) return Fail(options.status());
  ClearInterrupt();
  const Result<Loaded> loaded = LoadModel(flags.common, flags.common.json);
  if (!loaded.ok()) return Fail(loaded.status());
  EvalProgress progress("streameval", flags.common.verbose);
  options->on_progress = [&](int64_t done, int64_t total) { return progress(done, total); };
  const Result<StreamEvalResult> result =
      RunStreamEval(*loaded->model, *loaded->tokenizer, *loaded->pool, *options);
  progress.Done();
  if (!result.ok()) return Fail(result.status());
  const Status printed =
      flags.common.json ? PrintJson(ResultJson(*result, *loaded)) : Print(ResultText(*result, *loaded));
  return printed.ok() ? 0 : Fail(printed);
}

}  // namespace

Runner AddStreamEval(CLI::App& app) {
  auto flags = std::make_shared<StreamEvalFlags>();
  CLI::App* command = app.add_subcommand("streameval", "What a stream still knows, by distance");
  AddCommonFlags(*command, flags->common);
  AddFlag(*command, "--distance", "DISTANCE", flags->distances,
          "Ask about the line N lines back, odd; repeatable (default: shares of the window, and beyond)")
      ->type_name("N");
  AddFlag(*command, "--questions", "QUESTIONS", flags->questions, "Questions per distance (50)");
  AddFlag(*command, "-s,--seed", "SEED", flags->seed, "Same seed, same list (1)");
  command->footer(
      "An endless list of lines such as \"amber falcon stone\" is fed; questions repeat a line's key and "
      "ask\n"
      "for its word. Inside the window the model can look it up; outside it can only guess.");
  return [flags] { return RunStreamEvalCommand(*flags); };
}

}  // namespace ballast::app
