#include "server/connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/beast/http/read.hpp>
#include <limits>

#include "server/json_fields.h"

namespace ballast::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kBytesPerSecond = 16 << 10;  // a body has to come at least this fast
constexpr size_t kSmallBody = 64 << 10;       // read even when the answer is known to be an error

auto Token(beast::error_code& ec) { return asio::redirect_error(asio::use_awaitable, ec); }

// A client's own request id is kept when it is short and plain.
bool IsPlain(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == '.';
  });
}

ApiError HttpError(int status, std::string message, std::string code) {
  ApiError error;
  error.status = status;
  error.type = "invalid_request_error";
  error.message = std::move(message);
  error.code = std::move(code);
  return error;
}

ApiError TooLarge(size_t limit) {
  return HttpError(413, fmt::format("request body: expected at most {} bytes, found more", limit),
                   "request_too_large");
}

ApiError OutOfMemory() {
  ApiError error;
  error.message = "the server has not enough memory for this request";
  error.code = "out_of_memory";
  return error;
}

ApiError TooSlow(std::string_view part, milliseconds limit) {
  return HttpError(
      408, fmt::format("request {}: expected within {} ms, found only part of it", part, limit.count()),
      "request_timeout");
}

// Ends reads that take too long. The stream's own timer would close the socket, and nobody be told why.
class ReadDeadline {
 public:
  explicit ReadDeadline(beast::tcp_stream& stream) : stream_(stream), timer_(stream.get_executor()) {
    stream_.expires_never();
  }
  void At(steady_clock::time_point time) {
    timer_.expires_at(time);
    timer_.async_wait([this, alive = std::weak_ptr<bool>(passed_)](beast::error_code ec) {
      const std::shared_ptr<bool> passed = alive.lock();  // else this object is gone
      if (ec || !passed) return;
      *passed = true;
      stream_.cancel();
    });
  }
  bool passed() const { return *passed_; }

 private:
  beast::tcp_stream& stream_;
  asio::steady_timer timer_;
  const std::shared_ptr<bool> passed_ = std::make_shared<bool>(false);
};

bool IsContinue(std::string_view expect) {
  return beast::iequals(beast::string_view(expect.data(), expect.size()), "100-continue");
}

// Whether the request line ends with a whole HTTP version and CR LF. (What is wrong is that version, then.)
bool NamesVersion(std::string_view header) {
  const std::string_view line = header.substr(0, header.find('\n'));
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t at = line.rfind(" HTTP/");
  if (at == std::string_view::npos) return false;
  const std::string_view version = line.substr(at + 6);
  return version.size() == 4 && digit(version[0]) && version[1] == '.' && digit(version[2]) &&
         version[3] == '\r';
}

// A chunk's size is hexadecimal digits and nothing else: what follows ("0x5", "5 5") is an extension only
// after a semicolon. Two parsers that read it differently would not agree where the next request begins.
void CheckChunk(uint64_t, beast::string_view extensions, beast::error_code& ec) {
  const size_t at = extensions.find_first_not_of(" \t");
  if (at != beast::string_view::npos && extensions[at] != ';') ec = http::error::bad_chunk;
}

// What a header that could not be parsed is answered with; nothing when nobody is there to read it.
std::optional<ApiError> ParseError(beast::error_code ec, std::string_view header,
                                   const ServerOptions& options) {
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    return HttpError(
        431, fmt::format("request header: expected at most {} bytes, found more", options.max_header_bytes),
        "header_too_large");
  }
  if (ec == http::error::body_limit) return TooLarge(options.max_body_bytes);
  if (ec == http::error::bad_version && NamesVersion(header)) {
    return HttpError(505, "HTTP version: expected 1.0 or 1.1", "http_version");
  }
  if (ec == http::error::end_of_stream || ec == http::error::partial_message) return std::nullopt;
  if (ec.category() != make_error_code(http::error::bad_method).category()) return std::nullopt;
  return HttpError(400, "request: expected HTTP/1.1, found " + ec.message(), "bad_request");
}

}  // namespace

