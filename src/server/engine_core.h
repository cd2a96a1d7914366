// EngineCore: the engine's thread, from the inside: admits requests, steps the batch, keeps the sessions.
//
// Thread safety: every method on the engine's thread only (the constructor and destructor excepted).
// Files: engine_core.cc (steps and cancellation), engine_reply.cc (sampling and endings), engine_admit.cc
// (the queue, beginnings), engine_find.cc (which session answers), engine_sessions.cc (sessions come, sleep
// and go), engine_health.cc (streams that collapse), watch.h (the page's view).
#ifndef BALLAST_SERVER_ENGINE_CORE_H_
#define BALLAST_SERVER_ENGINE_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "engine/batch.h"
#include "engine/chat_prompter.h"
#include "formats/tensor_file.h"
#include "model/model.h"
#include "server/encoding_cache.h"
#include "server/engine_service.h"
#include "server/job.h"
#include "server/scheduler.h"
#include "server/session_store.h"
#include "server/session_table.h"
#include "server/watch.h"
#include "server/worker_thread.h"

namespace ballast::server {

// Errors as clients know them.
ApiError BadRequest(std::string message, std::string param, std::string code = "invalid_value");
ApiError NotFound(std::string message, std::string param, std::string code);
ApiError Busy(std::string message, std::string code, int retry_after);
ApiError ShuttingDown();
ApiError FromStatus(const Status& status, const std::string& param);

// A loaded model and all that is made of it once. Members in the order in which later ones use them.
struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<TensorFile> file;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<EncodingCache> encodings;  // the same, for prompts
  std::unique_ptr<const Model> model;
  std::optional<ChatPrompter> prompter;  // none: the model has no chat format that Ballast knows
  std::string no_chat;                   // then why
  ModelIdentity identity;
  std::unique_ptr<SessionStore> store;  // null: no folder
  std::vector<SnapshotLabel> found;     // sessions that slept there
};

class EngineCore {
 public:
  static constexpr auto kRoomWait = std::chrono::seconds(10);
  // `post` runs a task on the engine's thread, from any thread.
  using Post = std::function<void(std::function<void()>)>;
  EngineCore(const EngineServiceOptions& options, Loaded loaded, Post post);
  ~EngineCore() { loaded_.encodings->Stop(); }

  // Requests.
  void Submit(uint64_t ticket, Request request, std::shared_ptr<Receiver> receiver, Clock::time_point when);
  void Cancel(uint64_t ticket);

  // One round: admit, one step of the batch, housekeeping. False: nothing to do until Deadline() or a
  // command.
  bool Round();
  std::optional<Clock::time_point> Deadline() const;

  // Sessions; see Service.
  template <typename T>
  using Done = Service::Done<T>;
  void List(const std::string& tenant, const Done<std::vector<SessionInfo>>& done);
  void Get(const std::string& tenant, const std::string& id, const Done<SessionInfo>& done);
  void Delete(const std::string& tenant, const std::string& id, const Done<bool>& done);
  void Save(const std::string& tenant, const std::string& id, const Done<SessionInfo>& done);
  // What needs room in memory waits for it until `until`.
  void Restore(const std::string& tenant, const std::string& id, const Done<SessionInfo>& done,
               Clock::time_point until = Clock::now() + kRoomWait);
  void Fork(const std::string& tenant, const std::string& id, const std::string& to,
            const Done<SessionInfo>& done, Clock::time_point until = Clock::now() + kRoomWait);
  void Watch(uint64_t watch, const std::string& tenant, const std::string& id,
             const std::function<bool(const CacheView&)>& view, const std::function<void(ApiError)>& failed,
             Clock::time_point until = Clock::now() + kRoomWait);
  void Unwatch(uint64_t watch);

  // Takes no more requests; those that wait are refused. When all is answered and saved, calls `done` with
  // the number of sessions that could not be saved.
  void Drain(double seconds, std::function<void(int64_t unsaved)> done);
  // Ends every request as cancelled.
  void CancelAll();

 private:
  // --- engine_core.cc
  void Step();
  void Collect(std::vector<Batch::Entry>& entries, std::vector<Job*>& owners);
  void CollectPrompts(bool decoding, std::vector<Batch::Entry>& entries, std::vector<Job*>& owners);
  void AddEntry(Job& job, std::span<const Token> tokens, bool logits, std::vector<Batch::Entry>& entries,
                std::vector<Job*>& owners);
  bool AfterStep(Job& job, const Batch::Entry& entry);
  void CountFed(const Session& session, int64_t n);
  void MarkTurns(Job& job);
  void CancelActive(Job& job);
  void UndoPrompt(Job& job);
  void SampleSinkMass(const Batch::Entry& entry);
  void Count();

  // --- engine_health.cc
  void TellMonitor(Job& job, const Batch::Entry& entry);
  bool MindHealth(Job& job);
  Status RescueSession(Session& session);

