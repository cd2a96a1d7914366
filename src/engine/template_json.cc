#include "engine/template_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "formats/json.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

JinjaValue ValueOf(const Json& json) {
  if (json.is_boolean()) return JinjaValue::Bool(json.get<bool>());
  if (json.is_number_float()) return JinjaValue::Float(json.get<double>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) {
    return JinjaValue::Float(json.get<double>());  // the template language counts in 64 bits
  }
  if (json.is_number()) return JinjaValue::Int(json.get<int64_t>());
  if (json.is_string()) return JinjaValue::String(json.get<std::string>());
  if (json.is_array()) {
    JinjaValue::Items items;
    for (const Json& item : json) items.push_back(ValueOf(item));
    return JinjaValue::List(std::move(items));
  }
  if (!json.is_object()) return JinjaValue::None();
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  for (const auto& [key, value] : json.items()) {
    entries.emplace_back(JinjaValue::String(key), ValueOf(value));
  }
  return JinjaValue::DictOf(entries);
}

Result<Json> Parse(const std::string& what, const std::string& text) {
  bool deep = false;
  const auto depth = [&deep](int level, Json::parse_event_t, Json&) {
    deep = deep || level > kMaxJsonDepth;
    return !deep;
  };
  Json json = Json::parse(text, depth, false);
  if (deep || json.is_discarded()) {
    return Status::Expected(Code::kInput, what,
                            "JSON of at most " + std::to_string(kMaxJsonDepth) + " levels",
                            deep ? "more" : "none");
  }
  return json;
}

// Arguments of a call that are an object in a string, as OpenAI has it, become that object, as templates
// expect.
void OpenArguments(Json* extra) {
  const auto calls = extra->find("tool_calls");
  if (calls == extra->end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    Result<Json> opened = Parse("arguments", arguments->get<std::string>());
    if (opened.ok() && opened->is_object()) *arguments = std::move(opened).value();
  }
}

}  // namespace

Result<JinjaValue> TemplateJson(const std::string& what, const std::string& json) {
  BALLAST_ASSIGN_OR_RETURN(const Json tree, Parse(what, json));
  return ValueOf(tree);
}

Result<JinjaValue> TemplateMessagesWithExtras(const std::vector<ChatMessage>& messages) {
  JinjaValue::Items items;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    std::vector<std::pair<JinjaValue, JinjaValue>> entries = {
        {JinjaValue::Trusted("role"), JinjaValue::String(message.role)},
        {JinjaValue::Trusted("content"), JinjaValue::String(message.content)}};
    if (!message.extra.empty()) {
      BALLAST_ASSIGN_OR_RETURN(Json extra, Parse("messages[" + std::to_string(i) + "]", message.extra));
      if (extra.is_object()) OpenArguments(&extra);
      for (const auto& [key, value] : extra.items()) {
        if (key == "role" || key == "content") continue;
        entries.emplace_back(JinjaValue::String(key), ValueOf(value));
      }
    }
    items.push_back(JinjaValue::DictOf(entries));
  }
  return JinjaValue::List(std::move(items));
}

}  // namespace ballast
