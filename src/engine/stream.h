// Stream: one conversation or text that never ends, on a cache that never grows.
//
// Purpose: feed tokens, get logits, know what is still visible. Owns all its mutable state; the model is
// shared and const. Thread safety: one thread at a time per stream; streams that share a ThreadPool take
// turns. Invariants: 1. Feeding n tokens in one Append equals feeding them one by one (to float rounding). 2.
// Memory is allocated at Create (and with the first step) and does not grow with the stream. 3. A refused
// Append leaves the stream as it was; an interrupted one has fed exactly what position() says.
#ifndef BALLAST_ENGINE_STREAM_H_
#define BALLAST_ENGINE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "cache/cache.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ballast {

struct StreamOptions {
  Policy policy = Policy::kSinks;
  int64_t context = 0;  // capacity in tokens, pinned + window; 0: min(8192, trained length)
  int64_t pinned = 4;   // tokens kept for ever: attention sinks, or a whole system prompt
  KvType kv = KvType::kQ8;
  int64_t chunk = 256;  // most tokens per forward step
};

// What an Append that was stopped says, and whoever feeds a text of `total` tokens piece by piece.
Status InterruptedAfter(int64_t done, int64_t total);

class Stream {
 public:
  // `model` and `pool` must outlive the stream. kUsage for options that make no sense.
  static Result<std::unique_ptr<Stream>> Create(const Model& model, ThreadPool& pool,
                                                const StreamOptions& options);

  // One token's outcome, valid during the callback only.
  struct Row {
    int64_t position = 0;              // stream position of the token
    std::span<const float> logits;     // (vocab); empty unless asked for, or the last row
    const float* sink_mass = nullptr;  // (layer, head): sink_mass[layer * layer_stride + head]
    int64_t layer_stride = 0;
    float SinkMass(int layer, int head) const { return sink_mass[layer * layer_stride + head]; }
  };
  struct AppendOptions {
    bool all_logits = false;                    // logits for every row, not only the last
    std::function<void(const Row&)> on_row;     // every token, in order
    std::function<bool(int64_t done)> on_step;  // after each step, tokens fed so far; false interrupts
  };
  // Feeds tokens. kInput for ids outside the vocabulary or a dense cache that is full (nothing is fed);
  // kInterrupted when on_step said so. An empty span is a no-op.
  Status Append(std::span<const Token> tokens, const AppendOptions& options);
  Status Append(std::span<const Token> tokens) { return Append(tokens, AppendOptions{}); }

  // Logits after the newest token. (vocab); empty before the first Append and after an interrupted one.
  std::span<const float> logits() const { return logits_; }

  int64_t position() const;  // tokens ever fed
  int64_t start() const;     // first window position still visible
  int64_t pinned() const { return plan_.layout.pinned; }
  int64_t context() const { return plan_.layout.capacity(); }
  int64_t live() const;  // tokens in the cache now
  bool full() const;     // a dense cache without room: no token can follow
  int64_t evicted() const { return position() - live(); }
  Policy policy() const { return plan_.policy; }
  int64_t kv_bytes() const { return cache_.bytes(); }
  const KvCache& cache() const { return cache_; }
  const Model& model() const { return model_; }

  // Forgets every unpinned token before stream position x: whole turns. No byte moves. Not for kRecompute
  // (kUsage).
  Status DropBefore(int64_t x);
  // Starts again, empty, with the same memory.
  void Reset();
  // Starts again, empty, under kSinks with the same capacity and `pinned` tokens to keep, whatever the policy
  // was. kUsage when so many leave no window, kInternal when there is no memory; nothing is changed then.
  Status Repin(int64_t pinned);
  // Goes on at stream position `position` as if everything between the pinned tokens and it had come and
  // gone. kInput unless all pinned tokens and nothing else were fed, and `position` is not before them.
  Status SkipTo(int64_t position);

  // Goes back to `position`, when the floor was `floor`, if that is exact: every token visible there still
  // has its rows. kInput otherwise, with nothing changed. logits() are empty afterwards, unless nothing was
  // taken back.
  bool CanRollBack(int64_t position, int64_t floor) const;
  Status RollBack(int64_t position, int64_t floor);
  int64_t floor() const {
    return cache_.floor();
  }  // everything unpinned before it was dropped as whole turns

  // A stream's whole state, to be taken over by another one of the same model and options, which then goes on
  // bit for bit as this one would have.
  struct State {
    KvCache::State cache;
    int64_t fed = 0;             // kRecompute: tokens ever fed
    std::vector<Token> history;  // kRecompute: the newest tokens, at most context()
    std::vector<float> logits;   // (vocab) or empty
  };
  State state() const { return {cache_.state(), fed_, history_, logits_}; }
  // Takes over a state and the rows that the other's cache().ExportRows wrote. kInput, with nothing changed,
  // when it cannot be one of this stream's configuration.
  Status Import(State state, const uint8_t* rows);

  // For tests: after exactly the pinned tokens were fed, continues as if `skip` further tokens had come and
  // gone.
  void SkipForTesting(int64_t skip) { cache_.JumpTo(cache_.position() + skip); }

 private:
  friend class Batch;  // feeds several streams in one step
  Stream(const Model& model, ThreadPool& pool) : model_(model), pool_(pool) {}
  Status CheckAppend(std::span<const Token> tokens) const;
  void Step(std::span<const Token> tokens, const AppendOptions& options, bool last);
  Status Interrupted(int64_t done, int64_t total);
  Status AppendRecompute(std::span<const Token> tokens, const AppendOptions& options);
  void Report(int64_t first_position, int64_t first_row, int64_t rows, bool last,
              const AppendOptions& options);

  const Model& model_;
  ThreadPool& pool_;
  CachePlan plan_;
  int64_t chunk_ = 256;
  KvCache cache_;
  Workspace workspace_;              // empty until the stream steps by itself
  std::vector<float> logits_;        // (vocab)
  std::vector<float> logits_block_;  // (rows, vocab), a few rows at a time
  std::vector<Token> history_;       // kRecompute: the last `context` tokens
  int64_t fed_ = 0;                  // kRecompute: tokens ever fed
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_STREAM_H_
