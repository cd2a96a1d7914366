// Batch: one forward step for any mix of streams, with one pass over the weights.
//
// Purpose: serve many conversations at the memory traffic of one. Streams may be at different positions, of
// different policies and cache sizes, and bring different numbers of tokens. Owns the scratch memory of the
// step, so a thousand idle streams hold only their caches. Thread safety: one thread at a time; the pool's
// caller. Invariants: 1. A stream's result does not depend on its neighbours, bit for bit, for the same
// tokens in the same steps (kernels never let rows meet). 2. A refused entry leaves its stream as it was and
// does not disturb the others.
#ifndef BALLAST_ENGINE_BATCH_H_
#define BALLAST_ENGINE_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/stream.h"
#include "model/model.h"

namespace ballast {

class Batch {
 public:
  // `model` and `pool` must outlive the batch.
  Batch(const Model& model, ThreadPool& pool) : model_(model), pool_(pool) {}

  struct Entry {
    // Asked for.
    Stream* stream = nullptr;       // of the batch's model; no stream comes twice in one step
    std::span<const Token> tokens;  // fed by this step; empty: the entry is skipped
    bool logits = false;            // stream->logits() are then those of the last token; else empty
    // Answered.
    Status status{};                   // kInput as Stream::Append
    const float* sink_mass = nullptr;  // of the last token, until the next step: see SinkMass
    int64_t layer_stride = 0;
    // Softmax share of the pinned keys. REQUIRES: status.ok(), a policy other than kRecompute.
    float SinkMass(int layer, int head) const { return sink_mass[layer * layer_stride + head]; }
  };
  // Feeds every entry's tokens. All of an entry's tokens are in one step: memory grows with their total, so
  // callers cut long prompts (StreamOptions::chunk does not apply). kRecompute streams step by themselves.
  void Step(std::span<Entry> entries);

 private:
  const Model& model_;
  ThreadPool& pool_;
  Workspace workspace_;
  std::vector<Segment> segments_;
  std::vector<Entry*> fed_;
  std::vector<int64_t> rows_;  // of the entries that want logits
  std::vector<float> logits_;  // (wanted, vocab)
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_BATCH_H_
