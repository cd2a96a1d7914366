// A stream as bytes, and back, exactly: for work that must survive being killed.
//
// Image: header, the caller's note, lost rows per layer, history (recompute), logits, rows of the cache (see
// KvCache::ExportRows), then XXH3-128 of all before it. Little-endian, as the machine. Thread safety: pure
// functions. Invariants: 1. an image is checked whole (length, header, checksum, model) before a stream is
// made of it. 2. The new stream goes on bit for bit as the old one would have. The server's sessions have a
// format of their own, which also holds a conversation's turns (server/snapshot.h).
#ifndef BALLAST_ENGINE_STREAM_SNAPSHOT_H_
#define BALLAST_ENGINE_STREAM_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mmap.h"
#include "base/status.h"
#include "engine/model_identity.h"
#include "engine/stream.h"

namespace ballast {

// `note`: bytes of the caller's that come back with the stream. kInternal when there is no memory.
Result<Arena> EncodeStream(const Stream& stream, const ModelIdentity& model, std::span<const uint8_t> note);

struct StreamImage {
  std::unique_ptr<Stream> stream;
  std::vector<uint8_t> note;
};
// `options` are those that the stream was made with (the chunk may differ). kInput: damaged; of another
// model; of other options.
Result<StreamImage> DecodeStream(std::span<const uint8_t> image, const Model& model, ThreadPool& pool,
                                 const StreamOptions& options, const ModelIdentity& identity);

}  // namespace ballast

#endif  // BALLAST_ENGINE_STREAM_SNAPSHOT_H_
