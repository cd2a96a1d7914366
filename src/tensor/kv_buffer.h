// KvBuffer: memory of cached keys or values, and where each row of it lies (kv_span.h has the layout).
// Thread safety: different rows may be written at once, except that the rows of one kQ8 tile of values share
// words of four bytes, each row its own byte. No function allocates.
#ifndef BALLAST_TENSOR_KV_BUFFER_H_
#define BALLAST_TENSOR_KV_BUFFER_H_

#include <cstdint>

#include "tensor/kv_span.h"

namespace ballast {

// Rows of one tensor (keys or values) of one layer; memory belongs to somebody else.
struct KvBuffer {
  KvType type = KvType::kF32;
  KvSide side = KvSide::kKeys;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t rows = 0;         // per head
  int64_t stride = 0;       // rows of memory per head
  uint8_t* data = nullptr;  // (kv_head, stride) rows
  float* scale = nullptr;   // (kv_head, stride), kQ8 only

  // Stores a row: bytes (KvRowBytes), in the order of its elements; scale: kQ8 only.
  void Put(int head, int64_t row, const void* bytes, float row_scale) const;
  // Reads it back.
  void Get(int head, int64_t row, void* bytes, float* row_scale) const;
  // The rows from `first` on, as kernels see them.
  KvRows View(int64_t first) const { return {data, scale, stride, first}; }
};

// Bytes a KvBuffer needs, padded so that buffers placed one after another stay aligned to 64.
int64_t KvBufferBytes(KvType type, int kv_heads, int head_dim, int64_t rows);
// Points a buffer at KvBufferBytes of memory, aligned to 64.
KvBuffer MakeKvBuffer(KvType type, KvSide side, int kv_heads, int head_dim, int64_t rows, uint8_t* memory);
// Copies `count` rows of every head. REQUIRES: same type, side, heads and head_dim.
void CopyRows(const KvBuffer& from, int64_t from_row, const KvBuffer& to, int64_t to_row, int64_t count);

}  // namespace ballast

#endif  // BALLAST_TENSOR_KV_BUFFER_H_
