// Files that live inside the binary: the page and the API's description (cmake/Embed.cmake writes the bytes).
// Thread safety: constant.
#ifndef BALLAST_SERVER_ASSETS_H_
#define BALLAST_SERVER_ASSETS_H_

#include <span>
#include <string_view>

namespace ballast::server {

struct EmbeddedFile {
  std::string_view name;  // without folders
  std::string_view bytes;
};

std::span<const EmbeddedFile> PageFiles();  // src/server/page/ and Debian's Chart.js
std::span<const EmbeddedFile> ApiFiles();   // openapi.json

}  // namespace ballast::server

#endif  // BALLAST_SERVER_ASSETS_H_
