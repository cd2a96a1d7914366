// The writing half of a connection.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <ctime>

#include "server/connection.h"

namespace ballast::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kLingerBytes = 4 << 20;
constexpr milliseconds kLinger{2000};
constexpr milliseconds kHangUpInterval{100};

auto Token(beast::error_code& ec) { return asio::redirect_error(asio::use_awaitable, ec); }

std::string HttpDate() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  const size_t n = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text, n);
}

bool HasBody(const HttpRequest& request, int status) {
  return request.method != "HEAD" && status != 204 && status != 304;
}

}  // namespace

void Connection::Account(const Exchange& exchange) {
  const std::string route =
      exchange.match.route != nullptr ? exchange.match.route->pattern : std::string("other");
  const double seconds = std::chrono::duration<double>(steady_clock::now() - exchange.began).count();
  core_.metrics->CountRequest(route, exchange.status);
  core_.metrics->http.request_seconds.Observe(seconds);
  if (core_.log == nullptr) return;
  const bool quiet = route == "/health" || route == "/metrics";
  core_.log->Write(quiet ? Log::Level::kDebug : Log::Level::kInfo, "request",
                   {{"id", exchange.request.id},
                    {"method", exchange.request.method},
                    {"route", route},
                    {"status", exchange.status},
                    {"ms", static_cast<int64_t>(seconds * 1000)},
                    {"bytes", exchange.bytes}});
}

std::string Connection::HeadText(const Exchange& exchange, const Head& head,
                                 std::optional<size_t> length) const {
  const auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(head.status)));
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nServer: ballast\r\nDate: {}\r\nx-request-id: {}\r\n", head.status,
                  std::string_view(reason.data(), reason.size()), HttpDate(), exchange.request.id);
  const bool may_have_body = head.status != 204 && head.status != 304;
  if (may_have_body) text += "Content-Type: " + head.content_type + "\r\n";
  text += "X-Content-Type-Options: nosniff\r\n";
  for (const Headers* headers : {&head.headers, &exchange.headers}) {
    for (const auto& [name, value] : *headers) text.append(name).append(": ").append(value).append("\r\n");
  }
  if (length && may_have_body) text += fmt::format("Content-Length: {}\r\n", *length);
  if (!length && !exchange.http10) text += "Transfer-Encoding: chunked\r\n";
  const bool keep = exchange.keep_alive && !core_.stopping;
  text += keep ? (exchange.http10 ? "Connection: keep-alive\r\n" : "") : "Connection: close\r\n";
  return text + "\r\n";
}

asio::awaitable<bool> Connection::WriteAnswer(Exchange& exchange, Answer& answer) {
  answer.Start([waker = waker_] { waker->Wake(); });
  std::string body;
  bool done = answer.Poll(kSliceBytes, &body);
  const bool waits = !done;
  if (waits) Watch();
  last_write_ = steady_clock::now();
  while (!done && !gone_ && !(answer.head() != nullptr && answer.head()->stream)) {
    co_await WaitForNews(answer);  // the whole body first
    done = answer.Poll(kSliceBytes, &body);
  }
  bool written = false;
  if (!gone_ && answer.head() != nullptr) {
    exchange.status = answer.head()->status;
    if (answer.head()->stream) {
      written = co_await WriteStream(exchange, answer, std::move(body), done);
    } else {
      std::string text = HeadText(exchange, *answer.head(), body.size());
      if (HasBody(exchange.request, exchange.status)) text += body;
      exchange.bytes = text.size();
      written = co_await WriteAll(text);
    }
  }
  if (exchange.status == 0) exchange.status = 499;  // as nginx counts a client that left
  if (gone_) core_.metrics->http.clients_vanished.fetch_add(1, std::memory_order_relaxed);
  if (waits) {
    co_await StopWatching();
  }
  co_return written && !gone_;
}

