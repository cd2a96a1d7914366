// KvCache: one stream's keys and values, and where the stream stands. Joins the law (layout.h) with the bytes
// (store.h).
//
// Use, per step of n tokens: plan (const) -> for each layer, write the new rows and read spans -> Advance(n),
// the only call that moves the stream. A step of several tokens keeps its new window rows beside the ring
// (the chunk) until every query of the step has read the old ones; then Commit copies them in. Thread safety:
// none; one stream owns it.
#ifndef BALLAST_CACHE_CACHE_H_
#define BALLAST_CACHE_CACHE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/policy.h"
#include "cache/store.h"

namespace ballast {

class KvCache {
 public:
  struct LayerShape {
    int kv_heads = 0;
    int head_dim = 0;
    int64_t local_window = 0;  // > 0: a layer trained with this window: its own ring, nothing pinned
  };
  static Result<KvCache> Create(const CachePlan& plan, const std::vector<LayerShape>& layers, KvType type);

  const CachePlan& plan() const { return plan_; }
  const Layout& layout(int layer) const { return layouts_[layer]; }
  KvType type() const { return store_.type(); }
  int64_t bytes() const { return store_.bytes(); }

  int64_t position() const { return position_; }  // stream position of the next token
  int64_t floor() const { return floor_; }        // positions in [pinned, floor) were dropped explicitly
  int64_t start() const;                          // first window position the newest token sees
  int64_t live() const;                           // tokens in the cache
  // First window position visible from t in `layer`.
  int64_t Start(int layer, int64_t t) const { return layouts_[layer].Start(t, floor_); }

  // Room for `n` more tokens? kInput for a cache that may not evict.
  Status CheckRoom(int64_t n) const;

  // Where the rows of a step go: positions [position(), position() + n).
  // True when position t is written straight to its slot: pinned tokens, and steps of one token (the slot it
  // takes is the one its own law has just evicted). Otherwise it waits in the chunk.
  bool WritesInPlace(int layer, int64_t t, int64_t n) const { return n == 1 || t < layouts_[layer].pinned; }

  // Spans of `layer` for a step of n tokens, in stream order: pinned, ring (at most two), chunk; watched
  // tokens that are not pinned are cut off into spans of their own while they are visible. `chunk_k/v` hold
  // the rows [max(position(), pinned), position() + n) and may be empty when everything was written in place.
  struct Spans {
    std::array<KvSpan, 6> data;
    int count = 0;
    std::span<const KvSpan> view() const { return {data.data(), static_cast<size_t>(count)}; }
  };
  Spans Visible(int layer, int64_t n, const KvBuffer& chunk_k, const KvBuffer& chunk_v) const;

  // Where stream position t of `layer` lives: a row of its part's buffers.
  struct Place {
    const KvStore::Part* part;
    int64_t row;
  };
  Place PlaceOf(int layer, int64_t t) const {
    const Layout& law = layouts_[layer];
    return t < law.pinned ? Place{&store_.pinned(layer), t}
                          : Place{&store_.ring(layer), law.Slot(t) - law.pinned};
  }

  // Copies the chunk's rows into the ring (only those that will still be live), after every query has read.
  void Commit(int layer, int64_t n, const KvBuffer& chunk_k, const KvBuffer& chunk_v);
  // The stream moves on by n tokens.
  void Advance(int64_t n) { position_ += n; }

  // Forgets every window token before stream position x (whole turns). Pinned tokens stay. No byte moves.
  void DropBefore(int64_t x);
  // Forgets everything.
  void Reset();

  // Can the stream go back to `position`, with the floor it had then, exactly? Only if every token that the
  // law made visible there still has its rows.
  bool CanRollBack(int64_t position, int64_t floor) const;
  // Takes back the newest tokens. No byte moves. REQUIRES: CanRollBack.
  void RollBack(int64_t position, int64_t floor);

  // All that a cache is besides its configuration and its rows.
  struct State {
    int64_t position = 0, floor = 0;
    std::vector<int64_t> lost;  // (layer): see lost_
  };
  State state() const { return {position_, floor_, lost_}; }
  // Bytes of every row there is room for; the size of an export, whatever the stream's position.
  int64_t row_bytes() const;
  // Writes the rows of all tokens that can still be rolled back to, each to the place of its slot. The rest
  // of `out` is left alone: hand in zeroed memory, and an export depends on nothing else. out: for each layer
  // (pinned k, pinned v, ring k, ring v), each (kv_head, slot, row) then (kv_head, slot) scales.
  void ExportRows(uint8_t* out) const;
  // Takes over another cache's state and rows. kInput when the state cannot be one of this configuration.
  Status Import(const State& state, const uint8_t* rows);
  // Continues at stream position `position` as if everything between the pinned tokens and it had been fed
  // and dropped. REQUIRES: position() >= pinned, position > position().
  void JumpTo(int64_t position);

 private:
  CachePlan plan_;
  std::vector<Layout> layouts_;
  std::vector<int64_t> watched_;  // (layer): see CachePlan; none in layers with a window of their own
  KvStore store_;
  // First window position of `layer` whose rows are still what was written for it.
  int64_t FirstIntact(int layer) const;
  template <typename Visit>
  void ForEachRow(const Visit& visit) const;

  int64_t position_ = 0;
  int64_t floor_ = 0;
  // (layer): window rows before this are gone though their slots' next owners have not come yet: they were
  // overwritten before a RollBack, or did not come with an Import.
  std::vector<int64_t> lost_;
};

}  // namespace ballast

#endif  // BALLAST_CACHE_CACHE_H_