Connection::Connection(ServerCore& core, asio::ip::tcp::socket socket)
    : core_(core), stream_(std::move(socket)), waker_(std::make_shared<Waker>(core.io)) {
  core_.connections.insert(this);
  core_.metrics->http.connections = static_cast<int64_t>(core_.connections.size());
  beast::error_code ignored;
  auto& s = stream_.socket();
  s.set_option(asio::ip::tcp::no_delay(true), ignored);
  s.set_option(asio::socket_base::keep_alive(true), ignored);
  // A reader that stops is noticed by what piles up here: 30 s of a dead peer, 128 KiB of a slow one.
  s.set_option(asio::socket_base::send_buffer_size(128 << 10), ignored);
  s.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>(15), ignored);
  s.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>(5), ignored);
  s.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>(3), ignored);
}

Connection::~Connection() {
  core_.connections.erase(this);
  core_.metrics->http.connections = static_cast<int64_t>(core_.connections.size());
}

void Connection::Close() {
  gone_ = true;
  stream_.close();
  waker_->Notify();
}

void Connection::CloseIfIdle() {
  if (idle_) Close();
}

asio::awaitable<void> Connection::Run() {
  const std::shared_ptr<Connection> self = shared_from_this();
  try {
    while (co_await ServeOne()) {
    }
    if (!gone_) {
      co_await Linger();
    }
  } catch (const std::exception& fault) {  // memory, at worst: this connection ends, no other
    if (core_.log != nullptr) {
      core_.log->Write(Log::Level::kError, "connection_failed", {{"what", fault.what()}});
    }
  }
}

asio::awaitable<bool> Connection::ServeOne() {
  idle_ = true;
  if (core_.stopping || !co_await AwaitBytes()) {
    co_return false;
  }
  if (SkipEmptyLine() && !co_await AwaitBytes()) {
    co_return false;
  }
  idle_ = false;
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(core_.options.max_header_bytes));
  parser.body_limit(std::numeric_limits<uint64_t>::max());  // checked when the header is known
  beast::error_code ec;
  bool late = false;
  {
    ReadDeadline deadline(stream_);
    deadline.At(steady_clock::now() + core_.options.header_timeout);
    co_await http::async_read_header(stream_, buffer_, parser, Token(ec));
    late = ec && deadline.passed();
  }
  Exchange exchange;
  if (late && !gone_) {
    co_await Refuse(exchange, TooSlow("header", core_.options.header_timeout));
    co_return false;
  }
  if (ec) {
    const beast::flat_buffer::const_buffers_type read = buffer_.data();
    const std::string_view header(static_cast<const char*>(read.data()), read.size());
    const std::optional<ApiError> error = ParseError(ec, header, core_.options);
    if (error) {
      co_await Refuse(exchange, *error);
    }
    co_return false;
  }
  ReadHeader(exchange, parser);
  std::optional<ApiError> error = CheckForm(exchange, parser);
  const bool confused = error.has_value();  // where the next request begins is uncertain
  exchange.match = core_.router.Find(exchange.request.method, exchange.request.path);
  if (!error) error = CheckAccess(exchange);
  if (!error) error = CheckRoute(exchange);
  const uint64_t length = parser.content_length().value_or(0);
  const bool has_body = parser.chunked() || length > 0;
  const bool expects = IsContinue(exchange.request.Header("expect"));
  if (confused || (has_body && error && (parser.chunked() || length > kSmallBody || expects))) {
    exchange.keep_alive = false;  // the body stays unread
    co_await Refuse(exchange, *error);
    co_return false;
  }
  if (has_body && expects && !co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n")) {
    co_return false;
  }
  if (has_body) {
    if (const std::optional<ApiError> unread = co_await ReadBody(parser); unread || gone_) {
      exchange.keep_alive = false;
      if (!gone_) {
        co_await Refuse(exchange, *unread);
      }
      co_return false;
    }
  }
  exchange.began = steady_clock::now();
  if (error) {
    co_return co_await Refuse(exchange, *error);
  }
  exchange.request.body = std::move(parser.get().body());
  const std::unique_ptr<Answer> answer = co_await Handle(exchange);
  const bool written = co_await WriteAnswer(exchange, *answer);
  Account(exchange);
  co_return written&& exchange.keep_alive && !core_.stopping;
}

