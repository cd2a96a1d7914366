// A small real service for tests: the tiny random network behind MakeEngineService.
#ifndef BALLAST_TESTS_SERVER_SERVICE_FIXTURE_H_
#define BALLAST_TESTS_SERVER_SERVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "engine/load_tokenizer.h"
#include "server/engine_service.h"
#include "support/temp_path.h"
#include "support/tiny_llama.h"

namespace ballast::server {

inline testing::TinySpec ServerSpec(uint32_t seed = 1) {
  testing::TinySpec spec;
  spec.layers = 2;
  spec.vocab = 160;  // spells "user" and "assistant"
  spec.seed = seed;
  return spec;
}

// One file for all tests of the process.
inline const std::string& TinyModelPath() {
  static const std::string path = testing::TinyLlama(ServerSpec()).WriteTemp("server");
  return path;
}

class Collector : public Receiver {
 public:
  void OnStart(const Usage& what) override {
    const std::lock_guard lock(mutex_);
    started = true;
    at_start = what;
    changed_.notify_all();
  }
  void OnProgress(int64_t done, int64_t) override {
    const std::lock_guard lock(mutex_);
    fed = done;
    changed_.notify_all();
  }
  void OnText(std::string_view piece, const std::vector<TokenReport>& tokens) override {
    const std::lock_guard lock(mutex_);
    text += piece;
    ++pieces;
    reports.insert(reports.end(), tokens.begin(), tokens.end());
    changed_.notify_all();
  }
  void OnFinish(Finish how, const Usage& what) override {
    const std::lock_guard lock(mutex_);
    finish = how;
    usage = what;
    ++ends;
    changed_.notify_all();
  }
  void OnError(const ApiError& what) override {
    const std::lock_guard lock(mutex_);
    error = what;
    failed = true;
    ++ends;
    changed_.notify_all();
  }
  template <typename Condition>
  bool WaitFor(Condition condition, int seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(seconds), [&] { return condition(); });
  }
  Collector& Wait() {
    EXPECT_TRUE(WaitFor([&] { return ends > 0; })) << "no end";
    return *this;
  }

  bool started = false, failed = false;
  int64_t fed = 0;
  int pieces = 0, ends = 0;
  std::string text;
  std::vector<TokenReport> reports;
  Finish finish = Finish::kStop;
  Usage at_start, usage;
  ApiError error;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};
using CollectorPtr = std::shared_ptr<Collector>;

inline EngineServiceOptions TinyOptions() {
  EngineServiceOptions o;
  o.model_path = TinyModelPath();
  o.threads = 1;
  o.compute = Compute::kF32;
  o.stream.context = 96;
  o.stream.kv = KvType::kF32;
  o.prefill_chunk = 16;
  return o;
}

inline std::unique_ptr<Service> Serve(EngineServiceOptions options) {
  auto loaded = std::make_shared<std::promise<Status>>();
  options.on_loaded = [loaded](const Status& status) { loaded->set_value(status); };
  auto service = MakeEngineService(options);
  EXPECT_TRUE(service.ok()) << service.status().message();
  const Status status = loaded->get_future().get();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ((*service)->state(), status.ok() ? Service::State::kReady : Service::State::kFailed);
  return std::move(service).value();
}

// A greedy reply to a prompt, made with the engine alone.
inline std::string DirectReply(const EngineServiceOptions& o, int64_t n,
                               const std::function<std::vector<Token>(const Tokenizer&)>& prompt) {
  ThreadPool pool(1);
  Result<TensorFile> file = TensorFile::Open(o.model_path);
  auto tokenizer = LoadTokenizer(*file).value();
  auto model = Model::Load(*file, {o.compute, nullptr}, pool).value();
  auto stream = Stream::Create(*model, pool, o.stream).value();
  EXPECT_TRUE(stream->Append(prompt(*tokenizer)).ok());
  SamplerOptions greedy;
  greedy.temperature = 0;
  Sampler sampler = Sampler::Create(greedy, model->config().vocab, stream->context()).value();
  GenerateOptions options;
  options.max_tokens = n;
  return Generate(*stream, *tokenizer, sampler, options)->text;
}

using Messages = std::vector<ChatMessage>;

inline Request Chat(Messages messages, int64_t max_tokens = 12) {
  Request r;
  r.messages = std::move(messages);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.id = "chatcmpl-x";
  return r;
}
inline Request Text(std::string prompt, int64_t max_tokens = 12) {
  Request r;
  r.chat = false;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

inline CollectorPtr Ask(Service& service, Request request, uint64_t* ticket = nullptr) {
  auto collector = std::make_shared<Collector>();
  const uint64_t id = service.Submit(std::move(request), collector);
  if (ticket != nullptr) *ticket = id;
  return collector;
}
inline CollectorPtr AskAndWait(Service& service, Request request) {
  CollectorPtr c = Ask(service, std::move(request));
  c->Wait();
  return c;
}

// A call with a Done callback, waited for.
template <typename T, typename Call>
std::pair<std::optional<T>, ApiError> Wait(Call call) {
  auto answer = std::make_shared<std::promise<std::pair<std::optional<T>, ApiError>>>();
  call([answer](std::optional<T> value, const ApiError& error) { answer->set_value({value, error}); });
  return answer->get_future().get();
}
inline std::vector<SessionInfo> Sessions(Service& service, const std::string& tenant = "") {
  return Wait<std::vector<SessionInfo>>([&](auto done) { service.ListSessions(tenant, done); }).first.value();
}
inline std::optional<SessionInfo> Find(Service& service, const std::string& id,
                                       const std::string& tenant = "") {
  return Wait<SessionInfo>([&](auto done) { service.GetSession(tenant, id, done); }).first;
}
// How many sessions could not be saved.
inline int64_t DrainAndWait(Service& service, double seconds = 5) {
  std::promise<int64_t> drained;
  service.Drain(seconds, [&](int64_t unsaved) { drained.set_value(unsaved); });
  return drained.get_future().get();
}

// A fresh empty folder, gone with the object.
class TempFolder {
 public:
  explicit TempFolder(const std::string& name) : path_(testing::TempPath(name)) {
    std::filesystem::remove_all(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> Files(const std::string& ending) const {
    std::vector<std::string> out;
    if (!std::filesystem::exists(path_)) return out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().string().ends_with(ending)) out.push_back(entry.path().string());
    }
    return out;
  }

 private:
  std::string path_;
};

}  // namespace ballast::server

#endif  // BALLAST_TESTS_SERVER_SERVICE_FIXTURE_H_
