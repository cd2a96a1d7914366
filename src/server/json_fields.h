// Reading a JSON object from outside, field by field, without trusting it.
//
// Purpose: wrong types, ranges and encodings become one ApiError that names the field. null is absent, and
// unknown fields are ignored. Thread safety: one reader, one thread. Invariants: 1. the first error is kept;
// after it every read leaves its output as it was. 2. nothing here throws or recurses with the input's depth.
#ifndef BALLAST_SERVER_JSON_FIELDS_H_
#define BALLAST_SERVER_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/service.h"

namespace ballast::server {

// Most levels of nesting and most values in a body: a body of a few megabytes must not become gigabytes.
inline constexpr int kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonValues = 2'000'000;

// An object, or the error to answer with.
std::optional<ApiError> ParseObject(std::string_view body, nlohmann::json* out);

class Fields {
 public:
  // `prefix` goes before names in errors, e.g. "stream_options.".
  explicit Fields(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // nullptr when absent or null.
  const nlohmann::json* Find(std::string_view name) const;
  // Each returns whether the field was there and good.
  bool Bool(std::string_view name, bool* out);
  bool Int(std::string_view name, int64_t low, int64_t high, int64_t* out);
  bool Number(std::string_view name, double low, double high, double* out);
  bool String(std::string_view name, std::string* out);
  // A field that may be there, but only empty ([], {}, "", false) or null: what this server cannot do.
  void Unsupported(std::string_view name);

  void Fail(std::string_view name, std::string_view expected, const nlohmann::json& found);
  void Fail(ApiError error);
  void Missing(std::string_view name, std::string_view expected);
  bool ok() const { return !error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// A value made short for a message: "\"hot\"", "[...]", "3".
std::string Shown(const nlohmann::json& value);
// An integer, also one written as 5.0. Nothing when it is none or beyond 64 bits.
std::optional<int64_t> AsInteger(const nlohmann::json& value);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_JSON_FIELDS_H_
