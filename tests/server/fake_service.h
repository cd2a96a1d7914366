// A service without a model: one thread that answers as the last message asks, and remembers what it was
// asked.
//
//   anything      the same text back, character by character
//   COUNT n ms    "w0 w1 ... " of n words, one per ms milliseconds
//   QUEUE ms, PREFILL ms   waits that long before OnStart, or between OnStart and the first text
//   REFUSE        400 context_length_exceeded before OnStart
//   BREAK         an error after two texts
//   FLOOD n       n texts of 1 KiB as fast as they are taken
#ifndef BALLAST_TESTS_SERVER_FAKE_SERVICE_H_
#define BALLAST_TESTS_SERVER_FAKE_SERVICE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/service.h"
#include "text/test_vocab.h"

namespace ballast::server::testing {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class FakeService : public Service {
 public:
  FakeService() {
    info_ = {"fake-model", "llama", "chatml", 1700000000, 1024, 8192, 4, 256, "q8", "sinks"};
    auto made = Tokenizer::Create(ballast::testing::ByteVocab("gpt-2", {}));
    tokenizer_ = std::move(*made);
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeService() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  State state() const override { return state_; }
  void SetState(State state) { state_ = state; }

  uint64_t Submit(Request request, std::shared_ptr<Receiver> receiver) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    jobs_.push_back(MakeJob(std::move(request), std::move(receiver)));
    changed_.notify_all();
    return jobs_.back().ticket;
  }
  void Cancel(uint64_t ticket) override {
    const std::lock_guard lock(mutex_);
    for (Job& job : jobs_) {
      if (job.ticket == ticket) *job.cancelled = true;
    }
    changed_.notify_all();
  }

