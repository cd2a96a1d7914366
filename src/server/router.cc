#include "server/router.h"

#include <charconv>
#include <optional>

namespace ballast::server {
namespace {

std::optional<std::string> Decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* first = text.data() + i + 1;
    const auto [end, fault] = std::from_chars(first, first + 2, value, 16);
    if (fault != std::errc() || end != first + 2) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

std::string_view NextSegment(std::string_view* path) {
  const size_t end = path->find('/', 1);
  const std::string_view segment = path->substr(0, end);
  path->remove_prefix(segment.size());
  return segment.empty() ? segment : segment.substr(1);
}

bool Matches(std::string_view pattern, std::string_view path, std::vector<std::string>* params) {
  params->clear();
  while (!pattern.empty() && !path.empty()) {
    if (path.front() != '/') return false;
    const std::string_view wanted = NextSegment(&pattern), found = NextSegment(&path);
    if (wanted.empty() || wanted.front() != '{') {
      if (wanted != found) return false;
      continue;
    }
    std::optional<std::string> value = Decode(found);
    if (!value || value->empty()) return false;
    params->push_back(std::move(*value));
  }
  return pattern.empty() && path.empty();
}

}  // namespace

void Router::Add(std::string method, std::string pattern, Handler handler, bool keyless) {
  routes_.push_back({std::move(method), std::move(pattern), std::move(handler), keyless});
}

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  if (method == "HEAD") method = "GET";
  Match match;
  for (const Route& route : routes_) {
    if (!Matches(route.pattern, path, &match.params)) continue;
    if (route.method == method) {
      match.route = &route;
      return match;
    }
    match.allow += (match.allow.empty() ? "" : ", ") + route.method;
    if (route.method == "GET") match.allow += ", HEAD";
  }
  return match;
}

}  // namespace ballast::server
