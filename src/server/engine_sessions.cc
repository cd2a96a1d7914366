// Sessions come, sleep and go.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "server/engine_core.h"

namespace ballast::server {
namespace {

constexpr auto kSaveAgain = std::chrono::seconds(10);  // after a failed save

ApiError SessionBusy(const std::string& id) {
  return {409,
          "session \"" + id + "\" is answering a request",
          "invalid_request_error",
          "session",
          "session_busy",
          1};
}
ApiError NotRestorable(const std::string& id, const std::string& why) {
  return {409,
          "session \"" + id + "\" cannot be restored: " + why,
          "invalid_request_error",
          "session",
          "session_not_restorable",
          0};
}
ApiError NoFolder() {
  return BadRequest("sessions live in memory only: the server was started without --sessions-dir", "",
                    "no_sessions_dir");
}

template <typename T>
void Answer(const Service::Done<T>& done, T value) {
  if (done) done(std::move(value), ApiError{});
}
template <typename T>
void Deny(const Service::Done<T>& done, const ApiError& error) {
  if (done) done(std::nullopt, error);
}

}  // namespace

void EngineCore::Notice(const std::string& text) const {
  if (options_.on_notice) options_.on_notice(text);
}

std::string EngineCore::RandomId(const char* prefix) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id(prefix);
  const uint64_t word = ids_.Next();
  for (int shift = 60; shift >= 0; shift -= 4) id += kDigits[word >> shift & 15];
  return id;
}

SlotPtr EngineCore::NewSlot(const std::string& tenant, const std::string& id) {
  auto slot = std::make_shared<Slot>();
  slot->tenant = tenant;
  slot->id = id;
  slot->used = Clock::now();
  return slot;
}

// A session of its own with the same state, through a snapshot in memory.
Result<SlotPtr> EngineCore::CopySlot(const SlotPtr& slot, const std::string& id) {
  SnapshotLabel label;
  label.tenant = slot->tenant;
  label.id = slot->id;
  BALLAST_ASSIGN_OR_RETURN(const Arena image, EncodeSnapshot(*slot->session, label, loaded_.identity));
  SlotPtr copy = NewSlot(slot->tenant, id.empty() ? RandomId("sess_") : id);
  BALLAST_ASSIGN_OR_RETURN(copy->session, DecodeSnapshot({image.data(), image.size()}, *loaded_.model,
                                                         *loaded_.pool, loaded_.identity));
  copy->dirty = true;
  table_.Add(copy);
  return copy;
}

EngineCore::Room EngineCore::MakeRoom(const Slot* keep) {
  int64_t resident = static_cast<int64_t>(passing_.size()) + restoring_, leaving = 0;
  for (const auto& [key, slot] : table_.all()) {
    resident += slot->session != nullptr && !slot->restoring;
    leaving += slot->saving && slot->idle();
  }
  while (resident >= options_.max_sessions && resident - leaving >= options_.max_sessions) {
    const SlotPtr cold = table_.Coldest(keep);
    if (cold == nullptr) break;
    if (loaded_.store == nullptr) {
      Forget(cold);
      --resident;
    } else if (IsSaved(*cold)) {
      cold->session.reset();
      --resident;
    } else {
      StartSave(cold, true, nullptr);
      if (!cold->saving) return Room::kNever;  // no image could be made
      ++leaving;
    }
  }
  if (resident < options_.max_sessions) return Room::kYes;
  return leaving > 0 || !active_.empty() || restoring_ > 0 ? Room::kSoon : Room::kNever;
}

bool EngineCore::RoomOrPark(const Slot* keep, Parked parked, const std::function<void(ApiError)>& no_room) {
  const Room room = MakeRoom(keep);
  if (room == Room::kYes) return true;
  if (room == Room::kSoon && !draining_ && Clock::now() < parked.until) {
    parked_.push_back(std::move(parked));
  } else {
    no_room(draining_ ? ShuttingDown() : NoRoom(1));
  }
  return false;
}

// Those that something may have changed for, and those that have waited long enough; in order.
void EngineCore::RetryParked() {
  if (parked_.empty()) return;
  const Clock::time_point now = Clock::now();
  for (Parked& parked : std::exchange(parked_, {})) {
    if (try_admit_ || draining_ || now >= parked.until) {
      parked.retry();
    } else {
      parked_.push_back(std::move(parked));
    }
  }
}

bool EngineCore::IsSaved(const Slot& slot) const {
  return slot.on_disk && !slot.dirty && loaded_.store != nullptr &&
         loaded_.store->Holds(slot.tenant, slot.id);
}

