// The store: bytes of cached keys and values. It knows no policy and no position, only slots.
//
// Layout of each buffer: (kv_head, slot, row bytes), so that a span of consecutive slots is contiguous for a
// head. Thread safety: none; one stream owns it. Invariants: 1. allocated once; memory a slot never used is
// never touched (lazily mapped). 2. A row's bytes change only through row() pointers and CopyRows.
#ifndef BALLAST_CACHE_STORE_H_
#define BALLAST_CACHE_STORE_H_

#include <cstdint>
#include <vector>

#include "base/mmap.h"
#include "base/status.h"
#include "tensor/kv_span.h"

namespace ballast {

// Rows of one tensor (keys or values) of one layer; memory belongs to somebody else.
struct KvBuffer {
  KvType type = KvType::kF32;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t rows = 0;         // per head
  uint8_t* data = nullptr;  // (kv_head, row, KvRowBytes)
  float* scale = nullptr;   // (kv_head, row), kQ8 only

  uint8_t* row(int head, int64_t r) const { return data + (head * rows + r) * KvRowBytes(type, head_dim); }
  float* scale_at(int head, int64_t r) const { return scale == nullptr ? nullptr : scale + head * rows + r; }
  // The rows from `first` on, as kernels see them.
  KvRows View(int64_t first) const { return {row(0, first), scale_at(0, first), rows}; }
};

// Bytes a KvBuffer needs, padded so that buffers placed one after another stay aligned to 64.
int64_t KvBufferBytes(KvType type, int kv_heads, int head_dim, int64_t rows);
// Points a buffer at KvBufferBytes of memory.
KvBuffer MakeKvBuffer(KvType type, int kv_heads, int head_dim, int64_t rows, uint8_t* memory);
// Copies `count` rows of every head. REQUIRES: same type, heads and head_dim.
void CopyRows(const KvBuffer& from, int64_t from_row, const KvBuffer& to, int64_t to_row, int64_t count);

class KvStore {
 public:
  struct LayerShape {
    int kv_heads = 0;
    int head_dim = 0;
    int64_t pinned = 0;  // rows of the pinned buffers
    int64_t window = 0;  // rows of the ring buffers
  };
  // Keys and values of one part of a layer.
  struct Part {
    KvBuffer k, v;
  };
  static Result<KvStore> Create(const std::vector<LayerShape>& layers, KvType type);

  const Part& pinned(int layer) const { return pinned_[layer]; }
  const Part& ring(int layer) const { return ring_[layer]; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }
  KvType type() const { return type_; }  // of the ring

 private:
  KvType type_ = KvType::kF32;
  Arena memory_;
  std::vector<Part> pinned_;
  std::vector<Part> ring_;
};

}  // namespace ballast

#endif  // BALLAST_CACHE_STORE_H_
