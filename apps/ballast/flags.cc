#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "app.h"
#include "cache/policy.h"

namespace ballast::app {
namespace {

template <typename T>
bool Whole(const std::string& text, T& value) {
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  value = parsed;
  return true;
}

// "--threads" out of "-t,--threads": what messages call the flag.
std::string LongestName(const std::string& names) {
  std::string best;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    if (end - begin > best.size()) best = names.substr(begin, end - begin);
    begin = end + 1;
  }
  return best;
}

}  // namespace

const char* ParseValue(const std::string& text, int64_t& value) {
  return Whole(text, value) ? nullptr : "a whole number";
}
const char* ParseValue(const std::string& text, int& value) {
  return Whole(text, value) ? nullptr : "a whole number";
}
const char* ParseValue(const std::string& text, uint64_t& value) {
  return Whole(text, value) ? nullptr : "a whole number from 0 to 2^64 - 1";
}
const char* ParseValue(const std::string& text, double& value) {
  return Whole(text, value) ? nullptr : "a number";
}
const char* ParseValue(const std::string& text, bool& value) {
  for (const char* yes : {"1", "true", "on", "yes"}) {
    if (text == yes) return value = true, nullptr;
  }
  for (const char* no : {"0", "false", "off", "no"}) {
    if (text == no) return value = false, nullptr;
  }
  return "1 or 0";
}
const char* ParseValue(const std::string& text, std::string& value) {
  if (text.empty()) return "a value";
  return value = text, nullptr;
}
const char* ParseValue(const std::string& text, std::vector<std::string>& value) {
  if (text.empty()) return "a value";
  return value.push_back(text), nullptr;
}
const char* ParseValue(const std::string& text, std::map<Token, double>& value) {
  constexpr const char* kWanted = "TOKEN_ID=NUMBER (or -inf)";
  const size_t equals = text.find('=');
  Token id = 0;
  double bias = 0;
  if (equals == std::string::npos || !Whole(text.substr(0, equals), id)) return kWanted;
  if (!Whole(text.substr(equals + 1), bias) || std::isnan(bias)) return kWanted;
  value[id] = bias;
  return nullptr;
}

CLI::Option* AddParsedFlag(CLI::App& app, const std::string& names, const std::string& env, FlagKind kind,
                           const std::function<const char*(const std::string&)>& parse,
                           const std::string& help) {
  const std::string variable = env.empty() ? "" : "BALLAST_" + env;
  const std::string flag = LongestName(names);
  const CLI::callback_t take = [=](const CLI::results_t& results) {
    for (const std::string& text : results) {
      const char* wanted = parse(text);
      if (wanted == nullptr) continue;
      // CLI11 hands over the variable's text as if it were the flag's; equal text may be called either.
      const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
      const bool from_variable = value != nullptr && text == value;
      throw CLI::ValidationError(from_variable ? variable : flag,
                                 fmt::format("expected {}, found \"{}\"", wanted, text));
    }
    return true;
  };
  CLI::Option* option = app.add_option(names, take, help);
  option->multi_option_policy(kind == FlagKind::kRepeated ? CLI::MultiOptionPolicy::TakeAll
                                                          : CLI::MultiOptionPolicy::TakeLast);
  option->allow_extra_args(false)->expected(kind == FlagKind::kSwitch ? 0 : 1);
  if (!variable.empty()) option->envname(variable);
  return option;
}

CLI::Option* AddTextFlag(CLI::App& app, const std::string& names, const std::string& env, std::string& value,
                         const std::string& help) {
  const auto take = [&value](const std::string& text) -> const char* { return value = text, nullptr; };
  return AddParsedFlag(app, names, env, FlagKind::kLast, take, help);
}

Status RenameFlag(const Status& status, std::string_view from, std::string_view to) {
  if (status.ok() || !status.message().starts_with(from)) return status;
  return Status(status.code(), std::string(to) + status.message().substr(from.size()), status.hint());
}

Status CheckCount(std::string_view flag, int64_t value, int64_t low, int64_t high, std::string_view unit) {
  if (value >= low && value <= high) return Status();
  return Status::Expected(Code::kUsage, flag,
                          fmt::format("{} to {}{}{}", low, high, unit.empty() ? "" : " ", unit),
                          std::to_string(value));
}

