#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <future>
#include <thread>
#include <vector>

#include "server/connection.h"  // before other Boost headers
#include "server/routes.h"

namespace ballast::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;

constexpr size_t kRefusals = 64;  // connections beyond the cap that are told so at one time
std::string BusyText() {
  ApiError error;
  error.message = "too many connections";
  error.code = "too_many_connections";
  const std::string body = Dump(ErrorJson(error));
  return fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nServer: ballast\r\nContent-Type: application/json\r\n"
      "Retry-After: 2\r\nConnection: close\r\nx-request-id: {}\r\nContent-Length: {}\r\n\r\n{}",
      NewId("req_"), body.size(), body);
}

Result<std::vector<tcp::endpoint>> Resolve(const std::string& host, int port) {
  boost::system::error_code ec;
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host == "*" ? "0.0.0.0" : host, std::to_string(port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  if (ec || endpoints.empty()) {
    return Status::Expected(Code::kUsage, "--host", "an address of this machine", "\"" + host + "\"");
  }
  // "localhost" is both families on many machines: IPv4 is what clients try when they are given a number.
  for (const tcp::endpoint& endpoint : endpoints) {
    if (endpoint.address().is_v4()) return std::vector<tcp::endpoint>{endpoint};
  }
  return std::vector<tcp::endpoint>{endpoints.front()};
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const ServerOptions& options, Service& service, Metrics& metrics, Log* log)
      : io_(std::make_shared<asio::io_context>(1)), work_(io_->get_executor()), acceptor_(*io_) {
    core_.options = options;
    core_.auth = Auth(options.api_keys);
    core_.metrics = &metrics;
    core_.log = log;
    core_.io = io_;
    core_.worker = std::make_unique<asio::thread_pool>(1);
    context_ = {&service, &metrics, options.model_aliases};
    AddRoutes(context_, &core_.router);
  }

  Status Listen() {
    const ServerOptions& options = core_.options;
    BALLAST_ASSIGN_OR_RETURN(const std::vector<tcp::endpoint> endpoints, Resolve(options.host, options.port));
    endpoint_ = endpoints.front();
    core_.cors = Cors({options.cors_origins, options.allowed_hosts, endpoint_.address().is_loopback()});
    boost::system::error_code ec;
    acceptor_.open(endpoint_.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec && endpoint_.protocol() == tcp::v6()) acceptor_.set_option(asio::ip::v6_only(false), ec);
    if (!ec) acceptor_.bind(endpoint_, ec);
    if (!ec) acceptor_.listen(1024, ec);
    if (ec) {
      return Status::Expected(Code::kUsage, fmt::format("--host {} --port {}", options.host, options.port),
                              "a free address", ec.message(), "choose another --port, or 0 for any");
    }
    endpoint_ = acceptor_.local_endpoint(ec);
    return Status();
  }

  void Run() {
    asio::co_spawn(*io_, Accept(), asio::detached);
    thread_ = std::thread([this] { io_->run(); });
  }

  void Stop(milliseconds grace) {
    if (!thread_.joinable()) return;
    asio::post(*io_, [this] {
      core_.stopping = true;
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      const std::vector<Connection*> all(core_.connections.begin(), core_.connections.end());
      for (Connection* connection : all) connection->CloseIfIdle();
    });
    WaitUntilEmpty(grace);
    asio::post(*io_, [this] {
      const std::vector<Connection*> all(core_.connections.begin(), core_.connections.end());
      for (Connection* connection : all) connection->Close();
    });
    WaitUntilEmpty(milliseconds(2000));
    core_.worker->stop();
    core_.worker->join();
    io_->stop();
    thread_.join();
  }

  tcp::endpoint endpoint() const { return endpoint_; }

 private:
  void WaitUntilEmpty(milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      std::promise<bool> empty;
      asio::post(*io_, [&] { empty.set_value(core_.connections.empty()); });
      if (empty.get_future().get()) return;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  asio::awaitable<void> Accept() {
    asio::steady_timer pause(*io_);
    while (acceptor_.is_open()) {
      boost::system::error_code ec;
      tcp::socket socket(*io_);
      co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
      if (ec == asio::error::operation_aborted || !acceptor_.is_open()) {
        co_return;
      }
      if (ec) {  // no descriptors, at worst: some will come back
        pause.expires_after(milliseconds(50));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
        continue;
      }
      Admit(std::move(socket));
    }
  }

  void Admit(tcp::socket socket) {
    HttpCounters& http = core_.metrics->http;
    if (core_.connections.size() < core_.options.max_connections) {
      http.connections_accepted.fetch_add(1, std::memory_order_relaxed);
      const auto connection = std::make_shared<Connection>(core_, std::move(socket));
      asio::co_spawn(
          *io_, [connection] { return connection->Run(); }, asio::detached);
      return;
    }
    http.connections_refused.fetch_add(1, std::memory_order_relaxed);
    if (refusing_ < kRefusals) asio::co_spawn(*io_, TurnAway(std::move(socket)), asio::detached);
  }

  // Says why, and waits a moment for the request so that closing does not reset the answer away.
  asio::awaitable<void> TurnAway(tcp::socket socket) {
    ++refusing_;
    boost::beast::tcp_stream stream(std::move(socket));
    stream.expires_after(milliseconds(500));
    boost::system::error_code ec;
    char request[4096];
    co_await stream.async_read_some(asio::buffer(request), asio::redirect_error(asio::use_awaitable, ec));
    if (!ec) {
      const std::string text = BusyText();
      co_await stream.async_write_some(asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
    }
    --refusing_;
  }

  std::shared_ptr<asio::io_context> io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;  // runs until it is stopped
  ServerCore core_;
  RouteContext context_;
  tcp::acceptor acceptor_;
  tcp::endpoint endpoint_;
  size_t refusing_ = 0;
  std::thread thread_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const ServerOptions& options, Service& service,
                                                      Metrics& metrics, Log* log) {
  auto impl = std::make_unique<Impl>(options, service, metrics, log);
  BALLAST_RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(milliseconds(0)); }

int HttpServer::port() const { return impl_->endpoint().port(); }

std::string HttpServer::url() const {
  const auto address = impl_->endpoint().address();
  const std::string host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  return fmt::format("http://{}:{}", host, port());
}

bool HttpServer::on_loopback() const { return impl_->endpoint().address().is_loopback(); }

void HttpServer::Stop(milliseconds grace) { impl_->Stop(grace); }

}  // namespace ballast::server
