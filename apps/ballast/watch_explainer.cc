#include "watch_explainer.h"

#include <algorithm>

#include "engine/choose_chat.h"
#include "engine/generate.h"
#include "eval/rollover.h"

namespace ballast::app {
namespace {

constexpr int64_t kContext = 1024;
constexpr size_t kLineBytes = 400;
constexpr const char* kOpening = "The line says that";  // small models else repeat the question
constexpr const char* kTask = "You tell an operator in one short sentence what a line of a log says.";

}  // namespace

Result<std::unique_ptr<WatchExplainer>> WatchExplainer::Create(const Loaded& loaded, int64_t max_tokens) {
  std::unique_ptr<WatchExplainer> explainer(new WatchExplainer(loaded));
  explainer->max_tokens_ = max_tokens;
  StreamOptions options;
  options.context = std::min(kContext, DefaultContext(loaded.model->config()));
  BALLAST_ASSIGN_OR_RETURN(explainer->stream_, Stream::Create(*loaded.model, *loaded.pool, options));
  std::string warning;
  Result<ChatPrompter> prompter = ChooseChat(*loaded.file, *loaded.tokenizer, "", &warning);
  if (prompter.ok()) explainer->prompter_.emplace(std::move(*prompter));
  return explainer;
}

Result<std::vector<Token>> WatchExplainer::Prompt(const std::string& line) const {
  const Tokenizer& tokenizer = *loaded_.tokenizer;
  Tokenizer::EncodeOptions options;
  options.parse_special = false;
  options.add_special = !prompter_;
  // A model that knows no turns is asked to go on with a text.
  if (!prompter_) return tokenizer.Encode("A line of a log:\n\n" + line + "\n\n" + kOpening, options);
  const std::string question = "What does this line of a log say?\n\n" + line;
  Result<std::vector<Token>> prompt =
      prompter_->Render({{"system", kTask}, {"user", question}}, 0, true, true);
  if (!prompt.ok()) {  // no system role
    prompt = prompter_->Render({{"user", std::string(kTask) + "\n\n" + question}}, 0, true, true);
  }
  BALLAST_RETURN_IF_ERROR(prompt.status());
  for (const Token id : tokenizer.Encode(kOpening, options)) prompt->push_back(id);
  return prompt;
}

Result<std::string> WatchExplainer::Explain(std::string_view line) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> prompt, Prompt(ValidUtf8(line.substr(0, kLineBytes))));
  stream_->Reset();
  Stream::AppendOptions append;
  append.on_step = [](int64_t) { return !Interrupted(); };
  const Status read = stream_->Append(prompt, append);
  if (read.code() == Code::kInterrupted) return std::string();
  BALLAST_RETURN_IF_ERROR(read);
  SamplerOptions options;
  options.temperature = 0;
  options.seed = 0;
  options.repeat_penalty = 1.1;
  BALLAST_ASSIGN_OR_RETURN(Sampler sampler,
                           Sampler::Create(options, loaded_.model->config().vocab, stream_->context()));
  GenerateOptions generate;
  generate.max_tokens = max_tokens_;
  generate.stops = {"\n"};
  generate.on_token = [](Token) { return !Interrupted(); };
  BALLAST_ASSIGN_OR_RETURN(Generated generated, Generate(*stream_, *loaded_.tokenizer, sampler, generate));
  if (generated.reason == StopReason::kInterrupted) return std::string();
  return kOpening + generated.text;
}

}  // namespace ballast::app
