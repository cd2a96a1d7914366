// How a model is talked to: which chat format, or the template that it came with.
//
// Thread safety: pure functions; `tokenizer` must outlive what is returned.
#ifndef BALLAST_ENGINE_CHOOSE_CHAT_H_
#define BALLAST_ENGINE_CHOOSE_CHAT_H_

#include <string>

#include "base/status.h"
#include "engine/chat_prompter.h"
#include "formats/tensor_file.h"
#include "text/tokenizer.h"

namespace ballast {

// The template text of a model file; "" when it has none.
std::string ChatTemplateText(const TensorFile& file);
// kUsage unless `name` is a format, "template", or "".
Status CheckChatFormatName(const std::string& name);

// With a `name`: that format, or the template. Else, by the file's template: the format recognised in it,
// where that prints the same; otherwise the template itself. Where there is no template that can be run:
// ChatML, with a `warning` to be shown, when the vocabulary has its control tokens, else kModel asking for
// --chat-format.
Result<ChatPrompter> ChooseChat(const TensorFile& file, const Tokenizer& tokenizer, const std::string& name,
                                std::string* warning);

}  // namespace ballast

#endif  // BALLAST_ENGINE_CHOOSE_CHAT_H_
