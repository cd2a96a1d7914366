// Tools of a chat completions request: the list itself, the calls and answers in its messages.
//
// Purpose: they are checked for form and handed on as JSON texts, in the order in which their fields were
// written, since a model's chat template prints them so. Thread safety: pure functions. Invariant: what is
// not sound is refused by name.
#ifndef BALLAST_SERVER_JSON_TOOLS_H_
#define BALLAST_SERVER_JSON_TOOLS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/json_fields.h"

namespace ballast::server {

// "tools", unless "tool_choice" is "none". `body` is the text that `fields` was read from.
void ReadTools(Fields& fields, std::string_view body, std::string* tools);
// "none" or "auto" under this name; a choice of another kind is refused.
void CheckToolChoice(Fields& fields, std::string_view name);
// Checks "tool_calls" of an assistant's message, "tool_call_id" and "name" of a tool's. True: there are
// calls.
bool CheckToolFields(Fields& fields, const nlohmann::json& item, const std::string& at,
                     const std::string& role);
// Copies those fields into the `extra` of the messages, which are those of `body`.
void CopyToolFields(std::string_view body, std::vector<ChatMessage>* messages);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_JSON_TOOLS_H_
