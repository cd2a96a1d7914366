#include "server/engine_service.h"

#include <sys/stat.h>  // first of all: it defines __GLIBC__
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/choose_chat.h"
#include "engine/load_tokenizer.h"
#include "server/engine_core.h"

namespace ballast::server {
namespace {

constexpr std::chrono::seconds kTrimPause{1};  // of idleness

// The C library keeps what a storm of connections has left behind.
void GiveMemoryBack() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// The engine's thread and what others hand to it.
class CommandQueue {
 public:
  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  // Everything posted so far; waits for something until `due` (never, when absent and !busy).
  std::deque<std::function<void()>> Take(bool busy, const std::optional<Clock::time_point>& due) {
    std::unique_lock lock(mutex_);
    const auto posted = [this] { return !tasks_.empty(); };
    if (!busy) {
      if (due) {
        wake_.wait_until(lock, *due, posted);
      } else {
        wake_.wait(lock, posted);
      }
    }
    return std::exchange(tasks_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
};

std::string ModelId(const EngineServiceOptions& options) {
  if (!options.model_id.empty()) return options.model_id;
  std::string name = options.model_path.substr(options.model_path.rfind('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

class EngineService : public Service {
 public:
  EngineService(const EngineServiceOptions& options, std::unique_ptr<SessionStore> store,
                std::vector<SnapshotLabel> found)
      : options_(options), store_(std::move(store)), found_(std::move(found)) {
    thread_ = std::thread([this] { Run(); });
    loader_ = std::thread([this] { LoadAll(); });
  }
  ~EngineService() override {
    stop_loading_ = true;
    loader_.join();
    commands_->Post([this] { stop_ = true; });
    thread_.join();
    core_.reset();  // its store ends here; what it still posts goes to a queue that outlives it
  }

  State state() const override { return state_.load(std::memory_order_acquire); }

  uint64_t Submit(Request request, std::shared_ptr<Receiver> receiver) override {
    const uint64_t ticket = ++tickets_;
    auto shared = std::make_shared<Request>(std::move(request));
    Post([this, ticket, shared, receiver = std::move(receiver), when = Clock::now()] {
      if (core_ == nullptr) {
        receiver->OnError(NotReady());
      } else {
        core_->Submit(ticket, std::move(*shared), receiver, when);
      }
    });
    return ticket;
  }
  void Cancel(uint64_t ticket) override {
    Post([this, ticket] {
      if (core_ != nullptr) core_->Cancel(ticket);
    });
  }

  void ListSessions(const std::string& tenant, Done<std::vector<SessionInfo>> done) override {
    WithCore(done, [=](EngineCore& core) { core.List(tenant, done); });
  }
  void GetSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) override {
    WithCore(done, [=](EngineCore& core) { core.Get(tenant, id, done); });
  }
  void DeleteSession(const std::string& tenant, const std::string& id, Done<bool> done) override {
    WithCore(done, [=](EngineCore& core) { core.Delete(tenant, id, done); });
  }
  void SaveSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) override {
    WithCore(done, [=](EngineCore& core) { core.Save(tenant, id, done); });
  }
  void RestoreSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) override {
    WithCore(done, [=](EngineCore& core) { core.Restore(tenant, id, done); });
  }
  void ForkSession(const std::string& tenant, const std::string& id, const std::string& to,
                   Done<SessionInfo> done) override {
    WithCore(done, [=](EngineCore& core) { core.Fork(tenant, id, to, done); });
  }

  uint64_t Watch(const std::string& tenant, const std::string& id, std::function<bool(const CacheView&)> view,
                 std::function<void(ApiError)> failed) override {
    const uint64_t watch = ++tickets_;
    Post([=, this] {
      if (core_ == nullptr) {
        failed(NotReady());
      } else {
        core_->Watch(watch, tenant, id, view, failed);
      }
    });
    return watch;
  }
  void Unwatch(uint64_t watch) override {
    Post([this, watch] {
      if (core_ != nullptr) core_->Unwatch(watch);
    });
  }

  const ModelInfo& model() const override {
    static const ModelInfo kNone;
    const State now = state();
    return now == State::kLoading || now == State::kFailed ? kNone : info_;
  }
  const Tokenizer& tokenizer() const override {
    BALLAST_CHECK(tokenizer_ != nullptr);
    return *tokenizer_;
  }

  void Drain(double seconds, std::function<void(int64_t)> done) override {
    Post([this, seconds, done = std::move(done)] {
      if (core_ == nullptr) {
        done(0);
        return;
      }
      state_.store(State::kDraining, std::memory_order_release);
      core_->Drain(seconds, done);
    });
  }

 private:
  void Post(std::function<void()> task) { commands_->Post(std::move(task)); }

  ApiError NotReady() const {
    if (state() == State::kFailed)
      return {500, "the model could not be loaded", "server_error", "", "model_failed", 0};
    return Busy("the model is loading", "loading", 2);
  }

  template <typename T, typename Call>
  void WithCore(const Done<T>& done, Call call) {
    Post([this, done, call = std::move(call)] {
      if (core_ == nullptr) {
        done(std::nullopt, NotReady());
      } else {
        call(*core_);
      }
    });
  }

  // When the engine's thread must wake without a command.
  std::optional<Clock::time_point> Due(bool busy, const std::optional<Clock::time_point>& trim) const {
    if (busy || core_ == nullptr) return std::nullopt;
    const std::optional<Clock::time_point> due = core_->Deadline();
    if (!due) return trim;
    return trim ? std::min(*due, *trim) : *due;
  }

  // The engine's thread.
  void Run() {
    bool busy = false;
    std::optional<Clock::time_point> trim;  // when to give freed memory back, if there may be some
    while (!stop_) {
      for (const std::function<void()>& task : commands_->Take(busy, Due(busy, trim))) task();
      const bool worked = busy;
      busy = core_ != nullptr && core_->Round();
      if (worked && !busy) trim = Clock::now() + kTrimPause;
      if (!busy && trim && Clock::now() >= *trim) {
        GiveMemoryBack();
        trim.reset();
      }
    }
    if (core_ != nullptr) core_->CancelAll();
  }

  void LoadAll() {
    std::shared_ptr<Loaded> loaded = std::make_shared<Loaded>();
    const Status status = Load(*loaded);
    if (!status.ok()) {
      state_.store(State::kFailed, std::memory_order_release);
      if (options_.on_loaded) options_.on_loaded(status);
      return;
    }
    tokenizer_ = loaded->tokenizer.get();
    Post([this, loaded] {
      core_ = std::make_unique<EngineCore>(
          options_, std::move(*loaded),
          [queue = commands_](std::function<void()> task) { queue->Post(std::move(task)); });
      state_.store(State::kReady, std::memory_order_release);
      if (options_.on_loaded) options_.on_loaded(Status());
    });
  }

  Status Load(Loaded& loaded) {
    BALLAST_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(options_.model_path));
    loaded.file = std::make_unique<TensorFile>(std::move(file));
    BALLAST_ASSIGN_OR_RETURN(loaded.tokenizer, LoadTokenizer(*loaded.file));
    loaded.encodings = std::make_unique<EncodingCache>(*loaded.tokenizer);
    const int cores = UsableCores();
    loaded.pool =
        std::make_unique<ThreadPool>(options_.threads > 0 ? std::min(options_.threads, cores) : cores);
    LoadOptions load;
    load.compute = options_.compute;
    load.weights = options_.weights;
    BALLAST_ASSIGN_OR_RETURN(loaded.model, Model::Load(*loaded.file, load, *loaded.pool));
    if (loaded.tokenizer->size() > loaded.model->config().vocab) {
      return Status::Expected(Code::kModel, options_.model_path + ": vocabulary",
                              "at most " + std::to_string(loaded.model->config().vocab) + " tokens",
                              std::to_string(loaded.tokenizer->size()));
    }
    if (stop_loading_) return Status(Code::kInterrupted, "interrupted while loading");
    BALLAST_RETURN_IF_ERROR(MakePrompter(loaded));
    // A first stream says whether the options make sense for this model.
    BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> probe,
                             Stream::Create(*loaded.model, *loaded.pool, options_.stream));
    loaded.identity = IdentifyModel(*loaded.file, *loaded.tokenizer, loaded.model->config(), options_.compute,
                                    options_.weights);
    loaded.store = std::move(store_);
    loaded.found = std::move(found_);
    FillInfo(loaded, *probe);
    return Status();
  }

