// Which web pages may use the server from a browser.
//
// Purpose: like Ollama's: pages on this machine and desktop apps may, others only when the operator says so;
// and on a loopback address the Host header must name this machine, so that a page cannot reach the server
// through a name of its own that resolves to 127.0.0.1 (DNS rebinding). Thread safety: constant once made.
#ifndef BALLAST_SERVER_CORS_H_
#define BALLAST_SERVER_CORS_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace ballast::server {

struct CorsOptions {
  std::vector<std::string> origins;  // "https://chat.example.org", or "*"
  std::vector<std::string> hosts;    // further names of this machine for the Host header
  bool loopback = true;              // the server listens on a loopback address
};

class Cors {
 public:
  explicit Cors(CorsOptions options) : options_(std::move(options)) {}
  bool AllowsHost(const HttpRequest& request) const;
  // Requests without an Origin (no browser, or no foreign page) are allowed.
  bool AllowsOrigin(const HttpRequest& request) const;
  // The headers of an answer to an allowed request. `preflight`: also methods and headers.
  Headers AnswerHeaders(const HttpRequest& request, bool preflight) const;

 private:
  CorsOptions options_;
};

// "localhost:8080" -> "localhost", "[::1]:80" -> "::1"; lower case.
std::string HostName(std::string_view host);
bool IsLocalName(std::string_view name);  // localhost, *.localhost, 127.*, ::1

}  // namespace ballast::server

#endif  // BALLAST_SERVER_CORS_H_
