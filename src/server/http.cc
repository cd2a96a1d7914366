#include "server/http.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

namespace ballast::server {

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string Dump(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json ErrorJson(const ApiError& error) {
  const auto text = [](const std::string& value) {
    return value.empty() ? nlohmann::json(nullptr) : nlohmann::json(value);
  };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", text(error.param)},
            {"code", error.code}}}};
}

Head ErrorHead(const ApiError& error) {
  Head head;
  head.status = error.status;
  if (error.retry_after > 0) head.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return head;
}

std::unique_ptr<Answer> JsonAnswer(const nlohmann::json& document, int status) {
  Head head;
  head.status = status;
  return std::make_unique<TextAnswer>(std::move(head), Dump(document));
}

std::unique_ptr<Answer> ErrorAnswer(const ApiError& error) {
  return std::make_unique<TextAnswer>(ErrorHead(error), Dump(ErrorJson(error)));
}

ApiError InvalidField(std::string_view field, std::string_view expected, std::string_view found) {
  ApiError error;
  error.status = 400;
  error.type = "invalid_request_error";
  error.message = fmt::format("{}: expected {}, found {}", field, expected, found);
  error.param = field;
  error.code = "invalid_value";
  return error;
}

ApiError NotFound(std::string message, std::string code) {
  ApiError error;
  error.status = 404;
  error.type = "invalid_request_error";
  error.message = std::move(message);
  error.code = std::move(code);
  return error;
}

std::string NewId(std::string_view prefix) {
  thread_local std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

int64_t UnixTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace ballast::server
