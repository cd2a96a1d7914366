// `ballast watch`: reads a growing log without end, says of every line how new it is.
#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <tuple>

#include "app.h"
#include "engine/model_identity.h"
#include "watcher.h"

namespace ballast::app {
namespace {

constexpr int64_t kContext = 2048;  // a window of some forty to a hundred lines, and a small state to save

struct WatchFlags {
  CommonFlags common;
  WatchOptions options;
  int64_t max_line = 1024;
  int64_t explain_tokens = 48;
  bool explain = false;
};

Status CheckFlags(WatchFlags& flags) {
  WatchOptions& o = flags.options;
  if (o.paths.log.empty()) {
    return Status::Expected(Code::kUsage, "watch", "a log FILE, or - for stdin", "none",
                            "ballast watch app.log");
  }
  BALLAST_RETURN_IF_ERROR(CheckCount("--max-line", flags.max_line, 16, 1 << 20));
  BALLAST_RETURN_IF_ERROR(CheckCount("--max-lag", o.max_lag, 0, int64_t{1} << 40));
  BALLAST_RETURN_IF_ERROR(CheckCount("--warm-up", o.novelty.warm_up, 0, int64_t{1} << 40));
  BALLAST_RETURN_IF_ERROR(CheckCount("--explain-tokens", flags.explain_tokens, 1, 512));
  for (const auto& [flag, value, least] : {std::tuple{"--save-every", o.save_every, "at least 0"},
                                           {"--threshold", o.novelty.threshold, "more than 0"}}) {
    const bool good = std::isfinite(value) && (value > 0 || (value == 0 && flag[2] == 's'));
    if (!good) return Status::Expected(Code::kUsage, flag, least, fmt::format("{}", value));
  }
  o.source.keep = static_cast<size_t>(flags.max_line);
  // A line that is still being written belongs to the run that sees its end.
  o.source.last_line = o.paths.state.empty();
  o.explain_tokens = flags.explain ? flags.explain_tokens : 0;
  if (flags.common.context == 0) flags.common.context = kContext;
  return RefusePinSystem(flags.common, "watch");
}

// SIGTERM and SIGHUP end it as Ctrl-C does, with the state saved. One that is ignored stays ignored.
void StopOnTermination() {
  struct sigaction stop {};
  sigaction(SIGINT, nullptr, &stop);
  for (const int number : {SIGTERM, SIGHUP}) {
    struct sigaction old {};
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    sigaction(number, &stop, nullptr);
  }
}

int Watch(WatchFlags& flags) {
  if (Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  Result<std::string> policy = OnePolicy(flags.common);
  if (!policy.ok()) return Fail(policy.status());
  Result<StreamOptions> options = MakeStreamOptions(flags.common, *policy);
  if (!options.ok()) return Fail(options.status());
  if (options->policy == Policy::kDense || options->policy == Policy::kRecompute) {
    return Fail(Status::Expected(Code::kUsage, "--policy", "sinks or window, which never fill up", *policy));
  }
  StopOnTermination();
  WatchFiles files;
  if (Status status = files.Open(flags.options.paths); !status.ok()) return Fail(status);
  Result<Loaded> loaded = LoadModel(flags.common);
  if (!loaded.ok()) return Fail(loaded.status());
  const LoadOptions load = MakeLoadOptions(flags.common);
  const ModelIdentity identity = IdentifyModel(*loaded->file, *loaded->tokenizer, loaded->model->config(),
                                               loaded->model->compute(), load.weights);
  Result<std::unique_ptr<Stream>> stream = Stream::Create(*loaded->model, *loaded->pool, *options);
  if (!stream.ok()) return Fail(stream.status());
  WarnBeyondTraining(**stream);
  Watcher watcher(
      flags.options, files, *loaded, **stream,
      fmt::format("{} {:016x}{:016x} {}", identity.name, identity.high, identity.low, flags.common.compute));
  if (Status status = watcher.Open(); !status.ok()) return Fail(status);
  const Status status = watcher.Run();
  return status.ok() ? 0 : Fail(status);
}

void AddWatchFlags(CLI::App& watch, WatchFlags& flags) {
  WatchOptions& o = flags.options;
  AddFlag(watch, "log", "LOG", o.paths.log, "The log: a file that is followed by its name, or - for stdin")
      ->type_name("FILE");
  const std::string input = "Input", results = "Results", alarms = "Alarms";
  AddFlag(watch, "--once", "ONCE", o.source.once, "Stop at the end of the file, do not wait for more")
      ->group(input);
  AddFlag(watch, "--from-end", "FROM_END", o.source.from_end, "Begin with what is written from now on")
      ->group(input);
  AddFlag(watch, "--wait", "WAIT", o.source.wait, "Wait for a file that is not there yet")->group(input);
  AddFlag(watch, "--max-line", "MAX_LINE", flags.max_line, "Bytes of a line that are scored (1024)")
      ->group(input);
  AddFlag(watch, "--max-lag", "MAX_LAG", o.max_lag,
          "More than N unread bytes: skip the oldest lines, and say so (0: never)")
      ->group(input);
  AddFlag(watch, "-o,--out", "OUT", o.paths.out, "Append results here instead of stdout")
      ->type_name("FILE")
      ->group(results);
  AddFlag(watch, "--state", "STATE", o.paths.state,
          "Survive restarts: place, stream and what was learnt, saved here")
      ->type_name("FILE")
      ->group(results);
  AddFlag(watch, "--save-every", "SAVE_EVERY", o.save_every, "Seconds between saves (30)")->group(results);
  AddFlag(watch, "--metrics", "METRICS", o.paths.metrics,
          "Keep lag and counters here, for Prometheus' textfile collector")
      ->type_name("FILE")
      ->group(results);
  AddFlag(watch, "--only-alarms", "ONLY_ALARMS", o.only_alarms, "Leave out lines that are no alarms")
      ->group(results);
  AddFlag(watch, "--threshold", "THRESHOLD", o.novelty.threshold,
          "Score, in bits, from which a line is an alarm (7)")
      ->group(alarms);
  AddFlag(watch, "--warm-up", "WARM_UP", o.novelty.warm_up, "Lines before the first alarm (200)")
      ->group(alarms);
  AddFlag(watch, "--normal", "NORMAL", o.paths.normal,
          "Lines that are normal: no alarm for them or others that differ in numbers; reread when it changes")
      ->type_name("FILE")
      ->group(alarms);
  AddFlag(watch, "--explain", "EXPLAIN", flags.explain,
          "The model's own sentence about the first line of a run of alarms")
      ->group(alarms);
  AddFlag(watch, "--explain-tokens", "EXPLAIN_TOKENS", flags.explain_tokens, "Its most tokens (48)")
      ->group(alarms);
}

}  // namespace

Runner AddWatch(CLI::App& app) {
  CLI::App* watch =
      app.add_subcommand("watch", "A growing log in, a JSON line for each of its lines out: how new it is");
  auto flags = std::make_shared<WatchFlags>();
  AddWatchFlags(*watch, *flags);
  AddCommonFlags(*watch, flags->common);
  watch->footer(
      "It finds novelty, not badness: a harmless line never seen before may alarm, a grave one that comes "
      "every "
      "day does not.\n"
      "Unless -c is given, the cache holds 2,048 tokens.\n\n"
      "  ballast watch /var/log/app.log --state app.state --out app.jsonl\n"
      "  journalctl -f | ballast watch - --only-alarms --explain");
  return [flags] { return Watch(*flags); };
}

}  // namespace ballast::app