void ChooseOne(RivalFlag& a, RivalFlag& b) {
  const auto from_variable = [](const RivalFlag& flag) {
    const char* text = std::getenv(flag.variable);
    return text != nullptr && flag.value == text;
  };
  a.given = a.option->count() > 0;
  b.given = b.option->count() > 0;
  if (!a.given || !b.given) return;
  const bool a_set = from_variable(a);
  const bool b_set = from_variable(b);
  if (a_set != b_set) (a_set ? a : b).given = false;
}

void AddCommonFlags(CLI::App& app, CommonFlags& flags) {
  app.set_version_flag("--version", "ballast " BALLAST_VERSION, "Print the version");
  AddFlag(app, "-m,--model", "MODEL", flags.model,
          "Model: a GGUF file or a Hugging Face folder (default: SmolLM2-135M, which make build fetches)")
      ->type_name("PATH")
      ->group("Model");
  AddFlag(app, "-t,--threads", "THREADS", flags.threads, "Threads (default: the cores this process may use)")
      ->group("Model");
  AddFlag(app, "--compute", "COMPUTE", flags.compute,
          "fast: 8-bit activations; f32: full precision, slow (fast)")
      ->type_name("KIND")
      ->group("Model");
  AddFlag(app, "--weights", "WEIGHTS", flags.weights,
          "Matrices stored as floats: as stored, or made q8 or q4 while loading (stored)")
      ->type_name("KIND")
      ->group("Model");
  AddFlag(app, "-c,--context", "CONTEXT", flags.context,
          "Tokens the cache holds, pinned and window (default: the trained length, at most 8192)")
      ->group("Cache");
  AddFlag(app, "--sinks", "SINKS", flags.sinks, "First tokens kept for ever, the attention sinks (4)")
      ->each([&flags](const std::string&) { flags.sinks_given = true; })
      ->group("Cache");
  AddFlag(app, "--pin-system", "PIN_SYSTEM", flags.pin_system, "Keep the whole system prompt for ever")
      ->group("Cache");
  AddFlag(app, "--policy", "POLICY", flags.policies, "sinks, window, dense or recompute (sinks)")
      ->type_name("NAME")
      ->group("Cache");
  AddFlag(app, "--kv", "KV", flags.kv, "Cached keys and values as q8, f16 or f32 (q8)")
      ->type_name("TYPE")
      ->group("Cache");
  AddFlag(app, "--json", "JSON", flags.json, "One JSON document on stdout")->group("Output");
  AddFlag(app, "--verbose", "VERBOSE", flags.verbose, "Say more on stderr")->group("Output");
}

void AddSamplingFlags(CLI::App& app, SamplingFlags& flags) {
  SamplerOptions& o = flags.options;
  const std::string group = "Sampling";
  AddFlag(app, "-n,--max-tokens", "MAX_TOKENS", flags.max_tokens, "Most tokens to generate; -1: no limit")
      ->each([&flags](const std::string&) { flags.max_tokens_given = true; })
      ->group(group);
  auto seed = [&o](const std::string& text) {
    uint64_t value = 0;
    const char* wanted = ParseValue(text, value);
    if (wanted == nullptr) o.seed = value;
    return wanted;
  };
  AddParsedFlag(app, "-s,--seed", "SEED", FlagKind::kLast, seed, "Same seed, same text (default: random)")
      ->type_name("N")
      ->group(group);
  AddFlag(app, "--temp", "TEMP", o.temperature, "Temperature; 0: always the likeliest (0.8)")->group(group);
  AddFlag(app, "--top-k", "TOP_K", o.top_k, "Only the k likeliest; 0: off (40)")->group(group);
  AddFlag(app, "--top-p", "TOP_P", o.top_p, "Only the likeliest that sum to p; 1: off (0.95)")->group(group);
  AddFlag(app, "--min-p", "MIN_P", o.min_p, "Only those at least this share of the likeliest; 0: off (0.05)")
      ->group(group);
  AddFlag(app, "--repeat-penalty", "REPEAT_PENALTY", o.repeat_penalty, "Against repetition; 1: off (1)")
      ->group(group);
  AddFlag(app, "--repeat-last-n", "REPEAT_LAST_N", o.repeat_last_n,
          "Tokens the penalties look back on; -1: the whole context (64)")
      ->group(group);
  AddFlag(app, "--presence-penalty", "PRESENCE_PENALTY", o.presence_penalty, "Once per token seen (0)")
      ->group(group);
  AddFlag(app, "--frequency-penalty", "FREQUENCY_PENALTY", o.frequency_penalty, "Per occurrence (0)")
      ->group(group);
  AddFlag(app, "--dry-multiplier", "DRY_MULTIPLIER", o.dry_multiplier,
          "Against repeating whole sequences; 0: off (0)")
      ->group(group);
  AddFlag(app, "--dry-base", "DRY_BASE", o.dry_base, "Growth per repeated token (1.75)")->group(group);
  AddFlag(app, "--dry-allowed-length", "DRY_ALLOWED_LENGTH", o.dry_allowed_length,
          "Tokens that may repeat freely (2)")
      ->group(group);
  AddFlag(app, "--logit-bias", "LOGIT_BIAS", o.logit_bias,
          "Added to a token's logit; -inf bans it; repeatable")
      ->type_name("ID=BIAS")
      ->group(group);
  // "" ends nothing, as in the OpenAI interface.
  const auto stop = [&flags](const std::string& text) -> const char* {
    return flags.stops.push_back(text), nullptr;
  };
  AddParsedFlag(app, "--stop", "STOP", FlagKind::kRepeated, stop,
                "Text that ends the output, never shown; repeatable")
      ->type_name("TEXT")
      ->group(group);
}

