// Which handler answers a method and a path. Thread safety: constant once filled. Invariant: a pattern's
// "{...}" matches one whole path segment, percent-decoded, never an empty one.
#ifndef BALLAST_SERVER_ROUTER_H_
#define BALLAST_SERVER_ROUTER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace ballast::server {

using Handler = std::function<std::unique_ptr<Answer>(const HttpRequest&)>;

struct Route {
  std::string method, pattern;
  Handler handler;
  bool keyless = false;  // answers without an API key
};

class Router {
 public:
  void Add(std::string method, std::string pattern, Handler handler, bool keyless = false);

  struct Match {
    const Route* route = nullptr;     // nullptr: see `allow`
    std::vector<std::string> params;  // what the braces matched
    std::string allow;                // methods the path has; "": the path is unknown
  };
  // HEAD finds GET's route.
  Match Find(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_ROUTER_H_