asio::awaitable<bool> Connection::AwaitBytes() {
  const bool first = std::exchange(first_, false);
  if (buffer_.size() > 0) {
    co_return true;
  }
  buffer_.shrink_to_fit();  // an idle connection holds next to nothing
  stream_.expires_after(first ? core_.options.header_timeout : core_.options.idle_timeout);
  beast::error_code ec;
  const size_t n = co_await stream_.async_read_some(buffer_.prepare(1024), Token(ec));
  buffer_.commit(n);
  if (ec) gone_ = true;
  co_return !ec;
}

// An empty line before a request is ignored (RFC 9112, 2.2).
bool Connection::SkipEmptyLine() {
  const auto data = buffer_.data();
  if (data.size() < 2 || std::string_view(static_cast<const char*>(data.data()), 2) != "\r\n") return false;
  buffer_.consume(2);
  return true;
}

// Why the body cannot be read; with gone_, nobody is there to be told.
asio::awaitable<std::optional<ApiError>> Connection::ReadBody(Parser& parser) {
  auto* check = CheckChunk;
  parser.on_chunk_header(check);
  parser.body_limit(core_.options.max_body_bytes);
  const steady_clock::time_point began = steady_clock::now();
  size_t received = 0;
  ReadDeadline deadline(stream_);
  while (!parser.is_done()) {
    const milliseconds limit = core_.options.body_timeout + milliseconds(1000 * received / kBytesPerSecond);
    deadline.At(began + limit);
    beast::error_code ec;
    received += co_await http::async_read_some(stream_, buffer_, parser, Token(ec));
    if (ec == http::error::body_limit || ec == http::error::buffer_overflow) {
      co_return TooLarge(core_.options.max_body_bytes);
    }
    if (!ec) continue;
    if (deadline.passed() && !gone_) co_return TooSlow("body", limit);
    const std::optional<ApiError> error = ParseError(ec, "", core_.options);
    gone_ = !error.has_value();
    co_return error;
  }
  co_return std::nullopt;
}

void Connection::ReadHeader(Exchange& exchange, const Parser& parser) const {
  HttpRequest& request = exchange.request;
  const auto& message = parser.get();
  exchange.http10 = message.version() < 11;
  exchange.keep_alive = message.keep_alive();
  request.method = std::string(message.method_string());
  std::string target(message.target());
  if (target.rfind("http://", 0) == 0) {  // the absolute form, as proxies send it
    const size_t slash = target.find('/', 7);
    target = slash == std::string::npos ? "/" : target.substr(slash);
  }
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : message.base()) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  const std::string_view id = request.Header("x-request-id");
  request.id = IsPlain(id) ? std::string(id) : NewId("req_");
}

std::optional<ApiError> Connection::CheckForm(Exchange& exchange, const Parser& parser) const {
  const HttpRequest& request = exchange.request;
  const size_t most = core_.options.max_header_fields;
  if (request.headers.size() > most) {
    return HttpError(
        431,
        fmt::format("request header: expected at most {} fields, found {}", most, request.headers.size()),
        "header_too_large");
  }
  // What two parsers could read differently is refused.
  size_t hosts = 0, encodings = 0;
  for (const auto& [name, value] : request.headers) {
    hosts += name == "host";
    encodings += name == "transfer-encoding";
  }
  const bool chunked = parser.chunked() && encodings == 1 && request.Header("content-length").empty() &&
                       beast::iequals(parser.get()[http::field::transfer_encoding], "chunked");
  if (encodings > 0 && (!chunked || exchange.http10)) {
    return HttpError(400, "Transfer-Encoding: expected chunked, without a Content-Length", "bad_request");
  }
  if (hosts > 1 || (hosts == 0 && !exchange.http10)) {
    return HttpError(400, fmt::format("Host: expected one such header, found {}", hosts), "bad_request");
  }
  if (const std::string_view expect = request.Header("expect"); !expect.empty() && !IsContinue(expect)) {
    return HttpError(417, "Expect: expected 100-continue, found " + Shown(nlohmann::json(expect)),
                     "expectation_failed");
  }
  if (parser.content_length().value_or(0) > core_.options.max_body_bytes) {
    return TooLarge(core_.options.max_body_bytes);
  }
  return std::nullopt;
}

