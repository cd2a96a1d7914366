#include "eval_common.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "eval/plot.h"
#include "terminal.h"

namespace ballast::app {

void AddTextFlags(CLI::App& app, TextFlags& flags) {
  flags.text.option =
      AddFlag(app, "-f,--file", "FILE", flags.text.value, "Text to read, as its bytes; - for stdin");
  flags.text.option->type_name("TEXT");
  flags.tokens.option =
      AddFlag(app, "--tokens", "TOKENS", flags.tokens.value, "Token ids to read: {\"tokens\":[...]}");
  flags.tokens.option->type_name("FILE.json");
  AddFlag(app, "--limit", "LIMIT", flags.limit,
          fmt::format("Use the first N tokens only; -1: all ({})", flags.limit))
      ->type_name("N");
}

Status CheckTextFlags(TextFlags& flags, std::string_view command) {
  ChooseOne(flags.text, flags.tokens);
  if (flags.text.given == flags.tokens.given) {
    return Status::Expected(Code::kUsage, command, "one of -f TEXT and --tokens FILE.json",
                            flags.text.given ? "both" : "neither");
  }
  if (flags.limit != -1 && flags.limit < 1) {
    return Status::Expected(Code::kUsage, "--limit", "1 or more tokens, or -1 for all",
                            std::to_string(flags.limit));
  }
  return Status();
}

Status CheckOutputs(const std::vector<NamedFile>& written, const TextFlags& text, const CommonFlags& common) {
  std::vector<NamedFile> read;
  if (text.text.given) read.push_back({"--file", text.text.value});
  if (text.tokens.given) read.push_back({"--tokens", text.tokens.value});
  if (const Result<std::string> model = FindModel(common); model.ok()) read.push_back({"--model", *model});
  BALLAST_RETURN_IF_ERROR(CheckApart(written, read));
  for (const NamedFile& file : written) {
    if (!file.path.empty()) BALLAST_RETURN_IF_ERROR(CheckWritable(file.path));
  }
  return Status();
}

namespace {

// Says what JSON of another shape than {"tokens":[...]} is; ok when its shape is right or it is no JSON.
Status CheckShape(const std::string& path, const std::string& bytes) {
  const nlohmann::json document = nlohmann::json::parse(bytes, nullptr, false);
  const auto kind = [](const nlohmann::json& value) {
    const std::string name = value.type_name();
    return value.is_null() ? name : (value.is_array() || value.is_object() ? "an " : "a ") + name;
  };
  if (document.is_discarded()) return Status();
  if (!document.is_object()) {
    return Status::Expected(Code::kInput, path + ": contents", "an object like {\"tokens\":[1,2,3]}",
                            kind(document));
  }
  const auto tokens = document.find("tokens");
  if (tokens == document.end() || tokens->is_array()) return Status();
  return Status::Expected(Code::kInput, path + ": \"tokens\"", "an array of token ids", kind(*tokens));
}

}  // namespace

Result<std::vector<Token>> LoadTokens(const TextFlags& flags, const Loaded& loaded) {
  const bool from_text = flags.text.given;
  const std::string& path = from_text ? flags.text.value : flags.tokens.value;
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(path));
  std::vector<Token> ids;
  if (from_text) {
    ids = TokenizeText(*loaded.tokenizer, bytes, flags.limit);
  } else {
    Result<std::vector<Token>> parsed =
        ParseTokenFile(path, bytes, loaded.model->config().vocab, flags.limit);
    if (!parsed.ok()) {
      BALLAST_RETURN_IF_ERROR(CheckShape(path, bytes));
      return parsed.status();
    }
    ids = std::move(*parsed);
  }
  BALLAST_RETURN_IF_ERROR(CheckScorable(static_cast<int64_t>(ids.size())));
  return ids;
}

std::string Styled(bool colour, std::string_view style, std::string text) {
  return colour ? fmt::format("\033[{}m{}\033[0m", style, text) : text;
}

EvalProgress::EvalProgress(std::string label, bool verbose)
    : label_(std::move(label)), verbose_(verbose), bar_(label_) {}

bool EvalProgress::operator()(int64_t done, int64_t total) {
  bar_.Update(static_cast<double>(done) / static_cast<double>(total));
  const Clock::time_point now = Clock::now();
  if (first_ < 0) first_ = done, begin_ = last_ = now;
  if (verbose_ && now - last_ >= std::chrono::seconds(10)) {
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate = static_cast<double>(done - first_) / seconds;
    Note(fmt::format("{}: {} of {} tokens, {:.1f} tokens/s, about {:.0f} s left", label_, Grouped(done),
                     Grouped(total), rate, static_cast<double>(total - done) / std::max(rate, 1e-3)));
  }
  return !Interrupted();
}

std::string SinkMapSvg(const SinkMap& map, const Loaded& loaded) {
  HeatPlot plot;
  plot.title = fmt::format("Attention on token 0: {}", loaded.model->config().name);
  plot.subtitle = fmt::format("mean over {} queries; {}: {:.0f}% of heads above {:g}", Grouped(map.tokens),
                              SinkVerdictName(map.verdict), 100 * map.heads_over_threshold, map.threshold);
  plot.row_label = "layer";
  plot.column_label = "head";
  plot.values = map.mean;
  plot.scale_label = "mean share of attention on token 0";
  return RenderHeatMap(plot);
}

int Finish(const std::string& plot_path, const std::string& svg, const Status& verdict) {
  int code = 0;
  if (!plot_path.empty()) {
    if (const Status written = WriteFileAtomically(plot_path, svg); !written.ok()) code = Fail(written);
  }
  if (!verdict.ok()) code = Fail(verdict);
  return code;
}

}  // namespace ballast::app
