// The law of the cache, as pure integers. See docs/law.md for the maths and the pictures.
//
// A stream's tokens have stream positions t = 0, 1, 2, ... The first `pinned` of them stay for ever; the rest
// pass through a ring of `window` slots. Nothing is ever moved: a position has one slot for as long as it
// lives. Invariants (tests/cache/layout_test.cc, against a std::deque):
//   1. Slot() maps the live positions of any moment to distinct slots in [0, capacity()).
//   2. InCache() of the live positions, pinned first, is 0, 1, 2, ... without a gap.
//   3. A position's slot is next written exactly `window` positions later, when the law has evicted it.
#ifndef BALLAST_CACHE_LAYOUT_H_
#define BALLAST_CACHE_LAYOUT_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace ballast {

struct Layout {
  int64_t pinned = 0;  // P >= 0
  int64_t window = 1;  // W >= 1

  constexpr int64_t capacity() const { return pinned + window; }

  // Where stream position t lives.
  constexpr int64_t Slot(int64_t t) const { return t < pinned ? t : pinned + (t - pinned) % window; }

  // First window position visible from t, itself included, under one-token eviction. `floor`: everything
  // between the pinned tokens and it was dropped explicitly.
  constexpr int64_t Start(int64_t t, int64_t floor = 0) const {
    return std::max({pinned, t - window + 1, floor});
  }

  // In-cache position of stream position t when the window starts at `start`.
  constexpr int64_t InCache(int64_t t, int64_t start) const { return t < pinned ? t : pinned + (t - start); }

  // `count` consecutive positions in consecutive slots.
  struct Run {
    int64_t slot = 0;
    int64_t count = 0;
    int64_t first_position = 0;
  };
  // The window positions [from, to) as at most two runs in stream order; empty runs have count 0.
  // REQUIRES: pinned <= from, to - from <= window.
  constexpr std::array<Run, 2> Runs(int64_t from, int64_t to) const {
    if (from >= to) return {};
    const int64_t slot = Slot(from);
    const int64_t first = std::min(to - from, capacity() - slot);
    return {Run{slot, first, from}, Run{pinned, to - from - first, from + first}};
  }
};

}  // namespace ballast

#endif  // BALLAST_CACHE_LAYOUT_H_
