// ballast calibrate: the smallest cache that is as good as the best, and a profile that says so.
#include "eval/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "app.h"
#include "eval_common.h"
#include "profile.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using nlohmann::json;

struct CalibrateFlags {
  CommonFlags common;
  TextFlags text;
  ProfileFlags profile;
  std::string contexts;
  std::string sinks = "0,1,2,4,8,16";
  double tolerance = 0.5;  // percent
};

// "512,1024" as ascending numbers, each once.
Result<std::vector<int64_t>> ParseList(const std::string& flag, const std::string& text) {
  std::vector<int64_t> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t value = 0;
    if (ParseValue(text.substr(begin, end - begin), value) != nullptr) {
      return Status::Expected(Code::kUsage, flag, "numbers with commas between them", "\"" + text + "\"");
    }
    out.push_back(value);
    begin = end + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Where the profile goes; empty: nowhere.
Result<std::string> OutputPath(const CalibrateFlags& flags) {
  if (flags.profile.off) return std::string();
  if (!flags.profile.path.empty()) return flags.profile.path;
  BALLAST_ASSIGN_OR_RETURN(const std::string model, FindModel(flags.common));
  return ProfilePath(model);
}

Result<CalibrateOptions> MakeOptions(CalibrateFlags& flags) {
  CalibrateOptions options;
  BALLAST_RETURN_IF_ERROR(CheckTextFlags(flags.text, "calibrate"));
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "calibrate"));
  if (!flags.common.policies.empty() || flags.common.context != 0 || flags.common.sinks_given) {
    return Status::Expected(Code::kUsage, "calibrate",
                            "--contexts and --sinks-list, of which it tries every pair",
                            "--policy, --context or --sinks");
  }
  BALLAST_ASSIGN_OR_RETURN(const StreamOptions stream, MakeStreamOptions(flags.common, "sinks"));
  options.kv = stream.kv;
  if (!flags.contexts.empty()) {
    BALLAST_ASSIGN_OR_RETURN(options.contexts, ParseList("--contexts", flags.contexts));
  }
  BALLAST_ASSIGN_OR_RETURN(options.sinks, ParseList("--sinks-list", flags.sinks));
  if (!(flags.tolerance >= 0 && flags.tolerance <= 100)) {
    return Status::Expected(Code::kUsage, "--tolerance", "0 to 100 percent",
                            fmt::format("{}", flags.tolerance));
  }
  options.tolerance = flags.tolerance / 100;
  BALLAST_ASSIGN_OR_RETURN(const std::string path, OutputPath(flags));
  const Status writable = CheckOutputs({{"--profile", path}}, flags.text, flags.common);
  if (!writable.ok()) {
    return Status(writable.code(), writable.message(),
                  "--profile FILE puts the profile elsewhere, --no-profile writes none");
  }
  return options;
}

// Powers of two from 512 to the trained length and half of the text.
std::vector<int64_t> DefaultContexts(const ModelConfig& config, int64_t tokens) {
  std::vector<int64_t> out;
  const int64_t trained = config.trained_context > 0 ? config.trained_context : 4096;
  for (int64_t c = 512; c <= std::min<int64_t>({trained, tokens / 2, 4096}); c *= 2) out.push_back(c);
  if (out.empty()) out.push_back(std::max<int64_t>(32, tokens / 2));
  return out;
}

json CellJson(const CalibrationCell& cell) {
  return {{"context", cell.context},
          {"sinks", cell.sinks},
          {"perplexity", cell.perplexity},
          {"to_best", cell.to_best.ratio},
          {"ci_low", cell.to_best.low},
          {"ci_high", cell.to_best.high},
          {"tokens_per_second", cell.tokens_per_second},
          {"cpu_ms_per_token", 1000 * cell.cpu_seconds_per_token},
          {"kv_bytes", cell.kv_bytes}};
}

json CalibrationJson(const Calibration& calibration, const CalibrateFlags& flags, const Loaded& loaded) {
  json cells = json::array();
  for (const CalibrationCell& cell : calibration.cells) cells.push_back(CellJson(cell));
  const CalibrationCell& chosen = calibration.cells[calibration.chosen];
  return {{"ballast_profile", 1},
          {"model", ModelJson(loaded)},
          {"context", chosen.context},
          {"sinks", chosen.sinks},
          {"kv", flags.common.kv},
          {"tolerance", calibration.tolerance},
          {"certain", calibration.certain},
          {"tokens", calibration.tokens},
          {"compared", calibration.compared},
          {"method", kIntervalMethod},
          {"best", CellJson(calibration.cells[calibration.best])},
          {"cells", std::move(cells)},
          {"version", BALLAST_VERSION}};
}

