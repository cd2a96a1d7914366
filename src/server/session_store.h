// SessionStore: the folder where sessions sleep. One file per session, replaced atomically.
//
// Purpose: write, read, delete and list snapshots, in a thread of its own so that a slow disk never stops a
// reply. Thread safety: any thread; callbacks come on the store's thread. Invariants: 1. one process owns the
// folder (a lock). 2. kill -9 or a power cut at any moment leaves each session old or new, never torn: a
// temporary file is written, synced, closed and renamed, and the folder synced, before a save is reported. 3.
// a file whose sync failed is never used. 4. file names come from hashes, never from clients. 5. the files
// together stay within the quota: the oldest anonymous ones go first.
#ifndef BALLAST_SERVER_SESSION_STORE_H_
#define BALLAST_SERVER_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "base/status.h"
#include "server/snapshot.h"

namespace ballast::server {

// Writes `bytes` as `name` in the open folder `dir`, as said above; runs of zeros become holes. kInternal.
Status WriteFileDurably(int dir, const std::string& name, std::span<const uint8_t> bytes);
// "<32 hex digits>.session"
std::string SnapshotFileName(const std::string& tenant, const std::string& id);

class SessionStore {
 public:
  // Opens (or makes) the folder, takes its lock and reads the header of every file: `found`. What cannot be
  // used is set aside with the ending ".bad" and named in `notices`. kUsage when the folder cannot be used or
  // another process has it.
  static Result<std::unique_ptr<SessionStore>> Open(const std::string& path, int64_t quota,
                                                    std::vector<SnapshotLabel>* found,
                                                    std::vector<std::string>* notices);
  virtual ~SessionStore() = default;

  // What a save did besides: sessions deleted to make room, (tenant, id) each.
  using Deleted = std::vector<std::pair<std::string, std::string>>;
  virtual void Save(const SnapshotLabel& label, Arena image,
                    std::function<void(const Status&, const Deleted&)> done) = 0;
  // The file's bytes; kInput when there is none, kInternal when it cannot be read.
  virtual void Load(const std::string& tenant, const std::string& id,
                    std::function<void(Result<Arena>)> done) = 0;
  virtual void Delete(const std::string& tenant, const std::string& id) = 0;
  // Whether the file is there, which somebody may have removed. Any thread.
  virtual bool Holds(const std::string& tenant, const std::string& id) const = 0;
  // Puts a damaged file aside.
  virtual void SetAside(const std::string& tenant, const std::string& id) = 0;
  // Calls `done` after everything asked for before.
  virtual void Flush(std::function<void()> done) = 0;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SESSION_STORE_H_
