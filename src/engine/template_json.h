// JSON texts as values of a chat template: what a client sent beside the words of a conversation.
//
// Thread safety: pure functions. Invariants: 1. every string is data: no tool's name or argument becomes a
// control token. 2. Fields keep the order in which they were written, since templates print them.
#ifndef BALLAST_ENGINE_TEMPLATE_JSON_H_
#define BALLAST_ENGINE_TEMPLATE_JSON_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "text/chat_format.h"
#include "text/jinja_value.h"

namespace ballast {

// kInput, naming `what`, when `json` is not JSON of at most kMaxJsonDepth levels.
Result<JinjaValue> TemplateJson(const std::string& what, const std::string& json);
// A list of dicts with "role", "content" and the fields of `extra`, arguments of calls opened into objects.
Result<JinjaValue> TemplateMessagesWithExtras(const std::vector<ChatMessage>& messages);

}  // namespace ballast

#endif  // BALLAST_ENGINE_TEMPLATE_JSON_H_
