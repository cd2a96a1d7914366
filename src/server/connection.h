// One client's connection: requests in, answers out, one after the other.
//
// Thread safety: the HTTP thread only. Invariants: 1. while an answer is awaited or written a read is
// pending, so that the client's leaving is seen at once (a client that closes its sending side has left). 2.
// at most one write is under way, of about kSliceBytes; what the engine says meanwhile waits in the
// answer. 3. bytes that came early (pipelining) stay in the buffer, at most kBufferBytes.
#ifndef BALLAST_SERVER_CONNECTION_H_
#define BALLAST_SERVER_CONNECTION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "server/auth.h"
#include "server/cors.h"
#include "server/http_server.h"
#include "server/router.h"
#include "server/waker.h"  // first: see there

namespace ballast::server {

class Connection;

// What all connections share; owned by the server, which outlives them.
struct ServerCore {
  ServerOptions options;
  Router router;
  Auth auth{{}};
  Cors cors{{}};
  Metrics* metrics = nullptr;
  Log* log = nullptr;
  std::shared_ptr<boost::asio::io_context> io;
  std::unique_ptr<boost::asio::thread_pool> worker;
  std::unordered_set<Connection*> connections;
  bool stopping = false;  // connections end after their answer
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static constexpr size_t kBufferBytes = size_t{64} << 10;
  static constexpr size_t kSliceBytes = size_t{64} << 10;

  Connection(ServerCore& core, boost::asio::ip::tcp::socket socket);
  ~Connection();
  boost::asio::awaitable<void> Run();
  void CloseIfIdle();
  void Close();

 private:
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  struct Exchange {  // one request and its answer
    HttpRequest request;
    Router::Match match;
    Headers headers;  // of the answer, beside its own
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    bool keep_alive = false;
    bool http10 = false;
    int status = 0;
    size_t bytes = 0;  // of the answer
  };

  Awaitable<bool> ServeOne();
  Awaitable<bool> AwaitBytes();
  bool SkipEmptyLine();
  Awaitable<std::optional<ApiError>> ReadBody(Parser& parser);
  Awaitable<bool> Refuse(Exchange& exchange, ApiError error);
  Awaitable<std::unique_ptr<Answer>> Handle(Exchange& exchange);
  Awaitable<bool> WriteAnswer(Exchange& exchange, Answer& answer);
  Awaitable<bool> WriteStream(Exchange& exchange, Answer& answer, std::string piece, bool done);
  Awaitable<bool> WriteAll(std::string_view bytes);
  Awaitable<void> Linger();
  void Account(const Exchange& exchange);

  void ReadHeader(Exchange& exchange, const Parser& parser) const;
  // What can be said of a request without its body.
  std::optional<ApiError> CheckForm(Exchange& exchange, const Parser& parser) const;
  std::optional<ApiError> CheckAccess(Exchange& exchange) const;
  std::optional<ApiError> CheckRoute(Exchange& exchange) const;
  std::string HeadText(const Exchange& exchange, const Head& head, std::optional<size_t> length) const;

  void Watch();  // keeps a read pending
  Awaitable<void> StopWatching();
  Awaitable<void> WaitForNews(Answer& answer);
  bool PeerHungUp();

  ServerCore& core_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_{kBufferBytes};
  std::shared_ptr<Waker> waker_;
  std::chrono::steady_clock::time_point last_write_{};
  bool first_ = true;
  bool idle_ = true;            // between requests
  bool watching_ = false;       // a read is pending
  bool stop_watching_ = false;  // and shall not be renewed
  bool gone_ = false;           // the client has left, or is too slow
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_CONNECTION_H_
