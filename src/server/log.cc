#include "server/log.h"

#include <fmt/format.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "server/http.h"

namespace ballast::server {
namespace {

constexpr size_t kQueuedLines = 4096;

spdlog::level::level_enum SpdLevel(Log::Level level) {
  switch (level) {
    case Log::Level::kDebug:
      return spdlog::level::debug;
    case Log::Level::kInfo:
      return spdlog::level::info;
    case Log::Level::kWarning:
      return spdlog::level::warn;
    case Log::Level::kError:
      break;
  }
  return spdlog::level::err;
}

std::string TextLine(std::string_view event, const nlohmann::json& fields) {
  std::string line(event);
  for (const auto& [name, value] : fields.items()) {
    line += fmt::format(" {}={}", name, value.is_string() ? value.get<std::string>() : Dump(value));
  }
  return line;
}

}  // namespace

struct Log::State {
  LogFormat format;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::logger> logger;
};

Log::Log(LogFormat format, Level lowest) : state_(std::make_unique<State>()) {
  state_->format = format;
  state_->pool = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  state_->logger = std::make_shared<spdlog::async_logger>("ballast", std::move(sink), state_->pool,
                                                          spdlog::async_overflow_policy::overrun_oldest);
  state_->logger->set_level(SpdLevel(lowest));
  state_->logger->set_pattern(format == LogFormat::kText ? "%Y-%m-%dT%H:%M:%S.%e %l %v" : "%v");
  state_->logger->flush_on(spdlog::level::info);
}

Log::~Log() = default;  // the pool's thread writes what is queued before it ends

void Log::Write(Level level, std::string_view event, const nlohmann::json& fields) {
  const spdlog::level::level_enum as = SpdLevel(level);
  if (!state_->logger->should_log(as)) return;
  if (state_->format == LogFormat::kText) return state_->logger->log(as, "{}", TextLine(event, fields));
  nlohmann::json line = fields;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  line["time"] = std::chrono::duration<double>(now).count();
  line["level"] = spdlog::level::to_string_view(as).data();
  line["event"] = event;
  state_->logger->log(as, "{}", Dump(line));
}

}  // namespace ballast::server