Status CheckSamplingFlags(const SamplingFlags& flags) {
  if (flags.max_tokens < -1) {
    return Status::Expected(Code::kUsage, "--max-tokens", "-1 or more", std::to_string(flags.max_tokens));
  }
  return Sampler::Create(flags.options, std::numeric_limits<Token>::max(), 1).status();
}

Result<Sampler> MakeSampler(const SamplingFlags& flags, const Loaded& loaded, int64_t capacity) {
  SamplerOptions options = flags.options;
  if (options.dry_multiplier != 0 && options.dry_breakers.empty()) {
    // Sequences are counted within a line, a quotation or a list item, as is usual for this penalty.
    for (const char* text : {"\n", ":", "\"", "*"}) {
      const std::vector<Token> ids = loaded.tokenizer->Encode(text);
      if (!ids.empty()) options.dry_breakers.push_back(ids.back());
    }
  }
  return Sampler::Create(options, loaded.model->config().vocab, capacity);
}

Status RefusePinSystem(const CommonFlags& flags, const std::string& command) {
  if (!flags.pin_system) return Status();
  return Status::Expected(Code::kUsage, "--pin-system", "a command with a system prompt", command,
                          "--sinks N pins the first N tokens of a text");
}

Result<std::string> OnePolicy(const CommonFlags& flags) {
  if (flags.policies.size() > 1) {
    return Status::Expected(Code::kUsage, "--policy", "one policy", fmt::format("{}", flags.policies.size()),
                            "ballast eval compares several");
  }
  return flags.policies.empty() ? std::string("sinks") : flags.policies[0];
}

namespace {

Result<KvType> ParseKv(const std::string& name) {
  for (KvType type : {KvType::kQ8, KvType::kF16, KvType::kF32}) {
    if (KvTypeName(type) == name) return type;
  }
  return Status::Expected(Code::kUsage, "--kv", "q8, f16 or f32", "\"" + name + "\"");
}

}  // namespace

Result<StreamOptions> MakeStreamOptions(const CommonFlags& flags, const std::string& policy) {
  StreamOptions options;
  BALLAST_ASSIGN_OR_RETURN(options.policy, ParsePolicy(policy));
  BALLAST_ASSIGN_OR_RETURN(options.kv, ParseKv(flags.kv));
  if (flags.compute != "fast" && flags.compute != "f32") {
    return Status::Expected(Code::kUsage, "--compute", "fast or f32", "\"" + flags.compute + "\"");
  }
  if (flags.weights != "stored" && flags.weights != "q8" && flags.weights != "q4") {
    return Status::Expected(Code::kUsage, "--weights", "stored, q8 or q4", "\"" + flags.weights + "\"");
  }
  // The two ranges, without a model: a dense cache takes any pair within them.
  const int64_t context = flags.context == 0 ? 1 : flags.context;
  BALLAST_RETURN_IF_ERROR(MakePlan(Policy::kDense, context, flags.sinks).status());
  if (flags.threads < 0 || flags.threads > 1024) {
    return Status::Expected(Code::kUsage, "--threads", "1 to 1024", std::to_string(flags.threads));
  }
  options.context = flags.context;
  options.pinned = flags.sinks;
  return options;
}

}  // namespace ballast::app
