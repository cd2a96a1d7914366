// The answers of the generating routes: a Generation's news turned into JSON, whole or as events.
//
// Purpose: the status line of a stream waits for the request's first news, so that what is refused at once
// has its HTTP status; what fails later is an event. Thread safety and invariants: see Answer.
#ifndef BALLAST_SERVER_GENERATE_ANSWER_H_
#define BALLAST_SERVER_GENERATE_ANSWER_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/generation.h"
#include "server/http.h"
#include "server/json_api.h"

namespace ballast::server {

// What both kinds share: the head, errors before and after it, signs of life.
class GenerateAnswer : public Answer {
 public:
  GenerateAnswer(Service& service, HttpCounters* counters, Generate spec);
  void Start(const std::function<void()>& wake) override { generation_.Start(wake); }
  const Head* head() const override { return head_ ? &*head_ : nullptr; }
  bool Poll(size_t limit, std::string* out) override;
  void Idle() override;

 protected:
  // Adds choice i's news to the answer; events go to `out` when streaming.
  virtual void Take(size_t i, News& news, std::string* out) = 0;
  // All choices have finished.
  virtual void Finish(std::string* out) = 0;
  virtual void StreamError(const ApiError& error, std::string* out);

  Generate spec_;

 private:
  void TakeProgress(const News& news, std::string* out);
  void Fail(const ApiError& error, std::string* out);
  Generation generation_;
  std::optional<Head> head_;
  bool idle_ = false;
  bool failed_ = false;
  std::chrono::steady_clock::time_point last_progress_{};
};

std::unique_ptr<Answer> MakeChatAnswer(Service& service, HttpCounters* counters, Generate spec);
std::unique_ptr<Answer> MakeResponsesAnswer(Service& service, HttpCounters* counters, Generate spec);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_GENERATE_ANSWER_H_
