// One piece of attention work, and the two kernels that do it. Private to attention*.cc.
//
// The work is cut by KV head, by rows of queries and, when that gives too few pieces, by ranges of keys. Keys
// come in blocks, each what a span has of a tile of 64 rows. A kernel walks its blocks and keeps for every
// query the running maximum score m, the sum of exp(score - m), the part of that sum that is pinned, and the
// weighted values (online softmax, arXiv 1805.02867); pieces of one query are merged by the same rule, in key
// order. The cut depends on the shape of the call only, never on the number of threads.
#ifndef BALLAST_KERNELS_ATTENTION_ITEM_H_
#define BALLAST_KERNELS_ATTENTION_ITEM_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/attention.h"

namespace ballast::attention {

inline constexpr int kBlockKeys = kKvTile;
inline constexpr int kMaxTile = 6;           // queries that share the registers of a kernel
inline constexpr int kMaxIntegerDim = 256;   // largest head_dim whose integer sums stay inside int32
inline constexpr float kScoreLimit = 1e30f;  // scores are clamped to it, so that differences stay finite

// Values are accumulated in rows of whole 64s.
constexpr int64_t PaddedDim(int64_t head_dim) { return (head_dim + 63) / 64 * 64; }

// Keys [lo, hi) of the tile whose key 0 is row `begin` of the span; before the span when begin < 0.
struct KeyBlock {
  int64_t span = 0;
  int64_t begin = 0;
  int lo = 0;
  int hi = 0;
};

// Query j of an item is head j % group of row row_begin + j / group.
struct State {
  float* max = nullptr;     // (query)
  float* sum = nullptr;     // (query)
  float* pinned = nullptr;  // (query)
  float* acc = nullptr;     // (query, PaddedDim)
};

struct Item {
  const AttentionShape* shape = nullptr;
  const AttentionQueries* q = nullptr;
  std::span<const KvSpan> spans;
  KvType kv = KvType::kF32;  // of all its blocks
  bool integers = false;     // done by RunIntegerItem
  int kv_head = 0;
  int group = 1;  // query heads per KV head
  int64_t row_begin = 0;
  int64_t queries = 0;  // rows * group
  std::span<const KeyBlock> blocks;
  State state;
  float* work = nullptr;  // WorkFloats(), aligned to 64 bytes

  const float* Query(bool pinned, int64_t j) const {
    const int64_t head = (row_begin + j / group) * shape->heads + int64_t{kv_head} * group + j % group;
    return (pinned ? q->pinned : q->window) + head * shape->head_dim;
  }
  bool plain() const { return shape->softcap == 0 && shape->slopes == nullptr; }
  // ALiBi of query j: its slope, and its distance to key 0 of `block`, in the cache.
  float Slope(int64_t j) const {
    return shape->slopes == nullptr ? 0.0f : shape->slopes[int64_t{kv_head} * group + j % group];
  }
  float DistanceToFirst(const KeyBlock& block, int64_t j) const {
    if (shape->slopes == nullptr) return 0;
    const KvSpan& span = spans[block.span];
    const int64_t row = row_begin + j / group;
    const int64_t at = span.pinned ? q->in_cache[row] : q->position[row];
    return static_cast<float>(at - span.first_position - block.begin);
  }
  // The keys of `block` that the queries of `row` see: [lo, hi), empty when lo >= hi.
  void Visible(const KeyBlock& block, int64_t row, int* lo, int* hi) const {
    const KvSpan& span = spans[block.span];
    const int64_t first = span.first_position + block.begin;
    const auto in_block = [&](int64_t key) {
      return static_cast<int>(std::clamp<int64_t>(key, block.lo, block.hi));
    };
    *hi = in_block(q->position[row] - first + 1);
    *lo = span.pinned ? block.lo : in_block(q->start[row] - first);
  }
  // What every row sees: keys from `start` (of windows) to `position`.
  struct Seen {
    int64_t start = std::numeric_limits<int64_t>::min();
    int64_t position = std::numeric_limits<int64_t>::max();
  };
  Seen SeenByAll() const {
    Seen seen;
    for (int64_t row = row_begin; row < row_begin + queries / group; ++row) {
      seen.start = std::max(seen.start, q->start[row]);
      seen.position = std::min(seen.position, q->position[row]);
    }
    return seen;
  }
  // Whether every row sees all of `block`; the rule of Visible.
  bool AllSee(const KeyBlock& block, const Seen& seen) const {
    const KvSpan& span = spans[block.span];
    const int64_t first = span.first_position + block.begin;
    return seen.position - first + 1 >= block.hi && (span.pinned || seen.start - first <= block.lo);
  }
};

// Row `row` of a span, and the rows after it; of kQ8, the tile that begins there. May lie before the span.
inline const uint8_t* RowOf(const Item& item, const KvRows& rows, int64_t row) {
  return rows.data + (item.kv_head * rows.head_stride + rows.first + row) *
                         KvStoredRowBytes(item.kv, item.shape->head_dim);
}
inline const float* ScaleOf(const Item& item, const KvRows& rows, int64_t row) {
  return rows.scale + item.kv_head * rows.head_stride + rows.first + row;
}

// Floats of scratch that either kernel needs for an item of `queries` queries: packed keys and values,
// scores, and queries as integers.
constexpr int64_t WorkFloats(int64_t queries, int64_t head_dim) {
  const int64_t dim = PaddedDim(head_dim);
  return 2 * dim * kBlockKeys + (3 * kMaxTile + 4) * kBlockKeys + queries * (dim + 2) + 128;
}

// True when this CPU has the integer kernel and it can do keys of type `kv` in this shape.
bool UsesIntegers(const AttentionShape& shape, KvType kv);
// Both fill item.state from scratch.
void RunFloatItem(const Item& item);
void RunIntegerItem(const Item& item);

}  // namespace ballast::attention

#endif  // BALLAST_KERNELS_ATTENTION_ITEM_H_