ApiError EngineCore::NoRoom(int retry_after) const {
  std::string text = "no room for another session in memory";
  if (!save_failure_.empty()) text += ", and those there cannot be saved: " + save_failure_;
  return Busy(std::move(text), "no_room", retry_after);
}

void EngineCore::Forget(const SlotPtr& slot) {
  if (!slot->gone) table_.Remove(slot);
  // One that is being written too, behind that write: its name may soon be another's.
  if ((slot->on_disk || slot->saving) && loaded_.store != nullptr) {
    loaded_.store->Delete(slot->tenant, slot->id);
  }
  slot->on_disk = false;
  if (slot->job == nullptr) slot->session.reset();
}

void EngineCore::StartRestore(const SlotPtr& slot, const Done<SessionInfo>& done) {
  slot->restoring = true;
  ++restoring_;
  loaded_.store->Load(slot->tenant, slot->id, [this, slot, done, post = post_](Result<Arena> image) {
    auto shared = std::make_shared<Result<Arena>>(std::move(image));
    post([this, slot, done, shared] { Restored(slot, std::move(*shared), done); });
  });
}

void EngineCore::Restored(const SlotPtr& slot, Result<Arena> image, const Done<SessionInfo>& done) {
  slot->restoring = false;
  --restoring_;
  try_admit_ = true;
  if (slot->gone) {
    Deny(done, NoSuchSession(slot->id));
    return;
  }
  Status status = image.status();
  if (image.ok()) {
    Result<std::unique_ptr<Session>> session =
        DecodeSnapshot({image->data(), image->size()}, *loaded_.model, *loaded_.pool, loaded_.identity);
    status = session.status();
    if (session.ok()) slot->session = std::move(session).value();
  }
  if (options_.counters != nullptr) {
    ++(status.ok() ? options_.counters->session_restores_ok : options_.counters->session_restores_failed);
  }
  if (status.ok()) {
    slot->dirty = false;
    ++slot->version;
    slot->used = Clock::now();
    watchers_.WentBack(*slot, 0);
    Answer(done, Info(*slot));
    return;
  }
  Notice("session \"" + slot->id + "\" cannot be restored: " + status.message());
  // Of another model: the file stays that session's, for the server that runs that model.
  const bool foreign = status.message().find("snapshot of model") != std::string::npos;
  const ApiError refusal = NotRestorable(slot->id, status.message());
  slot->dirty = true;  // what is in memory is all there is
  if (slot->session == nullptr) {
    watchers_.End(*slot, refusal);
    if (!foreign) loaded_.store->SetAside(slot->tenant, slot->id);
    slot->on_disk = foreign;
    if (!foreign || !slot->kept()) table_.Remove(slot);
    DenyWaiting(*slot, status.message());
  }
  Deny(done, refusal);
}

// Requests that name a session which cannot be brought back; those that only have its history stream it
// again.
void EngineCore::DenyWaiting(const Slot& slot, const std::string& why) {
  for (std::unique_ptr<Job>& job : waiting_) {
    const Request& r = job->request;
    if (r.tenant != slot.tenant) continue;
    const SessionTable::Reply* reply = r.previous.empty() ? nullptr : table_.FindReply(r.tenant, r.previous);
    if (r.session != slot.id && (reply == nullptr || reply->id != slot.id)) continue;
    job->receiver->OnError(NotRestorable(slot.id, why));
    job.reset();
  }
  std::erase(waiting_, nullptr);
}

void EngineCore::StartSave(const SlotPtr& slot, bool then_free, const Done<SessionInfo>& done) {
  SnapshotLabel label;
  label.tenant = slot->tenant;
  label.id = slot->id;
  label.response = slot->stored ? slot->response : "";
  label.named = slot->named || slot->stored;
  label.saved_at = static_cast<int64_t>(std::time(nullptr));
  Result<Arena> image = EncodeSnapshot(*slot->session, label, loaded_.identity);
  if (image.ok()) {  // as it will be read back
    Result<SnapshotLabel> known = ReadSnapshotHeader({image->data(), kSnapshotHeaderBytes}, image->size());
    if (known.ok()) label = std::move(known).value();
  } else {
    Notice("session \"" + slot->id + "\" cannot be saved: " + image.status().message());
    unsaved_ += draining_;
    Deny(done, FromStatus(image.status(), "session"));
    return;
  }
  slot->saving = true;
  ++saving_;
  loaded_.store->Save(label, std::move(image).value(),
                      [this, slot, label, version = slot->version, then_free, done, post = post_](
                          const Status& status, const SessionStore::Deleted& deleted) {
                        post([=, this] { Saved(slot, label, version, then_free, status, deleted, done); });
                      });
}

