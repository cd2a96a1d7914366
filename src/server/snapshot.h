// Snapshots: a session as bytes of a size that its configuration alone decides, and back, exactly.
//
// File: header (SnapshotHeader and the monitor's record), turns, lost rows per layer, pinned ids, ring ids,
// logits, rows of the cache (see KvCache::ExportRows), then XXH3-128 of all before it. Little-endian, as the
// machine. Rows that are not in use are zero, so that they are holes in the file. Thread safety: pure
// functions. Invariants: 1. nothing of a live session changes before length, header, checksum and model
// identity are verified. 2. Restored, a session goes on bit for bit as the original would have.
#ifndef BALLAST_SERVER_SNAPSHOT_H_
#define BALLAST_SERVER_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/mmap.h"
#include "base/status.h"
#include "engine/model_identity.h"
#include "model/model.h"
#include "server/session.h"

namespace ballast::server {

// Whose session it is, and what can be told of it without reading its body.
struct SnapshotLabel {
  std::string tenant, id;  // at most 127 and 64 bytes
  std::string response;    // id of the newest reply, at most 127 bytes; "": none
  bool named = false;      // by a client, or stored: not the first to go
  int64_t saved_at = 0;    // seconds since 1970
  // Filled in by ReadSnapshotHeader; ignored by EncodeSnapshot.
  ModelIdentity model;
  int64_t bytes = 0;  // length of the file
  int64_t position = 0, live = 0, pinned = 0, context = 0, turns = 0, messages = 0, kv_bytes = 0;
  Policy policy = Policy::kSinks;
  Evict evict = Evict::kToken;
  bool chat = true, pin_system = false;
  uint64_t chain = 0;
};

inline constexpr size_t kSnapshotHeaderBytes = 1024;

// The image of a session. kInternal when there is no memory, kInput when the label does not fit.
Result<Arena> EncodeSnapshot(const Session& session, const SnapshotLabel& label, const ModelIdentity& model);
// Checks the first kSnapshotHeaderBytes of a file that is `file_bytes` long, without its body. kInput.
Result<SnapshotLabel> ReadSnapshotHeader(std::span<const uint8_t> header, uint64_t file_bytes);
// Checks everything, then makes the session. kInput: damaged; of another model: "snapshot of model X, this
// server runs Y".
Result<std::unique_ptr<Session>> DecodeSnapshot(std::span<const uint8_t> image, const Model& model,
                                                ThreadPool& pool, const ModelIdentity& identity);
// The checksum again, for an image that was changed on purpose (tests).
void ResealSnapshot(std::span<uint8_t> image);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SNAPSHOT_H_
