// Views of cached keys and values that attention kernels read. The cache makes them; kernels never learn a
// policy, a ring or a modulo.
#ifndef BALLAST_TENSOR_KV_SPAN_H_
#define BALLAST_TENSOR_KV_SPAN_H_

#include <cstdint>
#include <string_view>

namespace ballast {

// What a cached row (one token, one KV head, head_dim values) consists of.
//   kF32: float[head_dim]; kF16: IEEE binary16[head_dim];
//   kQ8: int8[head_dim] with one float scale per row, value = scale * int8, scale = max|x| / 127.
// Rows of kF32 and kF16 lie one after another. Rows of kQ8 lie in tiles of 64, as the dot products of bytes
// want them (four at a time), so that no step ever turns them around:
//   keys:   (head_dim / 4, 64 rows, 4 elements), each element as the unsigned byte int8 + 128
//   values: (64 / 4, KvStoredRowBytes elements, 4 rows)
// A dot product of bytes wants one side unsigned: for keys the cache, for values the softmax weights.
enum class KvType : uint8_t { kF32, kF16, kQ8 };
enum class KvSide : uint8_t { kKeys, kValues };
constexpr int64_t kKvTile = 64;
constexpr int kKvMaxHeadDim = 512;

constexpr int64_t KvRowBytes(KvType type, int64_t head_dim) {
  return type == KvType::kF32 ? head_dim * 4 : type == KvType::kF16 ? head_dim * 2 : head_dim;
}
// Bytes of memory per row: a row of q8 values ends with a whole vector of 16.
constexpr int64_t KvStoredRowBytes(KvType type, int64_t head_dim) {
  return type == KvType::kQ8 ? (head_dim + 15) / 16 * 16 : KvRowBytes(type, head_dim);
}
// Where element i of row `row` of a head's q8 rows lies, from their beginning.
constexpr int64_t KvTileOffset(KvSide side, int64_t head_dim, int64_t row, int64_t i) {
  const int64_t row_bytes = KvStoredRowBytes(KvType::kQ8, head_dim), k = row % kKvTile;
  const int64_t tile = (row - k) * row_bytes;
  return side == KvSide::kKeys ? tile + i / 4 * (4 * kKvTile) + k * 4 + i % 4
                               : tile + k / 4 * (4 * row_bytes) + i * 4 + k % 4;
}
constexpr std::string_view KvTypeName(KvType type) {
  return type == KvType::kF32 ? "f32" : type == KvType::kF16 ? "f16" : "q8";
}

// How the pinned rows of a cache of `type` are stored. Every query of a stream reads them for ever, and the
// attention sinks among them carry most of the attention: rounding token 0 to q8 once shows in every later
// softmax (on SmolLM2 it is most of what q8 changes in the sink map), so the few pinned rows keep float16.
constexpr KvType PinnedKvType(KvType type) { return type == KvType::kQ8 ? KvType::kF16 : type; }

// Rows of every KV head. Row r of head h is row h * head_stride + first + r of the memory; its scale (kQ8
// only, else null) is scale[h * head_stride + first + r]. REQUIRES for kQ8: head_stride is a multiple of
// kKvTile.
struct KvRows {
  const uint8_t* data = nullptr;
  const float* scale = nullptr;
  int64_t head_stride = 0;  // in rows
  int64_t first = 0;
};

// `count` consecutive stream positions, first_position first.
struct KvSpan {
  KvRows k;
  KvRows v;  // begins at the same row as k
  int64_t count = 0;
  int64_t first_position = 0;
  bool pinned = false;    // pinned rows are scored with the query rotated to its in-cache position
  bool counted = pinned;  // their softmax share is the sink mass
};

}  // namespace ballast

#endif  // BALLAST_TENSOR_KV_SPAN_H_
