// POST /v1/chat/completions and /v1/completions.
#include <fmt/format.h>

#include <limits>

#include "server/json_api.h"
#include "server/json_tools.h"

namespace ballast::server {
namespace {

using nlohmann::json;

void ReadMessages(Fields& fields, std::string_view body, std::vector<ChatMessage>* messages) {
  const json* list = fields.Find("messages");
  if (list == nullptr) return fields.Missing("messages", "a list of messages");
  if (!list->is_array() || list->empty()) return fields.Fail("messages", "at least one message", *list);
  bool tools = false;
  for (size_t i = 0; i < list->size() && fields.ok(); ++i) {
    const json& item = (*list)[i];
    const std::string at = fmt::format("messages[{}]", i);
    if (!item.is_object()) return fields.Fail(at, "an object", item);
    ChatMessage message;
    if (!ReadRole(fields, item, at, {"tool"}, &message)) return;
    const bool calls = CheckToolFields(fields, item, at, message.role);
    if (!fields.ok()) return;
    tools = tools || calls || message.role == "tool";
    const json content = item.value("content", json());
    if (!(calls && content.is_null()) &&
        !ReadContent(fields, content, at + ".content", {"text"}, &message.content)) {
      return;
    }
    messages->push_back(std::move(message));
  }
  if (fields.ok() && tools) CopyToolFields(body, messages);  // read a second time, in order
}

// What this server cannot do is refused, never silently ignored.
void RefuseTheRest(Fields& fields) {
  for (const char* name : {"functions", "audio", "prediction", "web_search_options"}) {
    fields.Unsupported(name);
  }
  for (const char* name : {"tool_choice", "function_call"}) CheckToolChoice(fields, name);
  const json* format = fields.Find("response_format");
  if (format == nullptr) return;
  const json type = format->is_object() ? format->value("type", json()) : json();
  if (type != "text") {
    fields.Fail("response_format", "{\"type\":\"text\"}: this server does not constrain the format", type);
  }
}

void ReadStreaming(Fields& fields, Generate* out) {
  fields.Bool("stream", &out->stream);
  const json* options = fields.Find("stream_options");
  if (options == nullptr || !fields.ok()) return;
  if (!options->is_object()) return fields.Fail("stream_options", "an object", *options);
  Fields inner(*options, "stream_options.");
  inner.Bool("include_usage", &out->include_usage);
  if (!inner.ok()) fields.Fail(*inner.error());
}

void ReadChatLogprobs(Fields& fields, Generate* out, Request* request) {
  bool wanted = false;
  fields.Bool("logprobs", &wanted);
  int64_t top = 0;
  if (fields.Int("top_logprobs", 0, kMaxTopLogprobs, &top) && top > 0 && !wanted) {
    return fields.Fail("top_logprobs", "logprobs to be true", json(top));
  }
  if (wanted) out->top_logprobs = static_cast<int>(top);
  request->top_logprobs = out->top_logprobs;
}

bool IsTokens(const json& value) { return value.is_array() && !value.empty() && value.front().is_number(); }

void ReadTokens(Fields& fields, const json& list, int64_t vocab, std::vector<Token>* tokens) {
  tokens->reserve(list.size());
  for (const json& item : list) {
    const std::optional<int64_t> id = AsInteger(item);
    if (!id || *id < 0 || *id >= vocab) {
      return fields.Fail("prompt", fmt::format("token ids from 0 to {}", vocab - 1), item);
    }
    tokens->push_back(static_cast<Token>(*id));
  }
}

// A prompt is a text, a list of ids, or a list of either.
void ReadPrompts(Fields& fields, const ModelNames& names, int64_t n, const Request& common, Generate* out) {
  const json* value = fields.Find("prompt");
  if (value == nullptr) return fields.Missing("prompt", "a string or token ids");
  const bool one = value->is_string() || IsTokens(*value);
  if (!one && (!value->is_array() || value->empty())) {
    return fields.Fail("prompt", "a string, token ids, or a list of such", *value);
  }
  const size_t count = one ? 1 : value->size();
  if (count > kMaxChoices) {
    return fields.Fail("prompt", fmt::format("at most {} prompts", kMaxChoices), json(count));
  }
  if (count > 1 && !common.session.empty()) {
    return fields.Fail("prompt", "one prompt, since a session goes on with one", json(count));
  }
  for (size_t i = 0; i < count && fields.ok(); ++i) {
    const json& prompt = one ? *value : (*value)[i];
    Request request = common;
    if (prompt.is_string()) {
      request.prompt = prompt.get<std::string>();
      if (request.prompt.empty()) return fields.Fail("prompt", "at least one character", prompt);
    } else if (IsTokens(prompt)) {
      ReadTokens(fields, prompt, names.info->vocab, &request.prompt_tokens);
    } else {
      return fields.Fail("prompt", "a string or token ids", prompt);
    }
    if (fields.ok()) FanOut(fields, std::move(request), n, out);
  }
}

std::optional<ApiError> Begin(const HttpRequest& http, const ModelNames& names, const char* prefix,
                              json* body, Generate* out) {
  if (std::optional<ApiError> error = ParseObject(http.body, body)) return error;
  out->id = NewId(prefix);
  out->model = names.info->id;
  out->created = UnixTime();
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ParseChat(const HttpRequest& http, const ModelNames& names, Generate* out) {
  json body;
  if (std::optional<ApiError> error = Begin(http, names, "chatcmpl-", &body, out)) return error;
  out->api = Api::kChat;
  Fields fields(body);
  Request request;
  request.id = out->id;
  RefuseTheRest(fields);
  ReadTools(fields, http.body, &request.tools);
  ReadStreaming(fields, out);
  ReadCommon(fields, http, names, {"max_completion_tokens", "max_tokens"}, &request);
  ReadChatLogprobs(fields, out, &request);
  if (fields.ok()) ReadMessages(fields, http.body, &request.messages);
  int64_t n = 1;
  fields.Int("n", 1, kMaxChoices, &n);
  if (fields.ok()) FanOut(fields, std::move(request), n, out);
  return fields.error();
}

std::optional<ApiError> ParseCompletion(const HttpRequest& http, const ModelNames& names, Generate* out) {
  json body;
  if (std::optional<ApiError> error = Begin(http, names, "cmpl-", &body, out)) return error;
  out->api = Api::kCompletion;
  Fields fields(body);
  Request request;
  request.id = out->id;
  request.chat = false;
  ReadStreaming(fields, out);
  ReadCommon(fields, http, names, {"max_tokens", "max_completion_tokens"}, &request);
  fields.Unsupported("suffix");
  fields.Bool("echo", &request.echo);
  int64_t top = -1;
  const json* logprobs = fields.Find("logprobs");
  if (logprobs != nullptr && logprobs->is_boolean()) {
    top = logprobs->get<bool>() ? 0 : -1;  // as the chat route has it; some clients send it here too
  } else {
    fields.Int("logprobs", 0, kMaxTopLogprobs, &top);
  }
  out->top_logprobs = request.top_logprobs = static_cast<int>(top);
  int64_t n = 1, best_of = 1;
  fields.Int("n", 1, kMaxChoices, &n);
  if (fields.Int("best_of", 1, kMaxChoices, &best_of) && best_of != n) {
    fields.Fail("best_of", "the same number as n", json(best_of));
  }
  if (fields.ok()) ReadPrompts(fields, names, n, request, out);
  return fields.error();
}

}  // namespace ballast::server