void EngineCore::Saved(const SlotPtr& slot, const SnapshotLabel& label, int64_t version, bool then_free,
                       const Status& status, const SessionStore::Deleted& deleted,
                       const Done<SessionInfo>& done) {
  slot->saving = false;
  --saving_;
  try_admit_ = true;
  for (const auto& [tenant, id] : deleted) {
    const SlotPtr other = table_.Find(tenant, id);
    if (other == nullptr) continue;
    other->on_disk = false;
    if (other->session == nullptr && !other->restoring) table_.Remove(other);
  }
  if (options_.counters != nullptr) {
    ++(status.ok() ? options_.counters->session_saves_ok : options_.counters->session_saves_failed);
  }
  save_failure_ = status.message();
  if (!status.ok()) {
    Notice("session \"" + slot->id + "\" cannot be saved: " + status.message());
    slot->no_save_before = Clock::now() + kSaveAgain;
    unsaved_ += drain_saved_;
    if (then_free && slot->idle() && !slot->kept() && !slot->gone) Forget(slot);
    Deny(done, FromStatus(status, "session"));
    return;
  }
  if (slot->gone) {  // deleted while it was written, and so was the file
    Deny(done, NoSuchSession(slot->id));
    return;
  }
  slot->on_disk = true;
  slot->label = label;
  if (slot->version == version) {
    slot->dirty = false;
    if (then_free && slot->idle()) slot->session.reset();
  }
  Answer(done, Info(*slot));
}

void EngineCore::SpillIdle() {
  const Clock::time_point now = Clock::now();
  if (loaded_.store == nullptr || draining_ || now < next_spill_) return;
  const auto idle = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(options_.idle_seconds, 1e8)));
  next_spill_ = now + std::chrono::hours(1);
  for (const auto& [key, slot] : table_.all()) {
    if (!slot->idle() || slot->saving) continue;
    if (slot->used + idle > now || !slot->may_spill(now)) {
      next_spill_ = std::min(next_spill_, std::max(slot->used + idle, slot->no_save_before));
    } else if (watchers_.Watches(*slot)) {
      slot->used = now;
    } else if (IsSaved(*slot)) {
      slot->session.reset();
    } else {
      StartSave(slot, true, nullptr);
      if (!slot->saving) slot->no_save_before = now + kSaveAgain;
    }
  }
  next_spill_ = std::max(next_spill_, now + std::chrono::milliseconds(20));
}

void EngineCore::AdvanceDrain() {
  if (!drained_) return;
  if (!active_.empty() && Clock::now() >= drain_until_) {
    while (!active_.empty()) Cancel(active_.front()->ticket);
  }
  if (!active_.empty()) return;
  if (!drain_saved_ && saving_ == 0) {
    drain_saved_ = true;
    for (const auto& [key, slot] : table_.all()) {
      if (loaded_.store != nullptr && slot->idle() && !IsSaved(*slot)) {
        StartSave(slot, false, nullptr);
      }
    }
  }
  if (drain_saved_ && saving_ == 0) std::exchange(drained_, nullptr)(unsaved_);
}

SessionInfo EngineCore::Info(const Slot& slot) const {
  SessionInfo info;
  info.id = slot.id;
  info.idle_seconds = Seconds(Clock::now() - slot.used);
  if (slot.session == nullptr) {
    const SnapshotLabel& label = slot.label;
    info.state = "spilled";
    info.policy = PolicyName(label.policy);
    info.position = label.position;
    info.evicted_tokens = label.position - label.live;
    info.sinks = label.pinned;
    info.context = label.context;
    info.turns = label.turns;
    info.kv_bytes = label.kv_bytes;
    return info;
  }
  const Stream& stream = slot.session->stream();
  info.state = slot.job != nullptr ? "active" : "idle";
  info.policy = PolicyName(stream.policy());
  info.position = stream.position();
  info.evicted_tokens = stream.evicted();
  info.sinks = stream.pinned();
  info.context = stream.context();
  info.turns = slot.session->turns().count();
  info.kv_bytes = stream.kv_bytes();
  return info;
}

void EngineCore::List(const std::string& tenant, const Done<std::vector<SessionInfo>>& done) {
  std::vector<SessionInfo> out;
  for (const SlotPtr& slot : table_.OfTenant(tenant)) out.push_back(Info(*slot));
  Answer(done, std::move(out));
}

