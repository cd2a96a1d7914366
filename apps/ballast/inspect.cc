// `ballast inspect`: what a model file holds, whether Ballast can stream it, and why not. Reads no weights.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <variant>

#include "app.h"
#include "conversation.h"
#include "engine/choose_chat.h"
#include "engine/load_tokenizer.h"
#include "model/families.h"
#include "terminal.h"
#include "text/chat_format.h"

namespace ballast::app {
namespace {

constexpr size_t kShownItems = 4;       // of a long array
constexpr size_t kShortArray = 16;      // shown whole in JSON
constexpr size_t kShownTextBytes = 72;  // of a long string, unless --verbose
constexpr int64_t kRecommendedSinks = 4;

struct InspectFlags {
  CommonFlags common;
  std::string path;      // positional
  std::string tokenize;  // --tokenize FILE
  bool hash = false;
  bool families = false;
  CLI::Option* tokenize_option = nullptr;
};

// A text on one line, cut when long.
std::string Abbreviated(std::string_view text, size_t limit) {
  std::string shown;
  for (char c : text.substr(0, limit)) {
    if (c == '\n') {
      shown += "\\n";
    } else {
      shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  shown = ValidUtf8(shown);
  return text.size() > limit ? fmt::format("{}… ({} bytes)", shown, text.size()) : shown;
}

template <typename T>
nlohmann::json ItemJson(const T& item) {
  if constexpr (std::is_same_v<T, std::string>) {
    return ValidUtf8(item);
  } else {
    return item;
  }
}

nlohmann::json MetaJson(const MetaValue& value) {
  return std::visit(
      [](const auto& v) -> nlohmann::json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return ItemJson(v);
        } else {
          nlohmann::json items = nlohmann::json::array();
          for (const auto& item : v) {
            if (v.size() > kShortArray && items.size() == kShownItems) break;
            items.push_back(ItemJson(static_cast<typename T::value_type>(item)));
          }
          if (v.size() <= kShortArray) return items;
          return {{"count", v.size()}, {"first", items}};
        }
      },
      value);
}

std::string MetaText(const MetaValue& value, bool verbose) {
  const nlohmann::json json = MetaJson(value);
  const auto dump = [](const nlohmann::json& j) {
    return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (json.is_string()) return Abbreviated(json.get<std::string>(), verbose ? 1 << 20 : kShownTextBytes);
  if (json.is_object()) {
    std::string items = dump(json["first"]);
    items.back() = ',';
    return fmt::format("{} …] ({} items)", Abbreviated(items, kShownTextBytes), json["count"].get<size_t>());
  }
  return json.is_array() ? Abbreviated(dump(json), verbose ? 1 << 20 : kShownTextBytes) : dump(json);
}

struct TypeTotal {
  int64_t tensors = 0;
  uint64_t bytes = 0;
};
std::map<std::string, TypeTotal> TotalsByType(const TensorFile& file) {
  std::map<std::string, TypeTotal> totals;
  for (const TensorInfo& tensor : file.tensors()) {
    TypeTotal& total = totals[std::string(Info(tensor.dtype).name)];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

// Bytes of cache per token and KV type; layers with a window of their own stop growing there.
std::map<std::string, int64_t> CacheBytesPerToken(const ModelConfig& config) {
  std::map<std::string, int64_t> bytes;
  for (KvType type : {KvType::kQ8, KvType::kF16, KvType::kF32}) {
    const int64_t scale = type == KvType::kQ8 ? static_cast<int64_t>(sizeof(float)) : 0;
    const int64_t row = KvRowBytes(type, config.head_dim) + scale;
    bytes[std::string(KvTypeName(type))] = 2 * row * config.kv_heads * config.layers;
  }
  return bytes;
}

// Everything that is asked of a file, once.
struct Findings {
  Streamability streamability;
  std::optional<ModelConfig> config;
  Result<std::unique_ptr<const Tokenizer>> tokenizer{Status(Code::kModel, "not read")};
  std::string chat_format;  // "" when there is none
  std::string chat_note;    // why not, or what was done instead
  std::string architecture;
  std::string name;
  std::string sha256;  // "" unless asked for
};

// As `chat` would choose; a base model has none, whatever its vocabulary.
void LookAtChat(const TensorFile& file, Findings* findings) {
  if (!findings->tokenizer.ok() || ChatTemplateText(file).empty()) return;
  const Result<ChatPrompter> chat = ChooseChat(file, **findings->tokenizer, "", &findings->chat_note);
  if (chat.ok()) findings->chat_format = chat->name();
  if (!chat.ok()) findings->chat_note = chat.status().message();
}

Findings Look(const TensorFile& file) {
  Findings findings;
  findings.streamability = CheckStreamable(file);
  if (Result<ModelConfig> config = ReadConfig(file); config.ok()) findings.config = *config;
  findings.tokenizer = LoadTokenizer(file);
  LookAtChat(file, &findings);
  const auto text = [&](std::string_view key) {
    const auto value = file.String(key);
    return value.ok() && value->has_value() ? ValidUtf8(**value) : std::string();
  };
  findings.architecture = text("general.architecture");
  findings.name = text("general.name");
  return findings;
}

std::string KindName(const Vocab& vocab) {
  if (vocab.kind == Vocab::Kind::kPipeline) return "tokenizer.json";
  return vocab.kind == Vocab::Kind::kByteLevelBpe ? "byte-level BPE" : "SentencePiece BPE";
}

nlohmann::json TokenizerJson(const Findings& findings) {
  if (!findings.tokenizer.ok()) return {{"error", ValidUtf8(findings.tokenizer.status().message())}};
  const Vocab& vocab = (*findings.tokenizer)->vocab();
  const auto special = [&](Token id) -> nlohmann::json {
    if (id < 0) return nullptr;
    return {{"id", id}, {"text", ValidUtf8((*findings.tokenizer)->Piece(id, true))}};
  };
  return {{"kind", KindName(vocab)},   {"pre", vocab.pre},          {"vocab", (*findings.tokenizer)->size()},
          {"bos", special(vocab.bos)}, {"eos", special(vocab.eos)}, {"eot", special(vocab.eot)},
          {"add_bos", vocab.add_bos},  {"add_eos", vocab.add_eos}};
}

nlohmann::json FindingsJson(const TensorFile& file, const Findings& f) {
  nlohmann::json metadata = nlohmann::json::object();
  for (const auto& [key, value] : file.metadata()) metadata[ValidUtf8(key)] = MetaJson(value);
  nlohmann::json tensors = nlohmann::json::array();
  for (const TensorInfo& t : file.tensors()) {
    tensors.push_back(
        {{"name", ValidUtf8(t.name)}, {"type", Info(t.dtype).name}, {"shape", t.dims}, {"bytes", t.bytes}});
  }
  nlohmann::json types = nlohmann::json::object();
  for (const auto& [type, total] : TotalsByType(file)) {
    types[type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  nlohmann::json json = {
      {"path", ValidUtf8(file.path())},
      {"format", file.format()},
      {"file_bytes", file.file_bytes()},
      {"architecture", f.architecture},
      {"name", f.name},
      {"streamable", f.streamability.streamable},
      {"loadable", f.streamability.loadable},
      {"positions", f.streamability.positions},
      {"reason", f.streamability.reason},
      {"recommended_sinks", kRecommendedSinks},
      {"chat_format", f.chat_format.empty() ? nlohmann::json() : nlohmann::json(f.chat_format)},
      {"chat_note", ValidUtf8(f.chat_note)},
      {"tokenizer", TokenizerJson(f)},
      {"types", types},
      {"metadata", metadata},
      {"tensors", tensors}};
  if (f.config.has_value()) {
    json["trained_context"] = f.config->trained_context;
    json["layers"] = f.config->layers;
    json["local_layers"] = f.config->local_layers;
    json["local_window"] = f.config->local_window;
    json["nope_layers"] = f.config->nope_layers;
    json["cache_bytes_per_token"] = CacheBytesPerToken(*f.config);
  }
  if (!f.sha256.empty()) json["sha256"] = f.sha256;
  return json;
}

std::string Section(const std::string& title) {
  return "\n" + Paint(Ink::kBold, title, StyledStdout()) + "\n";
}
std::string Row(const std::string& key, const std::string& value) {
  return fmt::format("  {} {}\n", Paint(Ink::kDim, fmt::format("{:<14}", key), StyledStdout()), value);
}

std::string Summary(const TensorFile& file, const Findings& f) {
  const Streamability& s = f.streamability;
  const auto yes = [](bool b) { return b ? "yes" : "no"; };
  std::string text = Section("model");
  if (!f.name.empty()) text += Row("name", Abbreviated(f.name, kShownTextBytes));
  text += Row("architecture",
              f.architecture.empty() ? "not named" : Abbreviated(f.architecture, kShownTextBytes));
  text += Row("file", fmt::format("{}, {}, {} tensors", file.format(),
                                  Bytes(static_cast<double>(file.file_bytes())), file.tensors().size()));
  if (!f.sha256.empty()) text += Row("sha256", f.sha256);
  if (f.config.has_value()) {
    const ModelConfig& c = *f.config;
    text += Row("network",
                fmt::format("{} layers, {} heads ({} kv) of {}, hidden {}, trained on {} tokens", c.layers,
                            c.heads, c.kv_heads, c.head_dim, c.embed, Grouped(c.trained_context)));
  }
  text += Section("streaming");
  text +=
      Row("streamable", Paint(s.streamable ? Ink::kAccent : Ink::kWarn, yes(s.streamable), StyledStdout()));
  text += Row("runs here", yes(s.loadable));
  text += Row("why", s.reason);
  if (!s.positions.empty()) text += Row("positions", s.positions);
  if (f.config.has_value() && f.config->local_layers > 0) {
    text += Row("local layers", fmt::format("{} of {}, a window of {} tokens each", f.config->local_layers,
                                            f.config->layers, Grouped(f.config->local_window)));
  }
  if (s.streamable) text += Row("sinks", fmt::format("{} recommended", kRecommendedSinks));
  if (f.config.has_value() && s.loadable) {
    std::string sizes;
    for (const auto& [type, bytes] : CacheBytesPerToken(*f.config)) {
      sizes += fmt::format("{}{} {} B", sizes.empty() ? "" : ", ", type, Grouped(bytes));
    }
    text += Row("cache", sizes + " per token");
  }
  return text;
}

std::string TokenizerText(const Findings& f) {
  std::string text = Section("tokenizer");
  if (!f.tokenizer.ok()) {
    text += Row("refused", Abbreviated(f.tokenizer.status().message(), 200));
  } else {
    const Tokenizer& tokenizer = **f.tokenizer;
    const Vocab& vocab = tokenizer.vocab();
    text += Row("kind", KindName(vocab) + (vocab.pre.empty() ? "" : ", " + vocab.pre));
    text += Row("vocabulary", Grouped(tokenizer.size()));
    std::string specials;
    for (const auto& [name, id] : {std::pair{"bos", vocab.bos}, {"eos", vocab.eos}, {"eot", vocab.eot}}) {
      if (id < 0) continue;
      specials += fmt::format("{}{} {} {}", specials.empty() ? "" : ", ", name, id,
                              Abbreviated(tokenizer.Piece(id, true), 40));
    }
    text += Row("special", specials.empty() ? "none" : specials);
    text += Row("adds bos", vocab.add_bos ? "yes" : "no");
  }
  text += Row("chat format", f.chat_format.empty()         ? "none (--chat-format to name one)"
                             : f.chat_format == "template" ? "template (the model's own, run as written)"
                                                           : f.chat_format);
  return f.chat_note.empty() ? text : text + Row("", Abbreviated(f.chat_note, 300));
}

std::string TensorsText(const TensorFile& file, bool verbose) {
  std::string text = Section("weights");
  for (const auto& [type, total] : TotalsByType(file)) {
    text += Row(type,
                fmt::format("{:>5} tensors  {:>10}", total.tensors, Bytes(static_cast<double>(total.bytes))));
  }
  if (!verbose) return text;
  text += Section("tensors");
  for (const TensorInfo& t : file.tensors()) {
    text += fmt::format("  {:<40} {:<6} {:<20} {:>10}\n", Abbreviated(t.name, 60), Info(t.dtype).name,
                        fmt::format("{}", fmt::join(t.dims, " x ")), Bytes(static_cast<double>(t.bytes)));
  }
  return text;
}

int Tokenize(const InspectFlags& flags, const TensorFile& file) {
  Result<std::unique_ptr<const Tokenizer>> tokenizer = LoadTokenizer(file);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  Result<std::string> text = ReadAll(flags.tokenize);
  if (!text.ok()) return Fail(text.status());
  const std::vector<Token> ids = (*tokenizer)->Encode(*text, {.add_special = false, .parse_special = true});
  const std::string list = fmt::format("{}", fmt::join(ids, flags.common.json ? "," : " "));
  const Status printed = Print(flags.common.json ? "{\"ids\":[" + list + "]}\n" : list + "\n");
  return printed.ok() ? 0 : Fail(printed);
}

// Flags that only matter to other commands are held to the same values.
Status CheckFlags(const CommonFlags& flags) {
  BALLAST_RETURN_IF_ERROR(RefusePinSystem(flags, "inspect"));
  BALLAST_ASSIGN_OR_RETURN(const std::string policy, OnePolicy(flags));
  return MakeStreamOptions(flags, policy).status();
}

// What this version runs, as the table of the README.
Status PrintFamilies() {
  std::string text = "| architecture | models | positions |\n|---|---|---|\n";
  for (const Family& family : AllFamilies()) {
    if (family.plan == nullptr) continue;
    text += fmt::format("| `{}` | {} | {}{}{} |\n", family.architecture, family.models,
                        family.positions == Family::Positions::kAlibi ? "ALiBi" : "RoPE",
                        family.rope.empty() ? "" : ", ", family.rope);
  }
  return Print(text);
}

int Inspect(InspectFlags& flags) {
  if (flags.families) {
    const Status printed = PrintFamilies();
    return printed.ok() ? 0 : Fail(printed);
  }
  if (Status status = CheckFlags(flags.common); !status.ok()) return Fail(status);
  if (!flags.path.empty()) flags.common.model = flags.path;
  Result<std::string> path = FindModel(flags.common);
  if (!path.ok()) return Fail(path.status());
  Result<TensorFile> file = TensorFile::Open(*path);
  if (!file.ok()) return Fail(file.status());
  if (flags.tokenize_option->count() > 0) return Tokenize(flags, *file);
  Findings findings = Look(*file);
  if (flags.hash) {
    Result<std::string> hash = HashModel(*file);
    if (!hash.ok()) return Fail(hash.status());
    findings.sha256 = *hash;
  }
  Status printed;
  if (flags.common.json) {
    printed = PrintJson(FindingsJson(*file, findings));
  } else {
    std::string text = Paint(Ink::kDim, ValidUtf8(file->path()), StyledStdout()) + "\n";
    text += Summary(*file, findings) + TokenizerText(findings) + TensorsText(*file, flags.common.verbose);
    text += Section("metadata");
    for (const auto& [key, value] : file->metadata()) {
      text += fmt::format("  {} {}\n",
                          Paint(Ink::kDim, fmt::format("{:<40}", Abbreviated(key, 100)), StyledStdout()),
                          MetaText(value, flags.common.verbose));
    }
    printed = Print(text);
  }
  return printed.ok() ? 0 : Fail(printed);
}

}  // namespace

Runner AddInspect(CLI::App& app) {
  CLI::App* inspect =
      app.add_subcommand("inspect", "What a model file holds, whether it can be streamed, and why not");
  auto flags = std::make_shared<InspectFlags>();
  AddFlag(*inspect, "file", "", flags->path, "The model file (as -m)")->type_name("PATH");
  flags->tokenize_option =
      AddFlag(*inspect, "--tokenize", "TOKENIZE", flags->tokenize,
              "Print the token ids of a file's bytes; no BOS, special tokens parsed; -: stdin");
  flags->tokenize_option->type_name("FILE")->group("Inspect");
  AddFlag(*inspect, "--families", "FAMILIES", flags->families, "Only the table of families that can be run")
      ->group("Inspect");
  AddFlag(*inspect, "--hash", "HASH", flags->hash, "Also the file's SHA-256")->group("Inspect");
  AddCommonFlags(*inspect, flags->common);
  return [flags] { return Inspect(*flags); };
}

}  // namespace ballast::app
