// Every route of the server and what it needs. Thread safety: handlers may run on any thread.
#ifndef BALLAST_SERVER_ROUTES_H_
#define BALLAST_SERVER_ROUTES_H_

#include <string>
#include <vector>

#include "server/json_api.h"
#include "server/metrics.h"
#include "server/router.h"
#include "server/service.h"

namespace ballast::server {

struct RouteContext {
  Service* service = nullptr;
  Metrics* metrics = nullptr;
  std::vector<std::string> model_aliases;
};

// `context` outlives the router.
void AddRoutes(const RouteContext& context, Router* router);
void AddSessionRoutes(const RouteContext& context, Router* router);
void AddPageRoutes(Router* router);

// 503 while the service loads, drains or has failed; nothing when it takes requests.
std::optional<ApiError> NotReady(const RouteContext& context);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_ROUTES_H_
