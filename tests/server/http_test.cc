// The connection itself: limits, clients that stall, vanish or confuse, keys, origins.
#include "server/http_client.h"

namespace ballast::server::testing {
namespace {

class HttpTest : public ServerTest {
 protected:
  // The status of what the raw bytes are answered with; 0: closed without an answer.
  int Raw(const std::string& bytes) {
    if (server == nullptr) Start();
    Client client(server->port());
    client.Send(bytes);
    return client.Read().status;
  }
};

TEST_F(HttpTest, HealthFollowsTheServiceAndNeedsNoKey) {
  options.api_keys = {"secret"};
  service.SetState(Service::State::kLoading);
  EXPECT_EQ(Ask("GET", "/health").status, 503);
  EXPECT_EQ(Ask("GET", "/health").body, "{\"status\":\"loading\"}");
  service.SetState(Service::State::kReady);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_EQ(Ask("GET", "/health").body, "{\"status\":\"ok\"}");
  service.SetState(Service::State::kDraining);
  EXPECT_EQ(Ask("GET", "/health").status, 503);
}

TEST_F(HttpTest, WhileLoadingEveryGeneratingRouteIs503WithRetryAfter) {
  service.SetState(Service::State::kLoading);
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"}) {
    const Reply reply = Ask("POST", path, "{}");
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.headers.count("retry-after"), 1u);
    EXPECT_EQ(reply.document()["error"]["code"], "loading");
  }
}

TEST_F(HttpTest, EveryRouteButHealthWantsAKnownKey) {
  options.api_keys = {"first", "second"};
  for (const char* path : {"/", "/metrics", "/v1/models", "/v1/sessions", "/openapi.json", "/nowhere"}) {
    EXPECT_EQ(Ask("GET", path).status, 401) << path;
    EXPECT_EQ(Ask("GET", path, "", "Authorization: Bearer secon\r\n").status, 401) << path;
    EXPECT_NE(Ask("GET", path, "", "Authorization: Bearer second\r\n").status, 401) << path;
    EXPECT_NE(Ask("GET", path, "", "x-api-key: first\r\n").status, 401) << path;
  }
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", ChatBody("x", false)).status, 401);
  EXPECT_EQ(Ask("GET", "/v1/models").document()["error"]["code"], "invalid_api_key");
  // A browser that opens the page can send the key as a password ("u:second").
  EXPECT_EQ(Ask("GET", "/v1/models", "", "Authorization: Basic dTpzZWNvbmQ=\r\n").status, 200);
  EXPECT_EQ(Ask("GET", "/", "", "Accept: text/html\r\n").headers.at("www-authenticate").substr(0, 5),
            "Basic");
  // A preflight carries no key, and the request after it needs one (llama.cpp 6544).
  EXPECT_EQ(Ask("OPTIONS", "/v1/chat/completions", "", "Origin: http://localhost:3000\r\n").status, 204);
}

TEST_F(HttpTest, KeysAreTenants) {
  options.api_keys = {"first", "second"};
  Ask("POST", "/v1/chat/completions", ChatBody("x", false), "Authorization: Bearer first\r\n");
  Ask("POST", "/v1/chat/completions", ChatBody("x", false), "Authorization: Bearer second\r\n");
  const std::vector<Request> requests = service.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_NE(requests[0].tenant, requests[1].tenant);
  EXPECT_EQ(requests[0].tenant.size(), 16u);
  EXPECT_EQ(requests[0].tenant.find("first"), std::string::npos);
}

TEST_F(HttpTest, OriginsAreLocalOnesAndThoseNamed) {
  options.cors_origins = {"https://chat.example.org"};
  for (const char* origin : {"http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443", "app://x",
                             "vscode-webview://abc", "https://chat.example.org"}) {
    const Reply reply = Ask("GET", "/v1/models", "", fmt::format("Origin: {}\r\n", origin));
    EXPECT_EQ(reply.status, 200) << origin;
    EXPECT_EQ(reply.headers.at("access-control-allow-origin"), origin);
  }
  for (const char* origin : {"https://evil.example", "http://localhost.evil.example", "null",
                             "http://127.0.0.1.evil", "https://chat.example.org.evil"}) {
    const Reply reply =
        Ask("POST", "/v1/chat/completions", ChatBody("x", false), fmt::format("Origin: {}\r\n", origin));
    EXPECT_EQ(reply.status, 403) << origin;
    EXPECT_EQ(reply.headers.count("access-control-allow-origin"), 0u);
  }
  EXPECT_TRUE(service.requests().empty());
  const Reply preflight = Ask("OPTIONS", "/v1/chat/completions", "",
                              "Origin: http://localhost\r\nAccess-Control-Request-Headers: authorization, "
                              "x-stainless-os\r\n");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization, x-stainless-os");
}

