// Views of cached keys and values that attention kernels read. The cache makes them; kernels never learn a
// policy, a ring or a modulo.
#ifndef BALLAST_TENSOR_KV_SPAN_H_
#define BALLAST_TENSOR_KV_SPAN_H_

#include <cstdint>
#include <string_view>

namespace ballast {

// How a cached row (one token, one KV head, head_dim values) is stored.
//   kF32: float[head_dim]; kF16: IEEE binary16[head_dim];
//   kQ8: int8[head_dim] with one float scale per row, value = scale * int8, scale = max|x| / 127.
enum class KvType : uint8_t { kF32, kF16, kQ8 };

constexpr int64_t KvRowBytes(KvType type, int64_t head_dim) {
  return type == KvType::kF32 ? head_dim * 4 : type == KvType::kF16 ? head_dim * 2 : head_dim;
}
constexpr std::string_view KvTypeName(KvType type) {
  return type == KvType::kF32 ? "f32" : type == KvType::kF16 ? "f16" : "q8";
}

// How the pinned rows of a cache of `type` are stored. Every query of a stream reads them for ever, and the
// attention sinks among them carry most of the attention: rounding token 0 to q8 once shows in every later
// softmax (on SmolLM2 it is most of what q8 changes in the sink map), so the few pinned rows keep float16.
constexpr KvType PinnedKvType(KvType type) { return type == KvType::kQ8 ? KvType::kF16 : type; }

// Rows of every KV head: (kv_head, row, head_dim). Row r of head h starts at
// data + (h * head_stride + r) * KvRowBytes; its scale (kQ8 only, else null) is scale[h * head_stride + r].
struct KvRows {
  const uint8_t* data = nullptr;
  const float* scale = nullptr;
  int64_t head_stride = 0;  // in rows
};

// `count` consecutive stream positions, first_position first.
struct KvSpan {
  KvRows k;
  KvRows v;
  int64_t count = 0;
  int64_t first_position = 0;
  bool pinned = false;    // pinned rows are scored with the query rotated to its in-cache position
  bool counted = pinned;  // their softmax share is the sink mass
};

}  // namespace ballast

#endif  // BALLAST_TENSOR_KV_SPAN_H_