std::optional<ApiError> Connection::CheckAccess(Exchange& exchange) const {
  HttpRequest& request = exchange.request;
  const auto shown = [&](const char* name) { return Shown(nlohmann::json(request.Header(name))); };
  if (!core_.cors.AllowsHost(request)) {
    return HttpError(
        403, "Host: expected a name of this machine (--allowed-host adds one), found " + shown("host"),
        "host_not_allowed");
  }
  if (!core_.cors.AllowsOrigin(request)) {
    return HttpError(403, "Origin: expected a local one or one of --cors-origin, found " + shown("origin"),
                     "origin_not_allowed");
  }
  const bool preflight = request.method == "OPTIONS";
  exchange.headers = core_.cors.AnswerHeaders(request, preflight);
  if (preflight || (exchange.match.route != nullptr && exchange.match.route->keyless)) return std::nullopt;
  std::optional<std::string> tenant = core_.auth.Tenant(request);
  if (!tenant) {
    const bool page = request.Header("accept").find("text/html") != std::string_view::npos;
    exchange.headers.emplace_back("WWW-Authenticate", Auth::Challenge(page));
    return Auth::Refusal(request);
  }
  request.tenant = std::move(*tenant);
  return std::nullopt;
}

std::optional<ApiError> Connection::CheckRoute(Exchange& exchange) const {
  HttpRequest& request = exchange.request;
  if (request.method == "OPTIONS") return std::nullopt;
  if (exchange.match.route != nullptr) {
    request.params = exchange.match.params;
    return std::nullopt;
  }
  if (exchange.match.allow.empty()) {
    const std::string found = Shown(nlohmann::json(request.path));
    return NotFound("path: expected one of the API's, found " + found, "unknown_url");
  }
  exchange.headers.emplace_back("Allow", exchange.match.allow);
  return HttpError(405, fmt::format("method: expected {}, found {}", exchange.match.allow, request.method),
                   "method_not_allowed");
}

asio::awaitable<bool> Connection::Refuse(Exchange& exchange, ApiError error) {
  if (exchange.request.id.empty()) exchange.request.id = NewId("req_");
  const std::unique_ptr<Answer> answer = ErrorAnswer(error);
  const bool written = co_await WriteAnswer(exchange, *answer);
  Account(exchange);
  co_return written&& exchange.keep_alive && !core_.stopping;
}

// Large bodies are parsed beside this thread, so that /health does not wait for them.
asio::awaitable<std::unique_ptr<Answer>> Connection::Handle(Exchange& exchange) {
  if (exchange.request.method == "OPTIONS") {
    Head head;
    head.status = 204;
    head.headers.emplace_back("Allow",
                              exchange.match.allow.empty() ? "OPTIONS" : exchange.match.allow + ", OPTIONS");
    co_return std::make_unique<TextAnswer>(std::move(head), "");
  }
  const Handler& handler = exchange.match.route->handler;
  if (exchange.request.body.size() <= kWorkerBytes) {
    co_return handler(exchange.request);
  }
  struct Job {
    HttpRequest request;
    std::unique_ptr<Answer> answer;
    std::atomic<bool> done{false};
  };
  const auto job = std::make_shared<Job>();
  job->request = std::move(exchange.request);
  asio::post(*core_.worker, [job, &handler, waker = waker_] {
    try {
      job->answer = handler(job->request);
    } catch (const std::exception&) {  // memory, at worst
    }
    job->request.body = std::string();
    job->done = true;
    waker->Wake();
  });
  while (!job->done) {
    co_await waker_->Wait(milliseconds(1000));
  }
  exchange.request = std::move(job->request);
  if (job->answer == nullptr) job->answer = ErrorAnswer(OutOfMemory());
  co_return std::move(job->answer);
}

}  // namespace ballast::server
