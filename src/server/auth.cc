#include "server/auth.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/sha256.h"

namespace ballast::server {
namespace {

constexpr size_t kTenantDigits = 16;

std::string Digest(std::string_view key) {
  return Sha256Hex(std::span(reinterpret_cast<const uint8_t*>(key.data()), key.size()));
}

bool StartsWithNoCase(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + 'a' - 'A') : b);
         });
}

std::string KeyOf(const HttpRequest& request) {
  const std::string_view authorization = request.Header("authorization");
  if (StartsWithNoCase(authorization, "bearer ")) return std::string(authorization.substr(7));
  if (StartsWithNoCase(authorization, "basic ")) {
    const std::string pair = DecodeBase64(authorization.substr(6)).value_or("");
    const size_t colon = pair.find(':');
    return colon == std::string::npos ? "" : pair.substr(colon + 1);
  }
  return std::string(request.Header("x-api-key"));
}

}  // namespace

Auth::Auth(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(Digest(key));
}

std::optional<std::string> Auth::Tenant(const HttpRequest& request) const {
  if (open()) return "";
  const std::string digest = Digest(KeyOf(request));
  bool known = false;
  for (const std::string& good : digests_) {  // all of them, to the last digit
    unsigned difference = 0;
    for (size_t i = 0; i < good.size(); ++i) difference |= static_cast<unsigned>(good[i] ^ digest[i]);
    known |= difference == 0;
  }
  if (!known) return std::nullopt;
  return digest.substr(0, kTenantDigits);
}

ApiError Auth::Refusal(const HttpRequest& request) {
  ApiError error;
  error.status = 401;
  error.type = "authentication_error";
  error.code = "invalid_api_key";
  error.message = KeyOf(request).empty() ? "API key: expected \"Authorization: Bearer KEY\", found none"
                                         : "API key: expected one that this server knows, found another";
  return error;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    static constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t value = kDigits.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out += static_cast<char>(bits >> held & 0xFF);
    }
  }
  return out;
}

}  // namespace ballast::server
