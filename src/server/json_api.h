// From JSON bodies to the service's requests: what the OpenAI routes accept, checked field by field.
//
// Purpose: everything that can be wrong with a request is found here and answered with 400 (404 for the
// model's name) naming the field; the service only ever sees sound requests. Thread safety: pure functions.
// Invariants: 1. null is absent, unknown fields are ignored, what cannot be done is refused, never dropped.
// 2. n choices (and lists of prompts) are fanned out to as many Requests, at most kMaxChoices.
#ifndef BALLAST_SERVER_JSON_API_H_
#define BALLAST_SERVER_JSON_API_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/json_fields.h"
#include "server/service.h"

namespace ballast::server {

inline constexpr int kMaxChoices = 16;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr int kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;

enum class Api { kChat, kCompletion, kResponses };

struct Generate {
  Api api = Api::kChat;
  std::string id;     // "chatcmpl-...", "cmpl-...", "resp_..."
  std::string model;  // as answers name it
  int64_t created = 0;
  bool stream = false;
  bool include_usage = false;
  int top_logprobs = -1;          // -1: none wanted
  std::vector<Request> requests;  // one per choice
  nlohmann::json echo;            // responses: the request's own fields, which its answer repeats
};

struct ModelNames {
  const Service::ModelInfo* info = nullptr;
  std::vector<std::string> aliases;  // also accepted in "model"
};

// What every generating route shares: sampling, stops, session, model. `limit_names`: the fields for the most
// tokens, the first one wins.
void ReadCommon(Fields& fields, const HttpRequest& http, const ModelNames& names,
                const std::vector<std::string>& limit_names, Request* request);
void CheckModel(Fields& fields, const ModelNames& names);
// One request becomes `n`: other seeds, other ids, and only the first keeps a named session.
void FanOut(Fields& fields, Request request, int64_t n, Generate* out);
// The role of the message `item`, which stands at `at`; `more`: those allowed beside system, developer, user
// and assistant.
bool ReadRole(Fields& fields, const nlohmann::json& item, const std::string& at,
              const std::vector<std::string>& more, ChatMessage* message);
// A string, or a list of text parts: {"type": one of `types`, "text"}.
bool ReadContent(Fields& fields, const nlohmann::json& value, const std::string& field,
                 const std::vector<std::string>& types, std::string* text);
bool IsSessionId(std::string_view id);  // [A-Za-z0-9_-]{1,64}

std::optional<ApiError> ParseChat(const HttpRequest& http, const ModelNames& names, Generate* out);
std::optional<ApiError> ParseCompletion(const HttpRequest& http, const ModelNames& names, Generate* out);
std::optional<ApiError> ParseResponses(const HttpRequest& http, const ModelNames& names, Generate* out);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_JSON_API_H_