  void ListSessions(const std::string& tenant, Done<std::vector<SessionInfo>> done) override {
    std::vector<SessionInfo> list;
    for (const auto& [key, session] : sessions_) {
      if (key.first == tenant) list.push_back(session);
    }
    done(list, {});
  }
  void GetSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) override {
    const auto at = sessions_.find({tenant, id});
    if (at == sessions_.end()) return done(std::nullopt, Missing());
    done(at->second, {});
  }
  void DeleteSession(const std::string& tenant, const std::string& id, Done<bool> done) override {
    if (sessions_.erase({tenant, id}) == 0) return done(std::nullopt, Missing());
    done(true, {});
  }
  void SaveSession(const std::string& t, const std::string& id, Done<SessionInfo> done) override {
    GetSession(t, id, std::move(done));
  }
  void RestoreSession(const std::string& t, const std::string& id, Done<SessionInfo> done) override {
    GetSession(t, id, std::move(done));
  }
  void ForkSession(const std::string& tenant, const std::string& id, const std::string& to,
                   Done<SessionInfo> done) override {
    const auto at = sessions_.find({tenant, id});
    if (at == sessions_.end()) return done(std::nullopt, Missing());
    SessionInfo copy = at->second;
    copy.id = to.empty() ? "sess_new" : to;
    sessions_[{tenant, copy.id}] = copy;
    done(copy, {});
  }
  uint64_t Watch(const std::string& tenant, const std::string& id, std::function<bool(const CacheView&)> view,
                 std::function<void(ApiError)> failed) override {
    if (sessions_.count({tenant, id}) == 0) {
      failed(Missing());
      return 0;
    }
    CacheView first;
    first.context = 1024;
    first.sinks = 4;
    first.policy = "sinks";
    first.fresh = {{0, "a"}, {1, "b"}};
    view(first);
    const std::lock_guard lock(mutex_);
    watches_[++tickets_] = std::move(view);
    return tickets_;
  }
  void Unwatch(uint64_t watch) override {
    const std::lock_guard lock(mutex_);
    watches_.erase(watch);
  }
  const ModelInfo& model() const override { return info_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  void Drain(double, std::function<void(int64_t)> done) override {
    state_ = State::kDraining;
    done(0);
  }

  // For the tests.
  void AddSession(const std::string& tenant, const std::string& id) {
    sessions_[{tenant, id}] = {id, "idle", "sinks", 10, 0, 4, 1024, 1, 4096, 1.5};
  }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  size_t running() {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }
  size_t watches() {
    const std::lock_guard lock(mutex_);
    return watches_.size();
  }
  // How long until nothing runs; -1 when something still does after `limit`.
  milliseconds WaitUntilFree(milliseconds limit) {
    const auto began = steady_clock::now();
    while (running() > 0) {
      if (steady_clock::now() - began > limit) return milliseconds(-1);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
  }

 private:
  struct Job {
    uint64_t ticket = 0;
    Request request;
    std::shared_ptr<Receiver> receiver;
    std::vector<std::string> texts;
    size_t next = 0;
    milliseconds step{0};
    steady_clock::time_point due, starts, speaks;
    bool started = false, refuses = false, breaks = false;
    // Set by any thread while the job is worked on.
    std::unique_ptr<std::atomic<bool>> cancelled = std::make_unique<std::atomic<bool>>(false);
  };

  static ApiError Missing() { return {404, "no such session", "invalid_request_error", "", "not_found", 0}; }

  Job MakeJob(Request request, std::shared_ptr<Receiver> receiver) {
    Job job;
    job.ticket = ++tickets_;
    job.receiver = std::move(receiver);
    const std::string text = request.chat ? request.messages.back().content : request.prompt;
    std::istringstream words(text);
    std::string command;
    int64_t number = 0, ms = 0;
    words >> command >> number >> ms;
    job.due = job.starts = job.speaks = steady_clock::now();
    if (command == "COUNT") {
      for (int64_t i = 0; i < number; ++i) job.texts.push_back("w" + std::to_string(i) + " ");
      job.step = milliseconds(ms);
    } else if (command == "FLOOD") {
      job.texts.assign(static_cast<size_t>(number), std::string(1024, 'x'));
    } else if (command == "QUEUE") {
      job.starts = job.speaks = job.due + milliseconds(number);
      job.texts = {"late"};
    } else if (command == "PREFILL") {
      job.speaks = job.due + milliseconds(number);
      job.texts = {"read"};
    } else {
      for (const char c : text) {  // whole characters
        if (job.texts.empty() || (static_cast<unsigned char>(c) & 0xC0) != 0x80) job.texts.emplace_back();
        job.texts.back() += c;
      }
    }
    job.refuses = command == "REFUSE";
    job.breaks = command == "BREAK";
    // An error that comes before any text was sent is a status, not an event: let the text go out first.
    if (job.breaks) job.step = milliseconds(250);
    if (request.max_tokens >= 0 && job.texts.size() > static_cast<size_t>(request.max_tokens)) {
      job.texts.resize(static_cast<size_t>(request.max_tokens));
    }
    job.request = std::move(request);
    return job;
  }

  Usage UsageOf(const Job& job) const {
    Usage usage;
    usage.prompt_tokens = 7;
    usage.cached_tokens = 3;
    usage.completion_tokens = static_cast<int64_t>(job.next);
    usage.position = 7 + usage.completion_tokens;
    usage.sinks = 4;
    usage.context = 1024;
    usage.session = job.request.session;
    return usage;
  }

  // One step of one job; true when it has ended. As the engine does: callbacks without a lock held.
  bool Step(Job& job) {
    const auto now = steady_clock::now();
    if (*job.cancelled) {
      job.receiver->OnFinish(Finish::kCancelled, UsageOf(job));
      return true;
    }
    if (job.refuses) {
      job.receiver->OnError({400, "too long", "invalid_request_error", "", "context_length_exceeded", 0});
      return true;
    }
    if (now < job.starts) return false;
    if (!std::exchange(job.started, true)) job.receiver->OnStart(UsageOf(job));
    if (now < job.speaks) {
      job.receiver->OnProgress(1, 2);
      return false;
    }
    if (now < job.due) return false;
    if (job.breaks && job.next == 2) {
      job.receiver->OnError({500, "broke", "server_error", "", "broken", 0});
      return true;
    }
    if (job.next == job.texts.size()) {
      const bool cut = job.request.max_tokens == static_cast<int64_t>(job.next);
      job.receiver->OnFinish(cut ? Finish::kLength : Finish::kStop, UsageOf(job));
      return true;
    }
    std::vector<TokenReport> tokens;
    if (job.request.top_logprobs >= 0) {
      TokenReport report;
      report.id = 1;
      report.bytes = job.texts[job.next];
      report.logprob = -0.5;
      for (int i = 0; i < job.request.top_logprobs; ++i) {
        report.top.push_back({i, std::string(1, static_cast<char>('a' + i)), -1.0 - i});
      }
      tokens.push_back(report);
    }
    job.receiver->OnText(job.texts[job.next++], tokens);
    job.due = now + job.step;
    return false;
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      for (auto job = jobs_.begin(); job != jobs_.end();) {
        lock.unlock();  // only this thread erases
        const bool ended = Step(*job);
        lock.lock();
        job = ended ? jobs_.erase(job) : std::next(job);
      }
      changed_.wait_for(lock, milliseconds(1), [this] { return stop_; });
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::atomic<State> state_{State::kReady};
  uint64_t tickets_ = 0;
  std::list<Job> jobs_;
  std::vector<Request> requests_;
  std::map<std::pair<std::string, std::string>, SessionInfo> sessions_;
  std::map<uint64_t, std::function<bool(const CacheView&)>> watches_;
  ModelInfo info_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::thread thread_;
};

}  // namespace ballast::server::testing

#endif  // BALLAST_TESTS_SERVER_FAKE_SERVICE_H_
