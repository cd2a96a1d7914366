// SessionTable: every session the server knows, in memory or on disk, by tenant.
//
// Thread safety: the engine's thread only. Invariant: no look-up crosses tenants.
#ifndef BALLAST_SERVER_SESSION_TABLE_H_
#define BALLAST_SERVER_SESSION_TABLE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/session.h"
#include "server/snapshot.h"

namespace ballast::server {

struct Job;
using Clock = std::chrono::steady_clock;
ApiError NoSuchSession(const std::string& id);
inline double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Where one session is.
struct Slot {
  std::string tenant, id;
  bool named = false;                // by a client: only requests that say its name continue it
  bool stored = false;               // under a response's id
  std::string response;              // id of its newest stored reply
  std::unique_ptr<Session> session;  // null: on disk, or being read
  Job* job = nullptr;                // the request that it answers now
  bool on_disk = false;              // `label` describes the file
  SnapshotLabel label;
  bool dirty = false;  // the memory is newer than the file
  bool saving = false, restoring = false;
  int64_t rescued_at = 0;  // stream position of the last rescue, if there was one
  bool gone = false;       // deleted: not in the table any more
  int64_t version = 0;     // counts changes, so that a save knows whether it is still the newest
  Clock::time_point used{};
  Clock::time_point no_save_before{};  // after a save that failed

  bool idle() const { return session != nullptr && job == nullptr; }
  bool may_spill(Clock::time_point now) const { return idle() && !saving && now >= no_save_before; }
  bool kept() const { return named || stored; }
};
using SlotPtr = std::shared_ptr<Slot>;

class SessionTable {
 public:
  using Key = std::pair<std::string, std::string>;  // tenant, id

  SlotPtr Find(const std::string& tenant, const std::string& id) const;
  void Add(SlotPtr slot);
  void Remove(const SlotPtr& slot);                                // marks it gone
  std::vector<SlotPtr> OfTenant(const std::string& tenant) const;  // by id
  const std::map<Key, SlotPtr>& all() const { return slots_; }

  // The idle session in memory to give up first: of the tenant that has most there, anonymous before kept,
  // the longest unused. Null: none. Those being saved, those
  // whose save has just failed, and `keep`, are skipped.
  SlotPtr Coldest(const Slot* keep) const;

  // Which reply a response's id stands for.
  struct Reply {
    std::string id;      // of the session
    uint64_t chain = 0;  // of its messages up to that reply
  };
  void RememberReply(const std::string& tenant, const std::string& response, Reply reply);
  const Reply* FindReply(const std::string& tenant, const std::string& response) const;

 private:
  static constexpr size_t kMaxReplies = 1 << 16;
  std::map<Key, SlotPtr> slots_;
  std::map<Key, Reply> replies_;
  std::deque<Key> reply_order_;  // oldest first
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SESSION_TABLE_H_
