#include "engine/choose_chat.h"

#include <optional>
#include <utility>
#include <vector>

namespace ballast {
namespace {

constexpr char kTemplate[] = "template";

TemplateRequest Ask(const std::vector<ChatMessage>& messages) {
  TemplateRequest request;
  request.messages = TemplateMessages(messages);
  request.variables = {{"date_string", JinjaValue::String("26 Jul 2024")}};  // as chat_format.h has it
  request.open_assistant = true;
  return request;
}

// Does the format open a conversation as the template does? What comes later is known to differ only where
// chat_format.h says so. A template that refuses a system message is asked without one.
bool PrintsTheSame(const ChatTemplate& own, ChatFormat format, const std::string& default_system,
                   const Tokenizer& tokenizer) {
  for (const bool system : {false, true}) {
    std::vector<ChatMessage> messages = {{"user", "Hello."}};
    if (system) messages.insert(messages.begin(), {"system", "Be brief."});
    const auto theirs = own.Render(Ask(messages));
    if (!theirs.ok()) continue;
    if (!system && !default_system.empty()) messages.insert(messages.begin(), {"system", default_system});
    const auto ours = RenderChat(format, messages, 0, true);
    if (!ours.ok() || EncodePrompt(tokenizer, *ours, true) != EncodePrompt(tokenizer, *theirs, true)) {
      return false;
    }
  }
  return true;
}

// Where no template can be run. `found`: what there is instead.
Result<ChatPrompter> WithoutTemplate(const TensorFile& file, const Tokenizer& tokenizer,
                                     const std::string& found, std::string* warning) {
  if (tokenizer.Find("<|im_start|>") < 0) {
    return Status::Expected(Code::kModel, file.path() + ": chat template", "one that can be run", found,
                            "name the format with --chat-format, or use `ballast run` without one");
  }
  *warning =
      "the model has " + found + "; using chatml, whose control tokens it has (--chat-format to choose)";
  return ChatPrompter(tokenizer, ChatFormat::kChatMl);
}

Result<ChatTemplate> RunnableTemplate(const std::string& source, const Tokenizer& tokenizer) {
  BALLAST_ASSIGN_OR_RETURN(ChatTemplate own, ChatTemplate::Create(source, tokenizer));
  // One that refuses these messages in its own words (raise_exception) may take others.
  const Status said = own.Render(Ask({{"user", "Hello."}})).status();
  if (!said.ok() && (said.code() != Code::kInput || said.message().starts_with("chat template"))) return said;
  return own;
}

}  // namespace

std::string ChatTemplateText(const TensorFile& file) {
  const auto text = file.String("tokenizer.chat_template");
  return text.ok() && text->has_value() ? **text : "";
}

Status CheckChatFormatName(const std::string& name) {
  return name.empty() || name == kTemplate ? Status() : ParseChatFormat(name).status();
}

Result<ChatPrompter> ChooseChat(const TensorFile& file, const Tokenizer& tokenizer, const std::string& name,
                                std::string* warning) {
  const std::string source = ChatTemplateText(file);
  if (!name.empty() && name != kTemplate) {
    BALLAST_ASSIGN_OR_RETURN(const ChatFormat format, ParseChatFormat(name));
    return ChatPrompter(tokenizer, format, DefaultSystemText(format, source));
  }
  if (source.empty()) {
    if (!name.empty()) {
      return Status::Expected(Code::kModel, file.path() + ": chat template",
                              "one, for --chat-format template", "none");
    }
    return WithoutTemplate(file, tokenizer, "no chat template", warning);
  }
  Result<ChatTemplate> own = RunnableTemplate(source, tokenizer);
  if (!own.ok() && !name.empty()) {
    return Status(Code::kModel, file.path() + ": " + own.status().message());
  }
  const std::optional<ChatFormat> known = name.empty() ? DetectChatFormat(source) : std::nullopt;
  const std::string system = known ? DefaultSystemText(*known, source) : "";
  if (own.ok() && known && PrintsTheSame(*own, *known, system, tokenizer)) {
    return ChatPrompter(tokenizer, std::move(own).value(), known, system);
  }
  if (own.ok()) return ChatPrompter(tokenizer, std::move(own).value(), std::nullopt, "");
  const std::string why = "a template that cannot be run (" + own.status().message() + ")";
  if (!known) return WithoutTemplate(file, tokenizer, why, warning);
  *warning =
      "the model has " + why + "; using " + std::string(ChatFormatName(*known)) + ", which it resembles";
  return ChatPrompter(tokenizer, *known, system);
}

}  // namespace ballast