void EngineCore::Get(const std::string& tenant, const std::string& id, const Done<SessionInfo>& done) {
  const SlotPtr slot = table_.Find(tenant, id);
  if (slot == nullptr) return Deny(done, NoSuchSession(id));
  Answer(done, Info(*slot));
}

void EngineCore::Delete(const std::string& tenant, const std::string& id, const Done<bool>& done) {
  const SlotPtr slot = table_.Find(tenant, id);
  if (slot == nullptr) return Deny(done, NoSuchSession(id));
  Forget(slot);
  if (slot->job != nullptr) passing_.push_back(slot);  // until its reply is over
  try_admit_ = true;
  Answer(done, true);
}

void EngineCore::Save(const std::string& tenant, const std::string& id, const Done<SessionInfo>& done) {
  const SlotPtr slot = table_.Find(tenant, id);
  if (slot == nullptr) return Deny(done, NoSuchSession(id));
  if (loaded_.store == nullptr) return Deny(done, NoFolder());
  if (slot->job != nullptr || slot->restoring || slot->saving) return Deny(done, SessionBusy(id));
  if (slot->session == nullptr) return Answer(done, Info(*slot));  // it sleeps there already
  StartSave(slot, false, done);
}

void EngineCore::Restore(const std::string& tenant, const std::string& id, const Done<SessionInfo>& done,
                         Clock::time_point until) {
  const SlotPtr slot = table_.Find(tenant, id);
  if (slot == nullptr) return Deny(done, NoSuchSession(id));
  if (loaded_.store == nullptr) return Deny(done, NoFolder());
  if (slot->job != nullptr || slot->restoring || slot->saving) return Deny(done, SessionBusy(id));
  if (!slot->on_disk) {
    return Deny(done, NotFound("session \"" + id + "\" was never saved", "session", "snapshot_not_found"));
  }
  const auto retry = [=, this] { Restore(tenant, id, done, until); };
  const auto no_room = [&](const ApiError& error) { Deny(done, error); };
  if (slot->session == nullptr && !RoomOrPark(nullptr, {0, until, retry}, no_room)) return;
  StartRestore(slot, done);
}

void EngineCore::Fork(const std::string& tenant, const std::string& id, const std::string& to,
                      const Done<SessionInfo>& done, Clock::time_point until) {
  const SlotPtr slot = table_.Find(tenant, id);
  if (slot == nullptr) return Deny(done, NoSuchSession(id));
  if (!to.empty() && table_.Find(tenant, to) != nullptr) {
    return Deny(done, {409, "there is a session \"" + to + "\" already", "invalid_request_error", "to",
                       "session_exists", 0});
  }
  if (slot->job != nullptr || slot->restoring) return Deny(done, SessionBusy(id));
  if (options_.max_sessions < 2) {
    return Deny(done, BadRequest("fork: expected room for two sessions in memory, found --max-sessions 1", "",
                                 "no_room"));
  }
  const auto retry = [=, this] { Fork(tenant, id, to, done, until); };
  const auto no_room = [&](const ApiError& error) { Deny(done, error); };
  if (!RoomOrPark(slot.get(), {0, until, retry}, no_room)) return;
  if (slot->session == nullptr) {  // wake it first
    StartRestore(slot,
                 [this, tenant, id, to, done](const std::optional<SessionInfo>& info, const ApiError& error) {
                   if (!info) return Deny(done, error);
                   Fork(tenant, id, to, done);
                 });
    return;
  }
  Result<SlotPtr> copy = CopySlot(slot, to);
  if (!copy.ok()) return Deny(done, FromStatus(copy.status(), "session"));
  (*copy)->named = true;
  Answer(done, Info(**copy));
}

void EngineCore::Watch(uint64_t watch, const std::string& tenant, const std::string& id,
                       const std::function<bool(const CacheView&)>& view,
                       const std::function<void(ApiError)>& failed, Clock::time_point until) {
  const SlotPtr slot = table_.Find(tenant, id);
  if (slot == nullptr) return failed(NoSuchSession(id));
  if (slot->session == nullptr && !slot->restoring) {
    const auto retry = [=, this] { Watch(watch, tenant, id, view, failed, until); };
    if (!RoomOrPark(nullptr, {watch, until, retry}, failed)) return;
    StartRestore(slot, nullptr);
  }
  watchers_.Add(watch, slot, view, failed);
}

void EngineCore::Unwatch(uint64_t watch) {
  watchers_.Remove(watch);
  std::erase_if(parked_, [watch](const Parked& parked) { return parked.watch == watch; });
}

}  // namespace ballast::server
