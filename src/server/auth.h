// Who may ask: API keys.
//
// Purpose: a request's key becomes a tenant, or 401. Thread safety: constant once made. Invariants: 1. only
// digests are kept and compared; a comparison takes the same time whatever the key and whichever matches.
// 2. without keys everybody is the tenant "".
#ifndef BALLAST_SERVER_AUTH_H_
#define BALLAST_SERVER_AUTH_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace ballast::server {

class Auth {
 public:
  explicit Auth(const std::vector<std::string>& keys);
  bool open() const { return digests_.empty(); }
  // The tenant, or nothing when the key is missing or wrong. Taken from "Authorization: Bearer KEY", from
  // "x-api-key", or as the password of "Authorization: Basic" (what a browser sends for the page).
  std::optional<std::string> Tenant(const HttpRequest& request) const;
  // `page`: a browser asks, which can prompt for a password.
  static ApiError Refusal(const HttpRequest& request);
  static const char* Challenge(bool page) {
    return page ? "Basic realm=\"Ballast: the API key is the password\"" : "Bearer";
  }

 private:
  std::vector<std::string> digests_;  // hex SHA-256
};

std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_AUTH_H_
