#include "server/json_tools.h"

#include <fmt/format.h>

#include "server/http.h"

namespace ballast::server {
namespace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;

// {"type": "function", "function": {"name": ...}}, as both tools and calls are written.
bool CheckFunction(Fields& fields, const json& item, const std::string& at) {
  const json type = item.is_object() ? item.value("type", json("function")) : json();
  if (type != "function") {
    fields.Fail(at + ".type", "\"function\", the only kind this server takes", type);
    return false;
  }
  const json function = item.value("function", json());
  const json name = function.is_object() ? function.value("name", json()) : json();
  if (name.is_string() && !name.get<std::string>().empty()) return true;
  fields.Fail(at + ".function.name", "a name", name);
  return false;
}

bool CheckCalls(Fields& fields, const json& calls, const std::string& at) {
  if (!calls.is_array()) {
    fields.Fail(at, "a list of calls", calls);
    return false;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string call = fmt::format("{}[{}]", at, i);
    if (!CheckFunction(fields, calls[i], call)) return false;
    const json arguments = calls[i]["function"].value("arguments", json(""));
    if (!arguments.is_string() && !arguments.is_object()) {
      fields.Fail(call + ".function.arguments", "a JSON text or an object", arguments);
      return false;
    }
  }
  return !calls.empty();
}

}  // namespace

void ReadTools(Fields& fields, std::string_view body, std::string* tools) {
  const json* list = fields.Find("tools");
  if (list == nullptr || !fields.ok()) return;
  if (!list->is_array()) return fields.Fail("tools", "a list of functions", *list);
  for (size_t i = 0; i < list->size(); ++i) {
    if (!CheckFunction(fields, (*list)[i], fmt::format("tools[{}]", i))) return;
  }
  const json* choice = fields.Find("tool_choice");
  if (list->empty() || (choice != nullptr && *choice == "none")) return;
  *tools = Ordered::parse(body, nullptr, false)["tools"].dump();
}

void CheckToolChoice(Fields& fields, std::string_view name) {
  const json* choice = fields.Find(name);
  if (choice == nullptr || *choice == "none" || *choice == "auto") return;
  ApiError error = InvalidField(name, "\"none\" or \"auto\"", Shown(*choice));
  if (*choice == "required" || choice->is_object()) error.code = "unsupported_parameter";
  fields.Fail(std::move(error));
}

bool CheckToolFields(Fields& fields, const json& item, const std::string& at, const std::string& role) {
  const json calls = item.value("tool_calls", json());
  const bool some = !calls.is_null() && !(calls.is_array() && calls.empty());
  if (some && role != "assistant") {
    fields.Fail(at + ".tool_calls", "none but in an assistant's message", calls);
    return false;
  }
  if (role == "tool") {
    for (const char* name : {"tool_call_id", "name"}) {
      const json value = item.value(name, json());
      if (!value.is_null() && !value.is_string()) fields.Fail(at + "." + name, "a string", value);
    }
  }
  return some && CheckCalls(fields, calls, at + ".tool_calls");
}

void CopyToolFields(std::string_view body, std::vector<ChatMessage>* messages) {
  Ordered document = Ordered::parse(body, nullptr, false);
  Ordered& list = document["messages"];
  if (!list.is_array() || list.size() != messages->size()) return;
  for (size_t i = 0; i < messages->size(); ++i) {
    ChatMessage& message = (*messages)[i];
    std::vector<const char*> names;
    if (message.role == "assistant") names = {"tool_calls"};
    if (message.role == "tool") names = {"tool_call_id", "name"};
    Ordered extra = Ordered::object();
    for (const char* name : names) {
      const auto value = list[i].find(name);
      if (value != list[i].end() && !value->empty()) extra[name] = std::move(*value);  // null is empty
    }
    if (!extra.empty()) message.extra = extra.dump();
  }
}

}  // namespace ballast::server
