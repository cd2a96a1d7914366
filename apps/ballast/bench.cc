// `ballast bench`: tokens per second and latency of a model on this machine, beside the machine's own limits.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "app.h"
#include "eval/throughput.h"
#include "kernels/isa.h"
#include "kernels/machine.h"
#include "terminal.h"

namespace ballast::app {
namespace {

struct BenchFlags {
  CommonFlags common;
  std::vector<int64_t> prefill, depths, sessions;
  int64_t decode = 64;
  int64_t stream = 0;
  int64_t reps = 3;
  int64_t chunk = 0;  // 0: the stream's own
  bool test_decode = false;
  CLI::Option* prefill_option = nullptr;
  CLI::Option* decode_option = nullptr;
  CLI::Option* depth_option = nullptr;
  CLI::Option* sessions_option = nullptr;
  CLI::Option* stream_option = nullptr;
};

// "512,8000"
const char* ParseList(const std::string& text, std::vector<int64_t>& values) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t value = 0;
    if (ParseValue(text.substr(begin, end - begin), value) != nullptr) return "whole numbers, as in 512,8000";
    values.push_back(value);
    begin = end + 1;
  }
  return nullptr;
}

Status CheckAll(const std::string& flag, int64_t least, int64_t most, const std::vector<int64_t>& values) {
  for (const int64_t value : values) BALLAST_RETURN_IF_ERROR(CheckCount(flag, value, least, most));
  return Status();
}

Status CheckFlags(const BenchFlags& flags) {
  constexpr int64_t kMost = 1'000'000'000;
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags.common, "bench"));
  BALLAST_RETURN_IF_ERROR(CheckAll("--prefill", 1, kMost, flags.prefill));
  BALLAST_RETURN_IF_ERROR(CheckAll("--depth", 0, kMost, flags.depths));
  BALLAST_RETURN_IF_ERROR(CheckAll("--sessions", 1, 4096, flags.sessions));
  BALLAST_RETURN_IF_ERROR(CheckCount("--decode", flags.decode, 1, kMost));
  BALLAST_RETURN_IF_ERROR(CheckCount("--reps", flags.reps, 1, 1000));
  BALLAST_RETURN_IF_ERROR(CheckCount("--chunk", flags.chunk, 0, 1 << 16));
  if (flags.stream_option->count() > 0) {
    BALLAST_RETURN_IF_ERROR(CheckCount("--stream", flags.stream, 1, kMost));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::string policy, OnePolicy(flags.common));
  BALLAST_ASSIGN_OR_RETURN(const StreamOptions options, MakeStreamOptions(flags.common, policy));
  if (options.policy == Policy::kDense && flags.stream_option->count() > 0) {
    return Status::Expected(Code::kUsage, "--stream", "a policy that evicts", "dense");
  }
  return Status();
}

struct Machine {
  double bandwidth = 0;      // bytes per second
  double multiply_adds = 0;  // per second
  Pauses pauses;
};

// Which share of the machine's limit a result reaches: of its memory bandwidth for one stream (weights and
// visible cache are read once per token), of its integer peak for many rows at a time (every weight is
// multiplied once per token). 0: not known.
double ShareOfLimit(const Throughput& t, const Model& model, const Machine& machine) {
  if (t.test == "prefill") {
    // The output matrix is needed for the last token only.
    const ModelConfig& c = model.config();
    const double weights = static_cast<double>(model.weight_count()) -
                           static_cast<double>(c.vocab) * static_cast<double>(c.embed);
    return machine.multiply_adds > 0 ? t.median * weights / machine.multiply_adds : 0;
  }
  if (t.sessions > 1) return 0;
  const double cache = static_cast<double>(t.kv_bytes) * static_cast<double>(t.depth) /
                       static_cast<double>(std::max<int64_t>(1, t.context));
  const double bytes = static_cast<double>(model.weight_bytes()) + cache;
  return machine.bandwidth > 0 ? t.median * bytes / machine.bandwidth : 0;
}

std::string Describe(const Throughput& t) {
  if (t.test == "prefill") return fmt::format("prefill {}", Grouped(t.tokens));
  if (t.test == "sessions") return fmt::format("{} sessions, {} deep", t.sessions, Grouped(t.depth));
  if (t.test == "stream") return fmt::format("stream at {}, -c {}", Grouped(t.position), Grouped(t.context));
  return fmt::format("decode, {} deep", Grouped(t.depth));
}

class Table {
 public:
  Table(bool json, const Loaded& loaded, const Machine& machine)
      : json_(json), loaded_(loaded), machine_(machine) {}

