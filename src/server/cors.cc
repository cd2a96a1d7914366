#include "server/cors.h"

#include <algorithm>

namespace ballast::server {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
  return out;
}

bool Contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Header names only: the answer repeats them.
bool IsHeaderList(std::string_view text) {
  return !text.empty() && text.size() < 4096 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

std::string HostName(std::string_view host) {
  if (!host.empty() && host.front() == '[') return Lower(host.substr(1, host.find(']') - 1));
  const size_t colon = host.find(':');
  std::string name = Lower(host.substr(0, colon));
  if (!name.empty() && name.back() == '.') name.pop_back();
  return name;
}

bool IsLocalName(std::string_view name) {
  if (name == "localhost" || name == "::1" || name == "0.0.0.0") return true;
  if (name.size() > 10 && name.substr(name.size() - 10) == ".localhost") return true;
  if (name.substr(0, 4) != "127.") return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

bool Cors::AllowsHost(const HttpRequest& request) const {
  if (!options_.loopback) return true;
  const std::string name = HostName(request.Header("host"));
  return name.empty() || IsLocalName(name) || Contains(options_.hosts, name);
}

bool Cors::AllowsOrigin(const HttpRequest& request) const {
  const std::string origin = Lower(request.Header("origin"));
  if (origin.empty() || Contains(options_.origins, "*") || Contains(options_.origins, origin)) return true;
  const size_t scheme_end = origin.find("://");
  if (scheme_end == std::string::npos) return false;  // "null": a sandboxed page
  const std::string scheme = origin.substr(0, scheme_end);
  const std::string authority = origin.substr(scheme_end + 3);
  for (const char* app : {"app", "file", "tauri", "vscode-webview", "vscode-file"}) {
    if (scheme == app) return true;
  }
  if (scheme != "http" && scheme != "https") return false;
  if (IsLocalName(HostName(authority))) return true;
  // The page itself, also through a proxy that keeps the Host header.
  return authority == Lower(request.Header("host"));
}

Headers Cors::AnswerHeaders(const HttpRequest& request, bool preflight) const {
  const std::string_view origin = request.Header("origin");
  Headers headers = {{"Vary", "Origin"}};
  if (origin.empty()) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, Retry-After");
  if (!preflight) return headers;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
  const std::string_view wanted = request.Header("access-control-request-headers");
  headers.emplace_back(
      "Access-Control-Allow-Headers",
      IsHeaderList(wanted) ? std::string(wanted) : "Authorization, Content-Type, x-api-key, x-session-id");
  headers.emplace_back("Access-Control-Max-Age", "86400");
  if (request.Header("access-control-request-private-network") == "true") {
    headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return headers;
}

}  // namespace ballast::server
