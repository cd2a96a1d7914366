#include "server/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "server/http.h"
#include "text/utf8.h"

namespace ballast::server {
namespace {

using nlohmann::json;

ApiError BadBody(std::string message) {
  ApiError error;
  error.status = 400;
  error.type = "invalid_request_error";
  error.message = std::move(message);
  error.code = "invalid_json";
  return error;
}

// Depth and number of values, before anything is built: one pass over the bytes.
const char* CheckShape(std::string_view body) {
  int depth = 0;
  int64_t values = 0;
  bool quoted = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return "is nested too deeply";
      ++values;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    }
    if (values > kMaxJsonValues) return "holds too many values";
  }
  return nullptr;
}

}  // namespace

std::optional<ApiError> ParseObject(std::string_view body, json* out) {
  if (!IsValidUtf8(body)) return BadBody("request body: expected UTF-8, found bytes that are not");
  if (const char* fault = CheckShape(body)) {
    return BadBody(fmt::format("request body: expected at most {} levels and {} values, found JSON that {}",
                               kMaxJsonDepth, kMaxJsonValues, fault));
  }
  try {
    *out = json::parse(body);
  } catch (const json::exception& fault) {
    const std::string what = fault.what();  // "[json.exception.parse_error.101] parse error at line ..."
    const size_t words = what.find("] ");
    return BadBody("request body: expected JSON, found: " +
                   (words == std::string::npos ? what : what.substr(words + 2)));
  }
  if (!out->is_object()) return BadBody("request body: expected a JSON object, found " + Shown(*out));
  return std::nullopt;
}

std::string Shown(const json& value) {
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return "an object";
  const std::string text = Dump(value);
  if (text.size() <= 60) return text;
  size_t cut = 56;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

std::optional<int64_t> AsInteger(const json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) <= 9007199254740992.0) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

const json* Fields::Find(std::string_view name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void Fields::Fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

void Fields::Fail(std::string_view name, std::string_view expected, const json& found) {
  Fail(InvalidField(prefix_ + std::string(name), expected, Shown(found)));
}

void Fields::Missing(std::string_view name, std::string_view expected) {
  ApiError error = InvalidField(prefix_ + std::string(name), expected, "nothing");
  error.code = "missing_required_parameter";
  Fail(std::move(error));
}

bool Fields::Bool(std::string_view name, bool* out) {
  const json* value = Find(name);
  if (value == nullptr || !ok()) return false;
  if (!value->is_boolean()) {
    Fail(name, "true or false", *value);
    return false;
  }
  *out = value->get<bool>();
  return true;
}

bool Fields::Int(std::string_view name, int64_t low, int64_t high, int64_t* out) {
  const json* value = Find(name);
  if (value == nullptr || !ok()) return false;
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number || *number < low || *number > high) {
    Fail(name, fmt::format("an integer from {} to {}", low, high), *value);
    return false;
  }
  *out = *number;
  return true;
}

bool Fields::Number(std::string_view name, double low, double high, double* out) {
  const json* value = Find(name);
  if (value == nullptr || !ok()) return false;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    Fail(name, fmt::format("a number from {:g} to {:g}", low, high), *value);
    return false;
  }
  *out = number;
  return true;
}

bool Fields::String(std::string_view name, std::string* out) {
  const json* value = Find(name);
  if (value == nullptr || !ok()) return false;
  if (!value->is_string()) {
    Fail(name, "a string", *value);
    return false;
  }
  *out = value->get<std::string>();
  return true;
}

void Fields::Unsupported(std::string_view name) {
  const json* value = Find(name);
  if (value == nullptr || !ok()) return;
  const bool nothing = (value->is_structured() && value->empty()) || *value == false ||
                       (value->is_string() && value->get_ref<const std::string&>().empty());
  if (nothing) return;
  ApiError error = InvalidField(prefix_ + std::string(name), "nothing", Shown(*value));
  error.message = fmt::format("{}{}: not supported by this server", prefix_, name);
  error.code = "unsupported_parameter";
  Fail(std::move(error));
}

}  // namespace ballast::server
