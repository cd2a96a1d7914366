// The store: bytes of cached keys and values. It knows no policy and no position, only slots.
//
// Layout of each buffer: see tensor/kv_span.h; consecutive slots of a head are neighbours. Thread safety:
// none; one stream owns it. Invariants: 1. allocated once; memory near no used slot is never touched (lazily
// mapped).
// 2. A row's bytes change only through KvBuffer::Put and CopyRows.
#ifndef BALLAST_CACHE_STORE_H_
#define BALLAST_CACHE_STORE_H_

#include <cstdint>
#include <vector>

#include "base/mmap.h"
#include "base/status.h"
#include "tensor/kv_buffer.h"

namespace ballast {

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