TEST_F(HttpTest, OnLoopbackTheHostNamesThisMachine) {
  options.allowed_hosts = {"my-box"};
  Start();
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403);
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost: localhost.evil.example:8080\r\n\r\n"), 403);
  for (const char* host :
       {"localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST", "my-box:8080", "a.localhost"}) {
    EXPECT_EQ(Raw(fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", host)), 200) << host;
  }
}

TEST_F(HttpTest, HeadersAndBodiesHaveLimits) {
  options.max_body_bytes = 1000;
  Start();
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(40000, 'a') + "\r\n\r\n"),
            431);
  EXPECT_EQ(Raw("GET /" + std::string(40000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n"), 431);
  std::string many = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 101; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(Raw(many + "\r\n"), 431);
  EXPECT_EQ(Ask("POST", "/tokenize", std::string(1001, ' ')).status, 413);
  EXPECT_EQ(Ask("POST", "/tokenize", "{\"content\":\"" + std::string(980, 'a') + "\"}").status, 200);
  std::string chunks = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i)
    chunks += "64\r\n" + std::string(100, 'a') + "\r\n";  // 1,100 bytes, no last chunk
  EXPECT_EQ(Raw(chunks), 413);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
}

TEST_F(HttpTest, ALargeBodyIsTakenAndAnswered) {
  const std::string text(5'000'000, 'a');
  const Reply reply = Ask("POST", "/tokenize", json{{"content", text}}.dump());
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.document()["count"], 5'000'000);
}