  Status Head() const {
    if (json_) return Status();
    std::string text = fmt::format("{}, {}, {} threads; {:.1f} GB/s", CpuName(), CurrentIsa(),
                                   loaded_.pool->threads(), machine_.bandwidth / 1e9);
    if (machine_.multiply_adds > 0)
      text += fmt::format(", {:.0f} GOP/s of bytes", 2 * machine_.multiply_adds / 1e9);
    if (machine_.pauses.per_second > 0) {
      text += fmt::format("; pauses of 1 ms and more that others cause: {:.1f} per second, at most {:.0f} ms",
                          machine_.pauses.per_second, machine_.pauses.longest_ms);
    }
    text += fmt::format("\n{}, weights {}\n\n", loaded_.model->config().name,
                        Bytes(static_cast<double>(loaded_.model->weight_bytes())));
    text += fmt::format("{:<28} {:>10} {:>19} {:>8} {:>8} {:>8} {:>7}\n", "", "tokens/s", "min - max",
                        "p50 ms", "p99 ms", "max ms", "limit");
    return Print(text);
  }
  Status Add(const Throughput& t) {
    const double share = ShareOfLimit(t, *loaded_.model, machine_);
    if (json_) {
      results_.push_back({{"test", t.test},
                          {"tokens", t.tokens},
                          {"depth", t.depth},
                          {"position", t.position},
                          {"context", t.context},
                          {"sessions", t.sessions},
                          {"kv", std::string(KvTypeName(t.kv))},
                          {"policy", std::string(PolicyName(t.policy))},
                          {"tokens_per_second", {{"median", t.median}, {"min", t.min}, {"max", t.max}}},
                          {"ms_per_token", {{"p50", t.p50}, {"p99", t.p99}, {"max", t.worst}}},
                          {"kv_bytes", t.kv_bytes},
                          {"rss_bytes", t.rss_bytes},
                          {"share_of_limit", share > 0 ? nlohmann::json(share) : nlohmann::json()}});
      return Status();
    }
    const int digits = t.p50 < 1 ? 3 : 2;
    return Print(fmt::format("{:<28} {:>10.1f} {:>19} {:>8.{}f} {:>8.{}f} {:>8.{}f} {:>7}\n", Describe(t),
                             t.median, fmt::format("{:.1f} - {:.1f}", t.min, t.max), t.p50, digits, t.p99,
                             digits, t.worst, digits, share > 0 ? fmt::format("{:.0f}%", 100 * share) : ""));
  }
  Status Tail() const {
    if (!json_) {
      return Print(
          "\nlimit: share of the memory bandwidth (one stream) or of the integer peak (prefill) reached\n");
    }
    return PrintJson(
        {{"cpu", CpuName()},
         {"isa", CurrentIsa()},
         {"threads", loaded_.pool->threads()},
         {"model", ModelJson(loaded_)},
         {"memory_bandwidth_gb_s", machine_.bandwidth / 1e9},
         {"integer_peak_gop_s",
          machine_.multiply_adds > 0 ? nlohmann::json(2 * machine_.multiply_adds / 1e9) : nlohmann::json()},
         {"pauses_per_second", machine_.pauses.per_second},
         {"longest_pause_ms", machine_.pauses.longest_ms},
         {"weight_bytes", loaded_.model->weight_bytes()},
         {"results", results_}});
  }

 private:
  bool json_;
  const Loaded& loaded_;
  Machine machine_;
  nlohmann::json results_ = nlohmann::json::array();
};

// Without a test named, one of each kind.
void ChooseTests(BenchFlags& flags) {
  const bool prefill = flags.prefill_option->count() > 0, sessions = flags.sessions_option->count() > 0;
  const bool decode = flags.decode_option->count() > 0 || flags.depth_option->count() > 0;
  const bool stream = flags.stream_option->count() > 0;
  if (!prefill && !decode && !sessions && !stream) {
    flags.prefill = {512};
    flags.depths = {0, 2048};
    flags.sessions = {4, 16};
    flags.stream = 1;
    flags.test_decode = true;
  } else {
    flags.test_decode = decode && !sessions && (flags.depth_option->count() > 0 || !stream);
  }
  if (flags.depths.empty()) flags.depths = {0};
}

