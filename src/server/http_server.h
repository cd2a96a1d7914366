// The HTTP server: one thread that owns every socket.
//
// Purpose: accepts connections, reads requests within stated limits, asks the router, writes answers at the
// reader's pace. Thread safety: Start, Stop and the destructor from one thread; all else happens on the
// server's own thread, and bodies beyond kWorkerBytes are parsed on a second. Invariants: 1. an idle
// connection is a few kilobytes and no thread. 2. a client that stalls holds up only itself, for at most the
// stated time. 3. a client that leaves takes its request with it at once. 4. nothing here runs on the
// engine's thread, nor waits for it.
#ifndef BALLAST_SERVER_HTTP_SERVER_H_
#define BALLAST_SERVER_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/service.h"

namespace ballast::server {

inline constexpr size_t kWorkerBytes = size_t{64} << 10;

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  std::vector<std::string> api_keys;
  std::vector<std::string> cors_origins;   // beside local ones; "*": all
  std::vector<std::string> allowed_hosts;  // further Host names on a loopback address
  std::vector<std::string> model_aliases;  // beside the model's id

  size_t max_header_bytes = size_t{32} << 10;
  size_t max_header_fields = 100;
  size_t max_body_bytes = size_t{16} << 20;
  size_t max_connections = 4096;
  std::chrono::milliseconds header_timeout{10'000};  // first byte; then the whole header
  std::chrono::milliseconds body_timeout{10'000};    // and a second more per 16 KiB that came
  std::chrono::milliseconds idle_timeout{60'000};    // between requests
  std::chrono::milliseconds write_timeout{30'000};   // without one byte taken by the reader
  std::chrono::milliseconds ping_interval{10'000};   // comments in a silent stream
};

class HttpServer {
 public:
  // Listens at once. kUsage when the address is taken, or is none. `service`, `metrics` and `log` (may be
  // nullptr) outlive the server.
  static Result<std::unique_ptr<HttpServer>> Start(const ServerOptions& options, Service& service,
                                                   Metrics& metrics, Log* log);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  bool on_loopback() const;
  // No more connections; answers under way get `grace` to be written, then every socket is closed.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_HTTP_SERVER_H_
