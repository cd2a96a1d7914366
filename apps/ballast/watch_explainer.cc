#include "watch_explainer.h"

#include <algorithm>

#include "engine/chat_prompter.h"
#include "engine/generate.h"
#include "eval/rollover.h"

namespace ballast::app {
namespace {

constexpr int64_t kContext = 1024;
constexpr size_t kLineBytes = 400;
constexpr const char* kTask = "You tell an operator in one short sentence what a line of a log says.";

}  // namespace

Result<std::unique_ptr<WatchExplainer>> WatchExplainer::Create(const Loaded& loaded, int64_t max_tokens) {
  std::unique_ptr<WatchExplainer> explainer(new WatchExplainer(loaded));
  explainer->max_tokens_ = max_tokens;
  StreamOptions options;
  options.context = std::min(kContext, DefaultContext(loaded.model->config()));
  BALLAST_ASSIGN_OR_RETURN(explainer->stream_, Stream::Create(*loaded.model, *loaded.pool, options));
  std::string warning;
  explainer->chat_ = ChooseChatFormat(*loaded.file, *loaded.tokenizer, "", &warning).ok();
  return explainer;
}

// A model that knows no turns is asked to go on with a text.
Result<std::vector<Token>> WatchExplainer::Prompt(const std::string& line) const {
  if (!chat_) {
    Tokenizer::EncodeOptions options;
    options.add_special = true;
    options.parse_special = false;
    return loaded_.tokenizer->Encode("A line of a log:\n\n" + line + "\n\nIn one sentence, it says that",
                                     options);
  }
  std::string warning;
  BALLAST_ASSIGN_OR_RETURN(const ChatFormat format,
                           ChooseChatFormat(*loaded_.file, *loaded_.tokenizer, "", &warning));
  const ChatPrompter prompter(*loaded_.tokenizer, format);
  const std::string question = "The line:\n" + line + "\n\nWhat does it say?";
  Result<std::vector<Token>> prompt = prompter.Render({{"system", kTask}, {"user", question}}, 0, true, true);
  if (prompt.ok()) return prompt;
  return prompter.Render({{"user", std::string(kTask) + "\n\n" + question}}, 0, true,
                         true);  // no system role
}

Result<std::string> WatchExplainer::Explain(std::string_view line) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Token> prompt, Prompt(ValidUtf8(line.substr(0, kLineBytes))));
  stream_->Reset();
  BALLAST_RETURN_IF_ERROR(stream_->Append(prompt));
  SamplerOptions options;
  options.temperature = 0;
  options.seed = 0;
  options.repeat_penalty = 1.1;
  BALLAST_ASSIGN_OR_RETURN(Sampler sampler,
                           Sampler::Create(options, loaded_.model->config().vocab, stream_->context()));
  GenerateOptions generate;
  generate.max_tokens = max_tokens_;
  generate.stops = {"\n"};
  BALLAST_ASSIGN_OR_RETURN(Generated generated, Generate(*stream_, *loaded_.tokenizer, sampler, generate));
  std::string text = std::move(generated.text);
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

}  // namespace ballast::app