std::string CalibrationText(const Calibration& c, const Loaded& loaded) {
  std::string out = fmt::format(
      "Calibration of {}: the last {} of {} tokens, after every cache was full\n\n"
      "{:>9}{:>7}{:>12}{:>10}{:>18}{:>10}{:>14}{:>12}\n",
      loaded.model->config().name, Grouped(c.compared), Grouped(c.tokens), "context", "sinks", "perplexity",
      "to best", "95%", "tokens/s", "CPU ms/token", "cache");
  for (size_t i = 0; i < c.cells.size(); ++i) {
    const CalibrationCell& cell = c.cells[i];
    if (i > 0 && cell.context != c.cells[i - 1].context) out += "\n";
    const std::string interval = std::isfinite(cell.to_best.low)
                                     ? fmt::format("{:.4f} to {:.4f}", cell.to_best.low, cell.to_best.high)
                                     : "";
    out += fmt::format("{:>9}{:>7}{:>12}{:>10}{:>18}{:>10.0f}{:>14.3f}{:>12}{}{}\n", Grouped(cell.context),
                       cell.sinks, Number(cell.perplexity, 3), Number(cell.to_best.ratio, 4), interval,
                       cell.tokens_per_second, 1000 * cell.cpu_seconds_per_token,
                       Bytes(static_cast<double>(cell.kv_bytes)), i == c.best ? "  best" : "",
                       i == c.chosen ? "  chosen" : "");
  }
  const CalibrationCell& chosen = c.cells[c.chosen];
  out += fmt::format("\nThe smallest within {:g}% of the best: -c {} --sinks {}{}\n", 100 * c.tolerance,
                     chosen.context, chosen.sinks,
                     c.certain ? "" : " (its interval reaches beyond that: a longer text would tell)");
  return out;
}

int RunCalibrate(CalibrateFlags& flags) {
  Result<CalibrateOptions> options = MakeOptions(flags);
  if (!options.ok()) return Fail(options.status());
  ClearInterrupt();
  const Result<Loaded> loaded = LoadModel(flags.common, true);
  if (!loaded.ok()) return Fail(loaded.status());
  const Result<std::vector<Token>> tokens = LoadTokens(flags.text, *loaded);
  if (!tokens.ok()) return Fail(tokens.status());
  const auto n = static_cast<int64_t>(tokens->size());
  if (options->contexts.empty()) options->contexts = DefaultContexts(loaded->model->config(), n);
  if (const Status status = CheckCalibration(*options, n); !status.ok()) {
    return Fail(RenameFlag(RenameFlag(status, "--context:", "--contexts:"), "--sinks:", "--sinks-list:"));
  }
  const size_t cells = options->contexts.size() * options->sinks.size();
  EvalProgress progress("calibrate", flags.common.verbose);
  options->on_progress = [&](size_t cell, int64_t done, int64_t total) {
    return progress(static_cast<int64_t>(cell) * total + done, static_cast<int64_t>(cells) * total);
  };
  SpanTokens source(*tokens);
  const Result<Calibration> calibration = RunCalibration(*loaded->model, *loaded->pool, source, *options);
  progress.Done();
  if (!calibration.ok()) return Fail(calibration.status());
  const json document = CalibrationJson(*calibration, flags, *loaded);
  const Status printed =
      flags.common.json ? PrintJson(document) : Print(CalibrationText(*calibration, *loaded));
  if (!printed.ok()) return Fail(printed);
  const Result<std::string> path = OutputPath(flags);
  if (!path.ok()) return Fail(path.status());
  if (path->empty()) return 0;
  const Status written =
      WriteFileAtomically(*path, document.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  if (!written.ok()) return Fail(written);
  Note(fmt::format("[profile written to {}: run, chat and serve read it]", *path));
  return 0;
}

}  // namespace

Runner AddCalibrate(CLI::App& app) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command = app.add_subcommand("calibrate", "The smallest cache that is as good as the best");
  AddCommonFlags(*command, flags->common);
  AddTextFlags(*command, flags->text);
  AddFlag(
      *command, "--contexts", "CONTEXTS", flags->contexts,
      "Capacities to try (default: powers of two from 512 to 4096, the trained length and half of the text)")
      ->type_name("C,C,...");
  AddFlag(*command, "--sinks-list", "SINKS_LIST", flags->sinks, "Pinned tokens to try (0,1,2,4,8,16)")
      ->type_name("N,N,...");
  AddFlag(*command, "--tolerance", "TOLERANCE", flags->tolerance,
          "How much worse than the best is as good, in percent (0.5)")
      ->type_name("PERCENT");
  AddFlag(*command, "--profile", "PROFILE", flags->profile.path,
          "Where the result goes (default: beside the model, where run, chat and serve look)")
      ->type_name("FILE");
  AddFlag(*command, "--no-profile", "NO_PROFILE", flags->profile.off, "Write none");
  command->footer(
      "Every pair streams the whole text once. A larger cache is nearly always a little better on text, so\n"
      "the choice is between quality and memory: --tolerance says where.");
  return [flags] { return RunCalibrate(*flags); };
}

}  // namespace ballast::app
