// Requests and answers as the routes see them: no sockets, no Asio.
//
// Purpose: a handler turns an HttpRequest into an Answer; the connection pulls the answer's bytes whenever
// its socket has taken the last ones, so that a slow reader slows only its own answer. Thread safety:
// handlers may run on any thread; an Answer is used by one thread at a time, but its wake function may be
// called from any. Invariants: 1. an Answer destroyed before its end takes back the work behind it. 2. Poll
// never blocks.
#ifndef BALLAST_SERVER_HTTP_H_
#define BALLAST_SERVER_HTTP_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/service.h"

namespace ballast::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query, body;
  Headers headers;                  // names in lower case
  std::vector<std::string> params;  // what the braces of the route's pattern matched
  std::string tenant;               // digest of the key, "" without keys
  std::string id;                   // x-request-id

  // "" when absent; the first of several.
  std::string_view Header(std::string_view name) const;
};

struct Head {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  bool stream = false;  // bytes go out as they come; otherwise the whole body is gathered first
};

class Answer {
 public:
  virtual ~Answer() = default;
  // Begins the work. `wake` asks for another Poll; it outlives the answer.
  virtual void Start(const std::function<void()>& wake) { (void)wake; }
  // nullptr until it is known; fixed from then on.
  virtual const Head* head() const = 0;
  // Appends what is ready, about `limit` bytes at most; true at the end of the answer.
  virtual bool Poll(size_t limit, std::string* out) = 0;
  // Nothing was sent for a while: a stream has a comment to say that it lives.
  virtual void Idle() {}
};

// An answer that is known at once.
class TextAnswer : public Answer {
 public:
  TextAnswer(Head head, std::string body) : head_(std::move(head)), body_(std::move(body)) {}
  const Head* head() const override { return &head_; }
  bool Poll(size_t, std::string* out) override {
    out->append(body_);
    return true;
  }

 private:
  Head head_;
  std::string body_;
};

// JSON as text; invalid UTF-8 becomes U+FFFD, so that nothing that a model says can break an answer.
std::string Dump(const nlohmann::json& document);
// {"error":{"message","type","param","code"}}, as OpenAI's clients expect it.
nlohmann::json ErrorJson(const ApiError& error);
Head ErrorHead(const ApiError& error);
std::unique_ptr<Answer> JsonAnswer(const nlohmann::json& document, int status = 200);
std::unique_ptr<Answer> ErrorAnswer(const ApiError& error);

// 400 invalid_request_error about one field.
ApiError InvalidField(std::string_view field, std::string_view expected, std::string_view found);
ApiError NotFound(std::string message, std::string code);

// "<prefix>" and 24 random hex digits.
std::string NewId(std::string_view prefix);
int64_t UnixTime();

}  // namespace ballast::server

#endif  // BALLAST_SERVER_HTTP_H_
