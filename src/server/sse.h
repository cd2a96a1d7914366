// Server-sent events: the few bytes around each piece of JSON. Thread safety: pure functions. Invariant: JSON
// from Dump holds no line break, so an event is one data line.
#ifndef BALLAST_SERVER_SSE_H_
#define BALLAST_SERVER_SSE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/http.h"

namespace ballast::server {

Head SseHead();
void AppendEvent(const nlohmann::json& data, std::string* out);
void AppendEvent(std::string_view event, const nlohmann::json& data, std::string* out);
void AppendComment(std::string_view text, std::string* out);  // one line, ignored by clients
void AppendDone(std::string* out);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SSE_H_
