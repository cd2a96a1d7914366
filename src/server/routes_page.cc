// GET /: the page and the API's description, out of the binary.
#include <cstdint>
#include <map>

#include "base/sha256.h"
#include "server/assets.h"
#include "server/routes.h"

namespace ballast::server {
namespace {

// Nothing from elsewhere, no inline scripts, no frames: the page works offline and holds the user's texts.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* ContentType(std::string_view name) {
  static const std::map<std::string_view, const char*> kTypes = {
      {"html", "text/html; charset=utf-8"},
      {"js", "text/javascript; charset=utf-8"},
      {"mjs", "text/javascript; charset=utf-8"},
      {"css", "text/css; charset=utf-8"},
      {"svg", "image/svg+xml"},
      {"png", "image/png"},
      {"ico", "image/x-icon"},
      {"json", "application/json"},
      {"webmanifest", "application/manifest+json"},
      {"woff2", "font/woff2"},
      {"txt", "text/plain; charset=utf-8"},
  };
  const auto at = kTypes.find(name.substr(name.rfind('.') + 1));
  return at == kTypes.end() ? "application/octet-stream" : at->second;
}

std::string Tag(std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return "\"" + Sha256Hex({data, bytes.size()}).substr(0, 24) + "\"";
}

void AddFile(const EmbeddedFile& file, const std::string& path, Router* router) {
  Head head;
  head.content_type = ContentType(file.name);
  head.headers = {{"ETag", Tag(file.bytes)},
                  {"Cache-Control", "no-cache"},
                  {"Content-Security-Policy", kPolicy},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cross-Origin-Opener-Policy", "same-origin"}};
  router->Add("GET", path, [head, bytes = file.bytes](const HttpRequest& request) {
    const std::string_view known = request.Header("if-none-match");
    if (known == "*" || known.find(head.headers[0].second) != std::string_view::npos) {
      Head same = head;
      same.status = 304;
      return std::make_unique<TextAnswer>(std::move(same), "");
    }
    return std::make_unique<TextAnswer>(head, std::string(bytes));
  });
}

}  // namespace

void AddPageRoutes(Router* router) {
  for (const EmbeddedFile& file : PageFiles()) {
    AddFile(file, "/" + std::string(file.name), router);
    if (file.name == "index.html") AddFile(file, "/", router);
  }
  for (const EmbeddedFile& file : ApiFiles()) AddFile(file, "/" + std::string(file.name), router);
}

}  // namespace ballast::server