  Status MakePrompter(Loaded& loaded) {
    std::string warning;
    Result<ChatPrompter> chat = ChooseChat(*loaded.file, *loaded.encodings, options_.chat_format, &warning);
    if (!warning.empty()) Notice(warning);
    if (!chat.ok()) {
      if (!options_.chat_format.empty()) return chat.status();
      loaded.no_chat = chat.status().message();  // completions can still be served
      Notice(chat.status().message() + " (" + chat.status().hint() + ")");
      return Status();
    }
    loaded.prompter.emplace(std::move(chat).value());
    return Status();
  }

  void FillInfo(const Loaded& loaded, const Stream& stream) {
    const ModelConfig& config = loaded.model->config();
    struct stat file {};
    info_.created = stat(options_.model_path.c_str(), &file) == 0 ? file.st_mtime : 0;
    info_.id = ModelId(options_);
    info_.architecture = config.architecture;
    info_.chat_format = loaded.prompter ? std::string(loaded.prompter->name()) : "";
    info_.context = stream.context();
    info_.trained_context = config.trained_context;
    info_.sinks = stream.pinned();
    info_.vocab = config.vocab;
    info_.kv = KvTypeName(options_.stream.kv);
    info_.policy = PolicyName(options_.stream.policy);
  }

  void Notice(const std::string& text) const {
    if (options_.on_notice) options_.on_notice(text);
  }

