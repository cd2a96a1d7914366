// Attention over spans of cached keys and values, with the softmax share of the pinned keys (the sink mass).
//
// Purpose: one kernel for decode and prefill, for every policy: what a query may see is said by spans and by
// two integers per query. Softmax parts are computed per span and merged (online softmax), so the pinned
// keys' share falls out of the merge. Thread safety: reentrant; scratch belongs to the caller.
#ifndef BALLAST_KERNELS_ATTENTION_H_
#define BALLAST_KERNELS_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/threads.h"
#include "kernels/matmul.h"
#include "tensor/kv_buffer.h"
#include "tensor/kv_span.h"

namespace ballast {

struct AttentionShape {
  int heads = 0;                    // query heads; a multiple of kv_heads (grouped-query attention)
  int kv_heads = 0;                 // query head h reads KV head h / (heads / kv_heads)
  int head_dim = 0;                 // of keys and values alike; a multiple of 8
  float scale = 0;                  // scores = scale * q.k, usually 1 / sqrt(head_dim)
  KvType kv = KvType::kF32;         // of the window spans
  Compute compute = Compute::kF32;  // kFast may quantise queries for integer dot products with kQ8 keys
  KvType pinned_kv = kv;            // of the pinned spans, which may be kept finer
  float softcap = 0;                // > 0: scores become softcap * tanh(score / softcap), arXiv 2408.00118
  const float* slopes = nullptr;    // (heads): ALiBi, arXiv 2108.12409: score -= slope * distance; null: none
};

// `rows` queries of one stream, in stream order.
struct AttentionQueries {
  int64_t rows = 0;
  const float* window = nullptr;      // (row, head, head_dim): rotated at the stream position
  const float* pinned = nullptr;      // (row, head, head_dim): rotated at the in-cache position
  const int64_t* position = nullptr;  // (row): stream position; sees nothing later
  const int64_t* start = nullptr;     // (row): first stream position visible among window spans
  const int64_t* in_cache = nullptr;  // (row): in-cache position: distances to pinned keys; for slopes only
};

// One stream's attention in one layer. Writes out: (row, head, head_dim), and sink_mass: (row, head), the
// softmax share of the counted spans, which are the pinned ones unless said otherwise (0 without any).
struct AttentionJob {
  AttentionShape shape;
  AttentionQueries q;
  std::span<const KvSpan> spans;  // in increasing first_position
  float* out = nullptr;
  float* sink_mass = nullptr;
};

// Memory of a call, reused by the next: it grows to the largest seen.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  AttentionScratch(AttentionScratch&&) noexcept;
  AttentionScratch& operator=(AttentionScratch&&) noexcept;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// A query sees row p of a pinned span iff p <= position, and of a window span iff start <= p <= position. A
// query that sees nothing gets zeros (never NaN). Rows are independent: a row's result depends on its
// neighbours in the job only up to rounding, for the same spans, and not on the other jobs. All pinned spans
// use shape.pinned_kv, all others shape.kv.
void Attention(std::span<const AttentionJob> jobs, AttentionScratch& scratch, ThreadPool& pool);

// Encodes `rows` rows of head_dim floats (contiguous) as cached rows: data (rows * KvRowBytes), scale (rows;
// kQ8 only), elements in order. The definition of the store's quantisation; the cache's writes go through it.
void EncodeKvRows(KvType type, const float* x, int64_t rows, int head_dim, uint8_t* data, float* scale);
// The same for one row, to its place. REQUIRES: head_dim <= kKvMaxHeadDim.
void EncodeKvRow(const KvBuffer& to, int head, int64_t row, const float* x);

}  // namespace ballast

#endif  // BALLAST_KERNELS_ATTENTION_H_
