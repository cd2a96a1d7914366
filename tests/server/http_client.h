// A plain blocking HTTP client for the tests, and a server with a fake service behind it.
#ifndef BALLAST_TESTS_SERVER_HTTP_CLIENT_H_
#define BALLAST_TESTS_SERVER_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/fake_service.h"
#include "server/http_server.h"

namespace ballast::server::testing {

using nlohmann::json;

struct Reply {
  int status = 0;  // 0: the connection ended first
  std::map<std::string, std::string> headers;
  std::string body;
  json document() const { return json::parse(body, nullptr, false); }
};

class Client {
 public:
  // `window`: bytes of the receive buffer; 0: the system's.
  explicit Client(int port, int window = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (window > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &window, sizeof(window));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void Request(const std::string& method, const std::string& path, const std::string& body = "",
               const std::string& headers = "") {
    std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
    if (!body.empty() || method == "POST") text += fmt::format("Content-Length: {}\r\n", body.size());
    Send(text + "\r\n" + body);
  }
  // Reads on; false at the end, or after `ms`.
  bool More(int ms = 60000) {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, ms) <= 0) return false;
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    held_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  // Everything up to and with `text`; "" when it does not come.
  std::string Until(std::string_view text, int ms = 60000) {
    size_t at = 0;
    while ((at = held_.find(text)) == std::string::npos) {
      if (!More(ms)) return "";
    }
    return Take(at + text.size());
  }
  Reply Read(bool head_only = false) {
    Reply reply;
    const std::string head = Until("\r\n\r\n");
    if (head.empty()) return reply;
    reply.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      reply.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (head_only || reply.status == 204 || reply.status == 304) return reply;
    if (reply.headers.count("transfer-encoding") > 0) {
      while (true) {
        const std::string size = Until("\r\n");
        const size_t n = size.empty() ? 0 : std::stoul(size, nullptr, 16);
        while (held_.size() < n + 2 && More()) {
        }
        reply.body += Take(n);
        Take(2);
        if (n == 0) return reply;
      }
    }
    const size_t n =
        reply.headers.count("content-length") > 0 ? std::stoul(reply.headers["content-length"]) : 0;
    while (held_.size() < n && More()) {
    }
    reply.body = Take(n);
    return reply;
  }
  // Whether the server has closed within `ms`.
  bool Closed(int ms) {
    const auto end = steady_clock::now() + milliseconds(ms);
    while (steady_clock::now() < end) {
      pollfd ready{fd_, POLLIN, 0};
      char bytes[4096];
      if (::poll(&ready, 1, 10) > 0 && ::recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
    }
    return false;
  }

 private:
  std::string Take(size_t n) {
    n = std::min(n, held_.size());
    std::string taken = held_.substr(0, n);
    held_.erase(0, n);
    return taken;
  }
  int fd_;
  std::string held_;
};

class ServerTest : public ::testing::Test {
 protected:
  void Start() {
    options.port = 0;
    auto started = HttpServer::Start(options, service, metrics, nullptr);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
  }
  Reply Ask(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "") {
    if (server == nullptr) Start();
    Client client(server->port());
    client.Request(method, path, body, headers);
    return client.Read(method == "HEAD");
  }
  Reply Chat(json body) {
    if (!body.contains("messages")) body["messages"] = Say("hello");
    return Ask("POST", "/v1/chat/completions", body.dump());
  }
  static json Say(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }
  static std::string ChatBody(const std::string& text, bool stream) {
    return json{{"messages", Say(text)}, {"stream", stream}}.dump();
  }
  // The JSON of every data line; "[DONE]" as a string.
  static std::vector<json> Events(const std::string& body) {
    std::vector<json> events;
    for (size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at + 1)) {
      const std::string line = body.substr(at + 6, body.find('\n', at) - at - 6);
      events.push_back(line == "[DONE]" ? json(line) : json::parse(line));
    }
    return events;
  }

  ServerOptions options;
  FakeService service;
  Metrics metrics;
  std::unique_ptr<HttpServer> server;
};

}  // namespace ballast::server::testing

#endif  // BALLAST_TESTS_SERVER_HTTP_CLIENT_H_
