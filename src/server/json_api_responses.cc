// POST /v1/responses.
#include <fmt/format.h>

#include "server/json_api.h"
#include "server/json_tools.h"

namespace ballast::server {
namespace {

using nlohmann::json;

void ReadItem(Fields& fields, const json& item, const std::string& at, std::vector<ChatMessage>* messages) {
  if (!item.is_object()) return fields.Fail(at, "an object", item);
  const json type = item.value("type", json("message"));
  if (type != "message" && !type.is_null()) {
    return fields.Fail(at + ".type", "\"message\", the only kind this server takes", type);
  }
  ChatMessage message;
  if (!ReadRole(fields, item, at, {}, &message)) return;
  const json content = item.value("content", json());
  if (ReadContent(fields, content, at + ".content", {"input_text", "output_text", "text"},
                  &message.content)) {
    messages->push_back(std::move(message));
  }
}

void ReadInput(Fields& fields, std::vector<ChatMessage>* messages) {
  std::string instructions;
  if (fields.String("instructions", &instructions) && !instructions.empty()) {
    messages->push_back({"system", instructions});
  }
  const json* input = fields.Find("input");
  if (input == nullptr) return fields.Missing("input", "a string or a list of items");
  if (input->is_string()) {
    messages->push_back({"user", input->get<std::string>()});
    if (messages->back().content.empty()) fields.Fail("input", "at least one character", *input);
    return;
  }
  if (!input->is_array() || input->empty())
    return fields.Fail("input", "a string or a list of items", *input);
  for (size_t i = 0; i < input->size() && fields.ok(); ++i) {
    ReadItem(fields, (*input)[i], fmt::format("input[{}]", i), messages);
  }
}

void RefuseTheRest(Fields& fields) {
  for (const char* name : {"tools", "background", "conversation", "prompt", "max_tool_calls"}) {
    fields.Unsupported(name);
  }
  CheckToolChoice(fields, "tool_choice");
  const json* text = fields.Find("text");
  if (text == nullptr) return;
  if (!text->is_object()) return fields.Fail("text", "an object", *text);
  const json format = text->value("format", json());
  if (format.is_null()) return;
  const json type = format.is_object() ? format.value("type", json()) : json();
  if (type != "text") {
    fields.Fail("text.format", "{\"type\":\"text\"}: this server does not constrain the format", type);
  }
}

void ReadLogprobs(Fields& fields, Generate* out, Request* request) {
  const json* include = fields.Find("include");
  if (include != nullptr && !include->is_array())
    return fields.Fail("include", "a list of strings", *include);
  bool wanted = false;
  if (include != nullptr) {
    for (const json& name : *include) wanted = wanted || name == "message.output_text.logprobs";
  }
  int64_t top = 0;
  fields.Int("top_logprobs", 0, kMaxTopLogprobs, &top);
  if (wanted || top > 0) out->top_logprobs = static_cast<int>(top);
  request->top_logprobs = out->top_logprobs;
}

// The fields of the request that its answer repeats, as OpenAI's clients expect them.
json Echo(const Fields& fields, const Request& request) {
  const auto given = [&](const char* name) {
    const json* value = fields.Find(name);
    return value == nullptr ? json(nullptr) : *value;
  };
  json metadata = given("metadata");
  if (!metadata.is_object()) metadata = json::object();
  return {{"instructions", given("instructions")},
          {"max_output_tokens", given("max_output_tokens")},
          {"metadata", std::move(metadata)},
          {"parallel_tool_calls", false},
          {"previous_response_id", given("previous_response_id")},
          {"store", request.store},
          {"temperature", request.sampling.temperature},
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", "auto"},
          {"tools", json::array()},
          {"top_p", request.sampling.top_p},
          {"truncation", request.refuse_eviction ? "disabled" : "auto"},
          {"user", given("user")}};
}

}  // namespace

std::optional<ApiError> ParseResponses(const HttpRequest& http, const ModelNames& names, Generate* out) {
  json body;
  if (std::optional<ApiError> error = ParseObject(http.body, &body)) return error;
  out->api = Api::kResponses;
  out->id = NewId("resp_");
  out->model = names.info->id;
  out->created = UnixTime();
  Fields fields(body);
  Request request;
  request.id = out->id;
  request.store = true;  // as OpenAI's default
  RefuseTheRest(fields);
  fields.Bool("stream", &out->stream);
  fields.Bool("store", &request.store);
  ReadCommon(fields, http, names, {"max_output_tokens"}, &request);
  ReadLogprobs(fields, out, &request);
  if (fields.String("previous_response_id", &request.previous) && !IsSessionId(request.previous)) {
    fields.Fail("previous_response_id", "the id of a response", json(request.previous));
  }
  if (!request.previous.empty() && !request.session.empty()) {
    fields.Fail("previous_response_id", "no session beside it", json(request.previous));
  }
  if (fields.ok()) ReadInput(fields, &request.messages);
  if (!fields.ok()) return fields.error();
  out->echo = Echo(fields, request);
  out->requests.push_back(std::move(request));
  return std::nullopt;
}

}  // namespace ballast::server