// `piece` came with the head already.
asio::awaitable<bool> Connection::WriteStream(Exchange& exchange, Answer& answer, std::string piece,
                                              bool done) {
  if (exchange.http10) exchange.keep_alive = false;  // the end of the connection is the end of the answer
  std::string out = HeadText(exchange, *answer.head(), std::nullopt);
  if (exchange.request.method == "HEAD") {
    co_return co_await WriteAll(out);
  }
  while (true) {
    if (!piece.empty()) {
      out += exchange.http10 ? piece : fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    }
    if (done && !exchange.http10) out += "0\r\n\r\n";
    if (!out.empty() && !co_await WriteAll(out)) {
      co_return false;
    }
    exchange.bytes += out.size();
    if (done) {
      co_return true;
    }
    out.clear();
    piece.clear();
    done = answer.Poll(kSliceBytes, &piece);
    if (done || !piece.empty()) continue;
    co_await WaitForNews(answer);
    if (gone_) {
      co_return false;
    }
  }
}

asio::awaitable<bool> Connection::WriteAll(std::string_view bytes) {
  while (!bytes.empty() && !gone_) {
    stream_.expires_after(core_.options.write_timeout);  // for one byte at least, so that slow is not dead
    beast::error_code ec;
    const size_t n = co_await stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()), Token(ec));
    if (ec) {
      if (ec == beast::error::timeout) {
        core_.metrics->http.slow_readers_dropped.fetch_add(1, std::memory_order_relaxed);
      }
      gone_ = true;
      co_return false;
    }
    bytes.remove_prefix(n);
    last_write_ = steady_clock::now();
  }
  co_return !gone_;
}

// Until somebody wakes us, or the silence has lasted so long that the answer should say that it lives.
asio::awaitable<void> Connection::WaitForNews(Answer& answer) {
  const auto silent_until = last_write_ + core_.options.ping_interval;
  auto time = std::chrono::ceil<milliseconds>(silent_until - steady_clock::now());
  // A full buffer leaves nothing to read into: then the socket itself is asked.
  const bool blind = !watching_;
  if (blind) time = std::min(time, kHangUpInterval);
  co_await waker_->Wait(std::max(time, milliseconds(1)));
  if (blind && PeerHungUp()) Close();
  if (steady_clock::now() < silent_until) {
    co_return;
  }
  answer.Idle();
  last_write_ = steady_clock::now();
}

bool Connection::PeerHungUp() {
  pollfd fd{stream_.socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::Watch() {
  const size_t room = kBufferBytes - buffer_.size();
  stop_watching_ = false;
  if (watching_ || gone_ || room == 0) return;
  watching_ = true;
  stream_.expires_never();
  stream_.async_read_some(buffer_.prepare(std::min(room, size_t{1024})),
                          [self = shared_from_this()](beast::error_code ec, size_t n) {
                            self->watching_ = false;
                            self->buffer_.commit(n);
                            if (ec && !(ec == asio::error::operation_aborted && self->stop_watching_)) {
                              self->Close();
                            }
                            if (!self->gone_ && !self->stop_watching_) self->Watch();
                            self->waker_->Notify();
                          });
}

asio::awaitable<void> Connection::StopWatching() {
  stop_watching_ = true;
  beast::error_code ignored;
  if (watching_ && stream_.socket().is_open()) stream_.socket().cancel(ignored);
  while (watching_) {
    co_await waker_->Wait(milliseconds(1000));
  }
}

// Closing while the client still sends would reset the connection before it has read the answer.
asio::awaitable<void> Connection::Linger() {
  beast::error_code ec;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  const steady_clock::time_point end = steady_clock::now() + kLinger;
  buffer_.clear();
  size_t read = 0;
  while (!ec && !gone_ && read < kLingerBytes) {
    stream_.expires_at(end);
    read += co_await stream_.async_read_some(buffer_.prepare(16 << 10), Token(ec));
  }
}

}  // namespace ballast::server
