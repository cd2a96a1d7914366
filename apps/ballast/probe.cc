// ballast probe: the sink map of a model, head by head, and the verdict.
#include "eval/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "app.h"
#include "eval_common.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using nlohmann::json;

struct ProbeFlags {
  CommonFlags common;
  TextFlags text;
  double threshold = 0.05;
  std::string plot;
};

Status CheckFlags(ProbeFlags& flags) {
  BALLAST_RETURN_IF_ERROR(CheckTextFlags(flags.text, "probe"));
  if (!(flags.threshold > 0 && flags.threshold < 1)) {
    return Status::Expected(Code::kUsage, "--threshold", "a share between 0 and 1",
                            fmt::format("{}", flags.threshold));
  }
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "probe"));
  BALLAST_ASSIGN_OR_RETURN(const std::string policy, OnePolicy(flags.common));
  BALLAST_RETURN_IF_ERROR(MakeStreamOptions(flags.common, policy).status());
  return CheckOutputs({{"--plot", flags.plot}}, flags.text, flags.common);
}

Result<SinkMap> Probe(const ProbeFlags& flags, const Loaded& loaded) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> tokens, LoadTokens(flags.text, loaded));
  BALLAST_ASSIGN_OR_RETURN(const StreamOptions stream, MakeStreamOptions(flags.common, "dense"));
  EvalProgress progress("probe", flags.common.verbose);
  ProbeOptions options;
  options.threshold = flags.threshold;
  options.limit = static_cast<int64_t>(tokens.size());  // --limit has cut them
  options.kv = stream.kv;
  options.on_progress = [&](int64_t done, int64_t total) { return progress(done, total); };
  SpanTokens source(tokens);
  Result<SinkMap> map = RunProbe(*loaded.model, *loaded.pool, source, options);
  progress.Done();
  return map;
}

json Rounded(const std::vector<std::vector<double>>& map) {
  json out = json::array();
  for (const std::vector<double>& row : map) {
    json heads = json::array();
    for (const double v : row) heads.push_back(std::round(v * 1e6) / 1e6);
    out.push_back(std::move(heads));
  }
  return out;
}

json MapJson(const SinkMap& map, const Loaded& loaded) {
  return {{"model", ModelJson(loaded)},
          {"tokens", map.tokens},
          {"threshold", map.threshold},
          {"mean", Rounded(map.mean)},
          {"p10", Rounded(map.p10)},
          {"local_layers", map.local_layers},
          {"heads_over_threshold", map.heads_over_threshold},
          {"heads_always_over", map.heads_always_over},
          {"verdict", SinkVerdictName(map.verdict)},
          {"why", map.why}};
}

// Ten steps of darkness; the first is for shares at or under the threshold.
constexpr std::string_view kShades = ".:-=+*#%@";
constexpr int kColours[] = {238, 24, 25, 31, 36, 71, 107, 148, 190};

size_t Shade(double share, double threshold) {
  if (!(share > threshold)) return 0;
  const double rank = (share - threshold) / (1 - threshold) * static_cast<double>(kShades.size() - 1);
  return std::min(kShades.size() - 1, 1 + static_cast<size_t>(rank));
}

std::string HeatText(const SinkMap& map, bool colour) {
  std::string out = "layer  heads: mean share of attention on token 0\n";
  for (size_t layer = 0; layer < map.mean.size(); ++layer) {
    out += fmt::format("{:5}  ", layer);
    const auto& local = map.local_layers;
    if (std::find(local.begin(), local.end(), static_cast<int>(layer)) != local.end()) {
      out += "local window\n";
      continue;
    }
    const bool narrow = map.mean[layer].size() > 32;
    for (const double share : map.mean[layer]) {
      const size_t shade = Shade(share, map.threshold);
      const std::string cell(narrow ? 1 : 2, kShades[shade]);
      out += Styled(colour, fmt::format("38;5;{}", kColours[shade]), cell);
    }
    out += "\n";
  }
  out += fmt::format("       . up to {:g}", map.threshold);
  const double step = (1 - map.threshold) / static_cast<double>(kShades.size() - 1);
  for (size_t i = 1; i < kShades.size(); ++i) {
    out += fmt::format("  {} {:.2f}", kShades[i], map.threshold + step * static_cast<double>(i));
  }
  return out + "\n";
}

std::string MapText(const SinkMap& map, const Loaded& loaded, bool colour) {
  std::string out =
      fmt::format("Sink map of {} over {} tokens\n\n", loaded.model->config().name, Grouped(map.tokens));
  out += HeatText(map, colour);
  const std::string_view style = map.verdict == SinkVerdict::kVulnerable ? "31"
                                 : map.verdict == SinkVerdict::kMild     ? "33"
                                                                         : "32";
  out += "\n" + Styled(colour, style, std::string(SinkVerdictName(map.verdict))) + ": " + map.why + "\n";
  return out;
}

int RunProbeCommand(ProbeFlags& flags) {
  if (const Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  ClearInterrupt();
  const Result<Loaded> loaded = LoadModel(flags.common, flags.common.json);
  if (!loaded.ok()) return Fail(loaded.status());
  const Result<SinkMap> map = Probe(flags, *loaded);
  if (!map.ok()) return Fail(map.status());
  if (!map->warning.empty()) Warn(map->warning);
  const Status printed =
      flags.common.json ? PrintJson(MapJson(*map, *loaded)) : Print(MapText(*map, *loaded, StyledStdout()));
  if (!printed.ok()) return Fail(printed);
  return Finish(flags.plot, flags.plot.empty() ? "" : SinkMapSvg(*map, *loaded), Status());
}

}  // namespace

Runner AddProbe(CLI::App& app) {
  auto flags = std::make_shared<ProbeFlags>();
  flags->text.limit = 1024;
  CLI::App* command = app.add_subcommand("probe", "Which heads lean on the first token, and the verdict");
  AddCommonFlags(*command, flags->common);
  AddTextFlags(*command, flags->text);
  AddFlag(*command, "--threshold", "THRESHOLD", flags->threshold,
          "Share of attention on token 0 above which a head counts (0.05)")
      ->type_name("SHARE");
  AddFlag(*command, "--plot", "PLOT", flags->plot, "Draw the map into an SVG file")->type_name("FILE.svg");
  command->footer(
      "The map is always of a dense run from the first token, with that one token pinned:\n"
      "--policy, --context and --sinks do not change it.");
  return [flags] { return RunProbeCommand(*flags); };
}

}  // namespace ballast::app
