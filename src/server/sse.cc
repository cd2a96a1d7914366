#include "server/sse.h"

namespace ballast::server {

Head SseHead() {
  Head head;
  head.content_type = "text/event-stream; charset=utf-8";
  // nginx would gather the events otherwise.
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  head.stream = true;
  return head;
}

void AppendEvent(const nlohmann::json& data, std::string* out) {
  out->append("data: ").append(Dump(data)).append("\n\n");
}

void AppendEvent(std::string_view event, const nlohmann::json& data, std::string* out) {
  out->append("event: ").append(event).append("\n");
  AppendEvent(data, out);
}

void AppendComment(std::string_view text, std::string* out) { out->append(": ").append(text).append("\n\n"); }

void AppendDone(std::string* out) { out->append("data: [DONE]\n\n"); }

}  // namespace ballast::server