  // --- engine_reply.cc
  void StartReply(Job& job);
  void SampleAll(const std::vector<Job*>& jobs);
  void AfterSample(Job& job);
  void Report(Job& job, Token token, std::span<const float> logits) const;
  void HandOut(Job& job, bool last);
  void CloseReply(Job& job);
  void FillUsage(Job& job) const;
  void WarnOfTheUnseen(Job& job) const;
  void Finish(Job& job, enum Finish finish);
  void Fail(Job& job, const ApiError& error);
  void Release(Job& job);

  // --- engine_admit.cc
  void EncodeBeside(Job& job);
  void Admit();
  enum class Admitted { kStarted, kWait, kFailed };
  Admitted TryStart(Job& job);
  Admitted StartText(Job& job);
  // Why the slot that a request asks for cannot answer it now (it is busy, on disk, or of another kind);
  // nothing when it can.
  std::optional<Admitted> RefuseOrAwait(Job& job, const SlotPtr& slot);
  Admitted StartNamed(Job& job);
  Admitted StartPrevious(Job& job);
  Admitted StartByHistory(Job& job);
  Admitted StartFresh(Job& job, const SlotPtr& reuse);
  Admitted Continue(Job& job, const SlotPtr& slot);
  Admitted ContinueCopy(Job& job, const SlotPtr& slot, const std::optional<size_t>& roll_back_to);
  Admitted Begin(Job& job, const SlotPtr& slot, const std::optional<size_t>& roll_back_to, int64_t cached);
  Admitted Refuse(Job& job, const ApiError& error);
  Result<Session::Config> ConfigFor(const Job& job, ApiError* error) const;
  bool PinsSystem(const Job& job) const;
  bool Fits(const Slot& slot, const Request& request, ApiError* error) const;
  std::optional<ApiError> CheckLengths(Job& job, const Session& session, int64_t base);
  std::optional<ApiError> Prepare(Job& job);
  std::optional<ApiError> PrepareChat(Job& job);
  std::optional<ApiError> CheckNewTools(const Job& job, const Session& session, const Continued& continued);
  int64_t SeenSystem(const Job& job, const Session& session) const;

  // --- engine_sessions.cc
  enum class Room { kYes, kSoon, kNever };
  // For one more session in memory; `keep` is not given up for it.
  Room MakeRoom(const Slot* keep);
  // An operation on a session that waits for room in memory.
  struct Parked {
    uint64_t watch = 0;  // 0: no watcher's
    Clock::time_point until{};
    std::function<void()> retry;
  };
  // Whether there is room now. If not, `retry` is called later, or, when it has waited long enough, `no_room`
  // now.
  bool RoomOrPark(const Slot* keep, Parked parked, const std::function<void(ApiError)>& no_room);
  void RetryParked();
  SlotPtr NewSlot(const std::string& tenant, const std::string& id);
  Result<SlotPtr> CopySlot(const SlotPtr& slot, const std::string& id);
  void StartRestore(const SlotPtr& slot, const Done<SessionInfo>& done);
  void Restored(const SlotPtr& slot, Result<Arena> image, const Done<SessionInfo>& done);
  void DenyWaiting(const Slot& slot, const std::string& why);
  void StartSave(const SlotPtr& slot, bool then_free, const Done<SessionInfo>& done);
  void Saved(const SlotPtr& slot, const SnapshotLabel& label, int64_t version, bool then_free,
             const Status& status, const SessionStore::Deleted& deleted, const Done<SessionInfo>& done);
  void Forget(const SlotPtr& slot);
  // Whether the folder holds this session as it is now.
  bool IsSaved(const Slot& slot) const;
  ApiError NoRoom(int retry_after) const;
  void SpillIdle();
  void AdvanceDrain();
  SessionInfo Info(const Slot& slot) const;
  void Notice(const std::string& text) const;
  std::string RandomId(const char* prefix);

  const EngineServiceOptions options_;  // with what depends on the model filled in
  Loaded loaded_;
  Post post_;
  Batch batch_;
  Rng ids_;

  std::vector<std::unique_ptr<Job>> waiting_;  // in order of arrival
  std::vector<std::unique_ptr<Job>> active_;   // by ticket
  std::vector<SlotPtr> passing_;               // sessions of active requests that are not in the table
  bool try_admit_ = false;                     // something changed since the last attempt
  SessionTable table_;
  PrefillPacer pacer_;
  PrefillTurns prefill_turns_;
  Watchers watchers_;
  int64_t saving_ = 0, restoring_ = 0;
  Clock::time_point counted_{}, next_spill_{};
  int64_t sink_samples_ = 0;

  bool draining_ = false;
  Clock::time_point drain_until_{};
  bool drain_saved_ = false;
  int64_t unsaved_ = 0;
  std::string save_failure_;  // why the last save failed; "" when it did not
  std::function<void(int64_t)> drained_;

  std::vector<Parked> parked_;
  WorkerThread encoder_;  // of long texts; ends before all else
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_ENGINE_CORE_H_