TEST_F(HttpTest, WhatTwoParsersCouldReadDifferentlyIsRefused) {
  const std::string start = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(Raw(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(Raw(start + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(Raw(start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}"), 400);
  EXPECT_EQ(Raw(start + "Content-Length: -5\r\n\r\n{}"), 400);
  EXPECT_EQ(Raw(start + "Content-Length: 99999999999999999999999\r\n\r\n{}"), 400);
  EXPECT_EQ(Raw(start + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(Raw(start + "Transfer-Encoding: identity\r\n\r\n{}"), 400);
  EXPECT_EQ(Raw(start + "Transfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{}"), 400);
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n"), 400);
  EXPECT_EQ(Raw("\x16\x03\x01 TLS?\r\n\r\n"), 400);
  const std::string chunked = start + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* size : {"0x5", "5x", "5 5", "-5", "+5", "", "G", "5\t5", "11111111111111111"}) {
    EXPECT_EQ(Raw(chunked + size + "\r\nhello\r\n0\r\n\r\n"), 400) << size;
  }
  EXPECT_EQ(Raw(chunked + "5\r\nhelloXX0\r\n\r\n"), 400);
  const std::string body = R"({"content":"a"})";
  EXPECT_EQ(Raw(chunked + "F;name=value\r\n" + body + "\r\n0\r\n\r\n"), 200);
  EXPECT_EQ(Raw("\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200);
  EXPECT_EQ(Raw(start + "Expect: a-miracle\r\nContent-Length: 2\r\n\r\n{}"), 417);
  // Lines end with CR LF; only a version that is none of ours is a matter of versions.
  EXPECT_EQ(Raw("GET /health HTTP/1.1\nHost: localhost\n\n"), 400);
  EXPECT_EQ(Raw("GET /health HTTP/1.x\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(Raw("GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n"), 505);
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200);
}

TEST_F(HttpTest, SlowSendersAreToldAndClosed) {
  options.header_timeout = milliseconds(300);
  options.body_timeout = milliseconds(300);
  options.idle_timeout = milliseconds(500);
  Start();
  Client silent(server->port()), header(server->port()), body(server->port());
  header.Send("GET /health HTT");
  body.Send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{");
  std::this_thread::sleep_for(milliseconds(200));
  header.Send("P");                  // a byte now and then does not help
  EXPECT_TRUE(silent.Closed(5000));  // nothing was asked
  for (Client* slow : {&header, &body}) {
    const Reply reply = slow->Read();
    EXPECT_EQ(reply.status, 408);
    EXPECT_EQ(reply.document()["error"]["code"], "request_timeout");
    EXPECT_TRUE(slow->Closed(5000));
  }
}

TEST_F(HttpTest, KeepAliveServesOnAndIdleConnectionsEnd) {
  options.idle_timeout = milliseconds(500);
  Start();
  Client client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.Request("GET", "/health");
    EXPECT_EQ(client.Read().status, 200);
    client.Request("POST", "/v1/chat/completions", ChatBody("hi", i == 1));
    EXPECT_EQ(client.Read().status, 200);
    client.Request("GET", "/nowhere");
    EXPECT_EQ(client.Read().status, 404);
  }
  EXPECT_TRUE(client.Closed(10000));
  EXPECT_EQ(metrics.http.connections_accepted, 1);
}

TEST_F(HttpTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  Client client(server->port());
  const auto post = [](const std::string& body) {
    return fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", body.size(),
        body);
  };
  client.Send(post(ChatBody("PREFILL 50", false)) + post(ChatBody("two", true)) +
              "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().document()["choices"][0]["message"]["content"], "read");
  EXPECT_EQ(Events(client.Read().body).back(), "[DONE]");
  EXPECT_EQ(client.Read().body, "{\"status\":\"ok\"}");
}

TEST_F(HttpTest, MethodsAndPathsAreTold) {
  EXPECT_EQ(Ask("GET", "/v2/nothing").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/chat/completions").status, 405);
  EXPECT_EQ(Ask("GET", "/v1/chat/completions").headers.at("allow"), "POST");
  EXPECT_EQ(Ask("DELETE", "/health").headers.at("allow"), "GET, HEAD");
  const Reply head = Ask("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "15");
}

TEST_F(HttpTest, EveryAnswerHasARequestId) {
  EXPECT_EQ(Ask("GET", "/health", "", "x-request-id: mine-1\r\n").headers.at("x-request-id"), "mine-1");
  EXPECT_EQ(Ask("GET", "/health", "", "x-request-id: a b\r\n").headers.at("x-request-id").substr(0, 4),
            "req_");
  EXPECT_EQ(Ask("GET", "/nowhere").headers.count("x-request-id"), 1u);
}

TEST_F(HttpTest, AClientThatVanishesFreesItsWorkInEveryPhase) {
  Start();
  for (const char* text : {"QUEUE 60000", "PREFILL 60000", "COUNT 100000 5"}) {
    for (const bool stream : {false, true}) {
      Client client(server->port());
      client.Request("POST", "/v1/chat/completions", ChatBody(text, stream));
      while (service.running() == 0) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(30));
      ASSERT_EQ(service.running(), 1u);
      client.Close();
      const milliseconds took = service.WaitUntilFree(milliseconds(1000));
      EXPECT_GE(took.count(), 0) << text << stream;
      EXPECT_LE(took.count(), 200) << text << stream;
    }
  }
  for (int i = 0; i < 100 && metrics.http.clients_vanished < 6; ++i)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(metrics.http.clients_vanished, 6);
}

TEST_F(HttpTest, AVanishedClientIsNoticedBehindAFullPipeline) {
  Start();
  Client client(server->port());
  client.Request("POST", "/v1/chat/completions", ChatBody("QUEUE 60000", false));
  while (service.running() == 0) std::this_thread::sleep_for(milliseconds(1));
  client.Send(std::string(100'000, 'x'));  // more than the connection holds
  std::this_thread::sleep_for(milliseconds(50));
  client.Close();
  EXPECT_GE(service.WaitUntilFree(milliseconds(1000)).count(), 0);
}

TEST_F(HttpTest, AStalledReaderIsDroppedAndStallsNobodyElse) {
  options.write_timeout = milliseconds(500);
  Start();
  Client stalled(server->port(), 4096);
  stalled.Request("POST", "/v1/chat/completions", ChatBody("FLOOD 100000", true));
  while (service.running() == 0) std::this_thread::sleep_for(milliseconds(1));
  const auto began = steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Ask("GET", "/health").status, 200);
    EXPECT_EQ(Ask("POST", "/v1/chat/completions", ChatBody("hi", true)).status, 200);
  }
  EXPECT_LT(steady_clock::now() - began, milliseconds(2000));
  EXPECT_GE(service.WaitUntilFree(milliseconds(3000)).count(), 0);
  for (int i = 0; i < 200 && metrics.http.slow_readers_dropped == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(metrics.http.slow_readers_dropped, 1);
}

TEST_F(HttpTest, ASlowReaderGetsTheWholeTextInFewerPieces) {
  Start();
  Client slow(server->port(), 4096);
  slow.Request("POST", "/v1/chat/completions", ChatBody("FLOOD 800", true));
  std::this_thread::sleep_for(milliseconds(1200));  // the text piles up
  size_t bytes = 0;
  const std::vector<json> events = Events(slow.Read().body);
  for (const json& event : events) {
    if (event != "[DONE]") bytes += event["choices"][0]["delta"].value("content", "").size();
  }
  EXPECT_EQ(bytes, 800u * 1024);
  EXPECT_LT(events.size(), 600u);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(HttpTest, ASilentStreamHasPings) {
  options.ping_interval = milliseconds(50);
  Start();
  Client client(server->port());
  client.Request("POST", "/v1/chat/completions", ChatBody("QUEUE 400", true));
  const Reply reply = client.Read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find(": ping\n\n"), std::string::npos);
  EXPECT_EQ(Events(reply.body).back(), "[DONE]");
}

TEST_F(HttpTest, ConnectionsBeyondTheCapAreToldSo) {
  options.max_connections = 2;
  options.header_timeout = milliseconds(5000);
  Start();
  Client first(server->port()), second(server->port());
  first.Request("GET", "/health");
  EXPECT_EQ(first.Read().status, 200);
  second.Request("GET", "/health");
  EXPECT_EQ(second.Read().status, 200);
  Client third(server->port());
  third.Request("GET", "/health");
  const Reply reply = third.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.document()["error"]["code"], "too_many_connections");
}

TEST_F(HttpTest, Http10IsAnsweredAndClosed) {
  Start();
  Client client(server->port());
  const std::string body = ChatBody("hi", true);
  client.Send(
      fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const Reply head = client.Read(true);
  EXPECT_EQ(head.headers.count("transfer-encoding"), 0u);
  EXPECT_NE(client.Until("data: [DONE]\n\n"), "");
  EXPECT_TRUE(client.Closed(1000));
}

TEST_F(HttpTest, StopLetsAnAnswerUnderWayEnd) {
  Start();
  Client client(server->port()), idle(server->port());
  client.Request("POST", "/v1/chat/completions", ChatBody("COUNT 50 4", true));
  client.Until("w3 ");
  std::thread stopper([&] { server->Stop(milliseconds(3000)); });
  EXPECT_NE(client.Until("data: [DONE]\n\n"), "");
  stopper.join();
  EXPECT_TRUE(idle.Closed(1000));
}

TEST_F(HttpTest, ADestroyedServerCancelsWhatRuns) {
  Start();
  Client client(server->port());
  client.Request("POST", "/v1/chat/completions", ChatBody("COUNT 100000 1", true));
  client.Until("w3 ");
  server.reset();
  EXPECT_GE(service.WaitUntilFree(milliseconds(1000)).count(), 0);
}

TEST_F(HttpTest, MetricsCountWithoutNamesOfUsers) {
  Ask("POST", "/v1/chat/completions", ChatBody("x", false), "x-session-id: private-session\r\n");
  Ask("GET", "/v1/sessions/private-session");
  const Reply reply = Ask("GET", "/metrics");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(reply.body.find("ballast_http_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1"),
            std::string::npos)
      << reply.body;
  EXPECT_NE(reply.body.find("ballast_time_to_first_token_seconds_count 1"), std::string::npos);
  EXPECT_EQ(reply.body.find("private-session"), std::string::npos);
}

}  // namespace
}  // namespace ballast::server::testing
