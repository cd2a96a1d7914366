#include "eval_common.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "terminal.h"

namespace ballast::app {

void AddTextFlags(CLI::App& app, TextFlags& flags) {
  AddFlag(app, "-f,--file", "FILE", flags.text, "Text to read, as its bytes; - for stdin")->type_name("TEXT");
  AddFlag(app, "--tokens", "TOKENS", flags.tokens, "Token ids to read: {\"tokens\":[...]}")
      ->type_name("FILE.json");
  AddFlag(app, "--limit", "LIMIT", flags.limit, "Use the first N tokens only")->type_name("N");
}

Status CheckTextFlags(const TextFlags& flags, std::string_view command) {
  if (flags.text.empty() == flags.tokens.empty()) {
    return Status::Expected(Code::kUsage, command, "one of -f TEXT and --tokens FILE.json",
                            flags.text.empty() ? "neither" : "both");
  }
  if (flags.limit != -1 && flags.limit < 1) {
    return Status::Expected(Code::kUsage, "--limit", "1 or more tokens", std::to_string(flags.limit));
  }
  return Status();
}

Result<std::vector<Token>> LoadTokens(const TextFlags& flags, const Loaded& loaded) {
  const bool from_text = !flags.text.empty();
  const std::string& path = from_text ? flags.text : flags.tokens;
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(path));
  std::vector<Token> ids;
  if (from_text) {
    ids = TokenizeText(*loaded.tokenizer, bytes, flags.limit);
  } else {
    BALLAST_ASSIGN_OR_RETURN(ids, ParseTokenFile(path, bytes, loaded.model->config().vocab, flags.limit));
  }
  BALLAST_RETURN_IF_ERROR(CheckScorable(static_cast<int64_t>(ids.size())));
  return ids;
}

std::string Styled(bool colour, std::string_view style, std::string text) {
  return colour ? fmt::format("\033[{}m{}\033[0m", style, text) : text;
}

EvalProgress::EvalProgress(std::string label, bool verbose)
    : label_(std::move(label)), verbose_(verbose), begin_(Clock::now()), last_(begin_), bar_(label_) {}

bool EvalProgress::operator()(int64_t done, int64_t total) {
  bar_.Update(static_cast<double>(done) / static_cast<double>(total));
  const Clock::time_point now = Clock::now();
  if (verbose_ && now - last_ >= std::chrono::seconds(10)) {
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double left = seconds * static_cast<double>(total - done) / static_cast<double>(done);
    Note(fmt::format("{}: {} of {} tokens, {:.1f} tokens/s, about {:.0f} s left", label_, Grouped(done),
                     Grouped(total), static_cast<double>(done) / seconds, left));
  }
  return !Interrupted();
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