  const EngineServiceOptions options_;
  std::unique_ptr<SessionStore> store_;  // until the model is loaded
  std::vector<SnapshotLabel> found_;
  std::atomic<State> state_{State::kLoading};
  std::atomic<uint64_t> tickets_{0};
  std::atomic<bool> stop_loading_{false};
  ModelInfo info_;                        // written by the loader, before kReady
  const Tokenizer* tokenizer_ = nullptr;  // likewise
  std::shared_ptr<CommandQueue> commands_ = std::make_shared<CommandQueue>();
  bool stop_ = false;                 // the engine's thread only
  std::unique_ptr<EngineCore> core_;  // likewise
  std::thread thread_, loader_;
};

}  // namespace

int64_t DefaultPrefillChunk(int64_t weights) {
  constexpr int64_t kLeast = 8, kMost = 128;
  constexpr int64_t kWeightsOfMost = 200'000'000;  // 128 tokens through so many take two cores some 70 ms
  int64_t chunk = kMost;
  while (chunk > kLeast && weights > kWeightsOfMost * (kMost / chunk)) chunk /= 2;
  return chunk;
}

Result<std::unique_ptr<Service>> MakeEngineService(const EngineServiceOptions& options) {
  const auto refuse = [](std::string_view flag, std::string_view expected, int64_t found) {
    return Status::Expected(Code::kUsage, flag, expected, std::to_string(found));
  };
  if (options.max_sessions < 1) return refuse("--max-sessions", "at least 1", options.max_sessions);
  if (options.max_queue < 1) return refuse("--max-queue", "at least 1", options.max_queue);
  if (options.max_active < 1) return refuse("--max-active", "at least 1", options.max_active);
  if (options.prefill_chunk < 0 || options.prefill_chunk > 4096) {
    return refuse("--chunk", "0 to 4096 tokens", options.prefill_chunk);
  }
  if (!(options.idle_seconds >= 0)) {
    return Status::Expected(Code::kUsage, "--idle-seconds", "a number from 0", "another");
  }
  if (options.default_max_tokens < -1) return refuse("-n", "-1 or more", options.default_max_tokens);
  std::unique_ptr<SessionStore> store;
  std::vector<SnapshotLabel> found;
  if (!options.sessions_dir.empty()) {
    std::vector<std::string> notices;
    BALLAST_ASSIGN_OR_RETURN(
        store, SessionStore::Open(options.sessions_dir, options.sessions_bytes, &found, &notices));
    for (const std::string& notice : notices) {
      if (options.on_notice) options.on_notice(notice);
    }
  }
  return std::unique_ptr<Service>(new EngineService(options, std::move(store), std::move(found)));
}

}  // namespace ballast::server
