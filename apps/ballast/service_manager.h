// Telling systemd how the service is (Type=notify), without its library: sd_notify(3) is one datagram.
#ifndef BALLAST_APPS_SERVICE_MANAGER_H_
#define BALLAST_APPS_SERVICE_MANAGER_H_

#include <string_view>

namespace ballast::app {

// "READY=1", "STOPPING=1", "STATUS=...". Nothing happens when nobody asked (no NOTIFY_SOCKET).
void NotifyServiceManager(std::string_view state);

}  // namespace ballast::app

#endif  // BALLAST_APPS_SERVICE_MANAGER_H_
