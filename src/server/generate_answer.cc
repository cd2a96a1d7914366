#include "server/generate_answer.h"

#include <fmt/format.h>

#include "server/sse.h"

namespace ballast::server {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{500};

// The engine takes a request back only when the server stops, or when its reader is too slow to hold text
// for.
ApiError Cancelled() {
  ApiError error;
  error.status = 503;
  error.message = "the answer was cut: the server is stopping, or its text was not read in time";
  error.code = "cancelled";
  error.retry_after = 5;
  return error;
}

}  // namespace

GenerateAnswer::GenerateAnswer(Service& service, HttpCounters* counters, Generate spec)
    : spec_(std::move(spec)), generation_(service, counters, std::move(spec_.requests), spec_.stream) {}

void GenerateAnswer::Idle() {
  if (spec_.stream) idle_ = true;
}

// For clients that show how far the prompt is read; others ignore comments.
void GenerateAnswer::TakeProgress(const News& news, std::string* out) {
  if (news.prompt_total == 0 || !spec_.stream) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_progress_ < kProgressInterval) return;
  last_progress_ = now;
  AppendComment(fmt::format("prefill {}/{}", news.prompt_done, news.prompt_total), out);
}

void GenerateAnswer::StreamError(const ApiError& error, std::string* out) {
  AppendEvent(ErrorJson(error), out);
}

void GenerateAnswer::Fail(const ApiError& error, std::string* out) {
  generation_.CancelAll();
  failed_ = true;
  if (head_) return StreamError(error, out);
  head_ = ErrorHead(error);
  out->append(Dump(ErrorJson(error)));
}

bool GenerateAnswer::Poll(size_t limit, std::string* out) {
  if (failed_) return true;
  if (idle_) {
    if (!head_) head_ = SseHead();
    AppendComment("ping", out);
    idle_ = false;
  }
  size_t running = 0;
  for (size_t i = 0; i < generation_.size(); ++i) {
    News news = generation_.Take(i, limit / 4, !spec_.stream);  // JSON and its escapes are the larger part
    if (news.finish == Finish::kCancelled) news.error = Cancelled();
    if (news.error) {
      Fail(*news.error, out);
      return true;
    }
    if (spec_.stream && !head_ && (news.started || !news.text.empty() || news.finish)) head_ = SseHead();
    if (head_) TakeProgress(news, out);
    Take(i, news, out);
    if (!generation_.ended(i)) ++running;
  }
  if (running > 0) return false;
  if (!head_) head_ = Head();
  Finish(out);
  return true;
}

}  // namespace ballast::server