Status RunTests(const BenchFlags& flags, const Loaded& loaded, const StreamOptions& stream, Table& table) {
  const Model& model = *loaded.model;
  ThreadPool& pool = *loaded.pool;
  ThroughputOptions options;
  options.stream = stream;
  if (flags.chunk > 0) options.stream.chunk = flags.chunk;
  options.tokens = flags.decode;
  options.reps = flags.reps;
  const auto run = [&](const std::string& label, const auto& measure) -> Status {
    Progress progress(label);
    options.on_progress = [&](double share) {
      progress.Update(share);
      return !Interrupted();
    };
    BALLAST_ASSIGN_OR_RETURN(const std::vector<Throughput> results, measure());
    progress.Done();
    for (const Throughput& result : results) BALLAST_RETURN_IF_ERROR(table.Add(result));
    return Status();
  };
  const auto one = [](Result<Throughput> result) -> Result<std::vector<Throughput>> {
    if (!result.ok()) return result.status();
    return std::vector<Throughput>{std::move(*result)};
  };
  for (const int64_t n : flags.prefill) {
    BALLAST_RETURN_IF_ERROR(run("prefill", [&] { return one(MeasurePrefill(model, pool, options, n)); }));
  }
  if (flags.test_decode) {
    for (const int64_t depth : flags.depths) {
      BALLAST_RETURN_IF_ERROR(run("decode", [&] { return one(MeasureDecode(model, pool, options, depth)); }));
    }
  }
  if (flags.stream > 0) {
    BALLAST_RETURN_IF_ERROR(run("stream", [&] { return MeasureStream(model, pool, options, flags.stream); }));
  }
  for (const int64_t n : flags.sessions) {
    BALLAST_RETURN_IF_ERROR(
        run("sessions", [&] { return one(MeasureSessions(model, pool, options, n, flags.depths[0])); }));
  }
  return Status();
}

int RunBench(BenchFlags& flags) {
  if (const Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  ChooseTests(flags);
  ClearInterrupt();
  Result<std::string> policy = OnePolicy(flags.common);
  if (!policy.ok()) return Fail(policy.status());
  Result<StreamOptions> options = MakeStreamOptions(flags.common, *policy);
  if (!options.ok()) return Fail(options.status());
  Result<Loaded> loaded = LoadModel(flags.common, flags.common.json);
  if (!loaded.ok()) return Fail(loaded.status());
  const Machine machine{MeasureReadBandwidth(*loaded->pool), MeasureByteMultiplyAdds(*loaded->pool),
                        MeasurePauses(*loaded->pool)};
  Table table(flags.common.json, *loaded, machine);
  Status status = table.Head();
  if (status.ok()) status = RunTests(flags, *loaded, *options, table);
  if (!status.ok()) return Fail(status);
  status = table.Tail();
  return status.ok() ? 0 : Fail(status);
}

}  // namespace

Runner AddBench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Tokens per second and latency, beside the machine's own limits");
  auto flags = std::make_shared<BenchFlags>();
  const std::string group = "Tests (all kinds when none is named)";
  const auto list = [&](const std::string& name, const std::string& variable, std::vector<int64_t>& values,
                        const std::string& help) {
    CLI::Option* option = AddParsedFlag(
        *command, name, variable, FlagKind::kRepeated,
        [&values](const std::string& text) { return ParseList(text, values); }, help);
    option->type_name("N,...")->group(group);
    return option;
  };
  flags->prefill_option = list("--prefill", "PREFILL", flags->prefill, "Read prompts of N tokens");
  flags->decode_option = AddFlag(*command, "--decode", "DECODE", flags->decode,
                                 "Tokens measured one at a time, per repetition (64)");
  flags->decode_option->group(group);
  flags->depth_option =
      list("--depth", "DEPTH", flags->depths, "Decode after N tokens (0); with --sessions, in each (0)");
  flags->sessions_option =
      list("--sessions", "SESSIONS", flags->sessions, "Decode N streams side by side, in one batch");
  flags->stream_option = AddFlag(*command, "--stream", "STREAM", flags->stream,
                                 "Decode past roll-over, and again at stream position N when that is later");
  flags->stream_option->group(group);
  AddFlag(*command, "--reps", "REPS", flags->reps, "Repetitions; the median is reported (3)")->group(group);
  AddFlag(*command, "--chunk", "CHUNK", flags->chunk, "Prompt tokens fed per step")->group(group);
  AddCommonFlags(*command, flags->common);
  command->footer(
      "  ballast bench --prefill 512,8000 --decode 64 --depth 0,2048,8000\n"
      "  ballast bench -c 1024 --stream 1000000");
  return [flags] { return RunBench(*flags); };
}

}  // namespace ballast::app
