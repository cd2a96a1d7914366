// Lines about what the server does: for people, or JSON for machines, on stderr.
//
// Thread safety: any thread. Invariants: 1. no text of a user and no key is ever logged here. 2. a stalled
// reader of stderr stalls nobody: lines are written by a thread of their own, the oldest are dropped.
#ifndef BALLAST_SERVER_LOG_H_
#define BALLAST_SERVER_LOG_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ballast::server {

enum class LogFormat { kText, kJson };

class Log {
 public:
  enum class Level { kDebug, kInfo, kWarning, kError };
  Log(LogFormat format, Level lowest);
  ~Log();  // what is queued is written
  // `fields`: an object, values short.
  void Write(Level level, std::string_view event, const nlohmann::json& fields = nlohmann::json::object());

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_LOG_H_
