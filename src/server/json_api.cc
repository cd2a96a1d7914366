#include "server/json_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace ballast::server {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

void ReadSeed(Fields& fields, SamplerOptions* sampling) {
  const json* value = fields.Find("seed");
  if (value == nullptr) return;
  if (value->is_number_unsigned()) {  // all 64 bits may be used
    sampling->seed = value->get<uint64_t>();
    return;
  }
  const std::optional<int64_t> seed = AsInteger(*value);
  if (!seed) return fields.Fail("seed", "an integer", *value);
  sampling->seed = static_cast<uint64_t>(*seed);
}

void ReadLogitBias(Fields& fields, int64_t vocab, SamplerOptions* sampling) {
  const json* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.Fail("logit_bias", "an object of token ids and numbers", *value);
  const std::string ids = fmt::format("token ids from 0 to {} as names", vocab - 1);
  for (const auto& [name, bias] : value->items()) {
    int64_t id = -1;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (fault != std::errc() || end != name.data() + name.size() || id < 0 || id >= vocab) {
      return fields.Fail("logit_bias", ids, json(name));
    }
    const double number = bias.is_number() ? bias.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= -100 && number <= 100)) {
      return fields.Fail("logit_bias", "numbers from -100 to 100", bias);
    }
    sampling->logit_bias[static_cast<Token>(id)] = number;
  }
}

void ReadSampling(Fields& fields, const ModelNames& names, SamplerOptions* sampling) {
  fields.Number("temperature", 0, 2, &sampling->temperature);
  // 0 would leave no token; OpenAI's clients send it for "greedy", which the likeliest token alone is.
  if (fields.Number("top_p", 0, 1, &sampling->top_p)) sampling->top_p = std::max(sampling->top_p, 1e-9);
  fields.Number("min_p", 0, 1, &sampling->min_p);
  fields.Int("top_k", 0, std::numeric_limits<int32_t>::max(), &sampling->top_k);
  fields.Number("presence_penalty", -2, 2, &sampling->presence_penalty);
  fields.Number("frequency_penalty", -2, 2, &sampling->frequency_penalty);
  fields.Number("repeat_penalty", 0.01, 100, &sampling->repeat_penalty);
  fields.Int("repeat_last_n", -1, 1 << 20, &sampling->repeat_last_n);
  ReadSeed(fields, sampling);
  ReadLogitBias(fields, names.info->vocab, sampling);
}

void ReadStops(Fields& fields, std::vector<std::string>* stops) {
  const json* value = fields.Find("stop");
  if (value == nullptr) return;
  const std::string expected =
      fmt::format("a string or a list of at most {} strings of 1 to {} bytes", kMaxStops, kMaxStopBytes);
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kMaxStops) return fields.Fail("stop", expected, *value);
  for (const json& stop : list) {
    if (!stop.is_string()) return fields.Fail("stop", expected, stop);
    std::string text = stop.get<std::string>();
    if (text.empty() || text.size() > kMaxStopBytes) return fields.Fail("stop", expected, stop);
    stops->push_back(std::move(text));
  }
}

void ReadSession(Fields& fields, const HttpRequest& http, std::string* session) {
  fields.String("session", session);
  const std::string_view header = http.Header("x-session-id");
  if (!header.empty()) {
    if (!session->empty() && *session != header) {
      return fields.Fail("session", "the same id as in x-session-id", json(*session));
    }
    *session = header;
  }
  if (fields.Find("session") == nullptr && header.empty()) return;
  if (fields.ok() && !IsSessionId(*session)) {
    fields.Fail("session", "1 to 64 letters, digits, - or _", json(*session));
  }
}

void ReadPlace(Fields& fields, const HttpRequest& http, Request* request) {
  ReadSession(fields, http, &request->session);
  std::string text;
  if (fields.String("policy", &text)) {
    const Result<Policy> policy = ParsePolicy(text);
    if (!policy.ok()) return fields.Fail("policy", "sinks, window, dense or recompute", json(text));
    request->policy = *policy;
  }
  int64_t sinks = 0;
  if (fields.Int("sinks", 0, kMaxContext, &sinks)) request->sinks = sinks;
  if (fields.String("evict", &text)) {
    if (text != "token" && text != "turn") return fields.Fail("evict", "\"token\" or \"turn\"", json(text));
    request->evict = text == "turn" ? Evict::kTurn : Evict::kToken;
  }
  fields.Bool("pin_system", &request->pin_system);
  if (fields.String("truncation", &text)) {
    if (text != "auto" && text != "disabled") {
      return fields.Fail("truncation", "\"auto\" or \"disabled\"", json(text));
    }
    request->refuse_eviction = text == "disabled";
  }
}

}  // namespace

bool IsSessionId(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
  });
}

void CheckModel(Fields& fields, const ModelNames& names) {
  std::string model;
  if (!fields.String("model", &model) || model == names.info->id) return;
  if (std::find(names.aliases.begin(), names.aliases.end(), model) != names.aliases.end()) return;
  ApiError error = NotFound(fmt::format("model: expected '{}', found {}", names.info->id, Shown(json(model))),
                            "model_not_found");
  error.param = "model";
  fields.Fail(std::move(error));
}

void ReadCommon(Fields& fields, const HttpRequest& http, const ModelNames& names,
                const std::vector<std::string>& limit_names, Request* request) {
  CheckModel(fields, names);
  request->tenant = http.tenant;
  for (const std::string& name : limit_names) {
    int64_t limit = 0;
    if (fields.Int(name, 0, kMaxTokens, &limit) && request->max_tokens < 0) request->max_tokens = limit;
  }
  ReadSampling(fields, names, &request->sampling);
  ReadStops(fields, &request->stops);
  ReadPlace(fields, http, request);
}

void FanOut(Fields& fields, Request request, int64_t n, Generate* out) {
  if (static_cast<int64_t>(out->requests.size()) + n > kMaxChoices) {
    return fields.Fail("n", fmt::format("at most {} choices in all", kMaxChoices),
                       json(static_cast<int64_t>(out->requests.size()) + n));
  }
  if (n > 1 && !request.session.empty()) {
    return fields.Fail("n", "1, since a session goes on with one reply", json(n));
  }
  const auto add = [out](Request copy, int64_t i) {
    if (!out->requests.empty()) {
      copy.id += fmt::format("-{}", out->requests.size());
      if (copy.sampling.seed) *copy.sampling.seed += static_cast<uint64_t>(i);
    }
    out->requests.push_back(std::move(copy));
  };
  for (int64_t i = 0; i + 1 < n; ++i) add(request, i);
  if (n > 0) add(std::move(request), n - 1);
}

bool ReadRole(Fields& fields, const json& item, const std::string& at, const std::vector<std::string>& more,
              ChatMessage* message) {
  const json role = item.value("role", json());
  if (role.is_string()) message->role = role.get<std::string>();
  std::vector<std::string> known = {"system", "developer", "user", "assistant"};
  known.insert(known.end(), more.begin(), more.end());
  if (std::find(known.begin(), known.end(), message->role) != known.end()) return true;
  const std::string last = std::exchange(known.back(), "");
  known.pop_back();
  fields.Fail(at + ".role", fmt::format("{} or {}", fmt::join(known, ", "), last), role);
  return false;
}

bool ReadContent(Fields& fields, const json& value, const std::string& field,
                 const std::vector<std::string>& types, std::string* text) {
  if (value.is_string()) {
    *text = value.get<std::string>();
    return true;
  }
  if (!value.is_array()) {
    fields.Fail(field, "a string or a list of text parts", value);
    return false;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    const json& part = value[i];
    const json type = part.is_object() ? part.value("type", json()) : json();
    if (!type.is_string() || std::find(types.begin(), types.end(), type.get<std::string>()) == types.end()) {
      fields.Fail(at + ".type", "\"" + types.front() + "\", the only kind this server takes", type);
      return false;
    }
    const json words = part.value("text", json());
    if (!words.is_string()) {
      fields.Fail(at + ".text", "a string", words);
      return false;
    }
    *text += words.get<std::string>();
  }
  return true;
}

}  // namespace ballast::server
