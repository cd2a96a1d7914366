#include "tensor/kv_buffer.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace ballast {
namespace {

constexpr int64_t Pad64(int64_t n) { return (n + 63) / 64 * 64; }

constexpr int64_t StoredRows(KvType type, int64_t rows) {
  return type == KvType::kQ8 ? (rows + kKvTile - 1) / kKvTile * kKvTile : rows;
}

constexpr int64_t DataBytes(KvType type, int kv_heads, int head_dim, int64_t rows) {
  return Pad64(kv_heads * StoredRows(type, rows) * KvStoredRowBytes(type, head_dim));
}

constexpr uint32_t kOffset = 0x80808080;  // int8 to int8 + 128 and back, four at a time
constexpr int64_t PieceBytes(KvSide side) { return side == KvSide::kKeys ? 4 : 1; }

// A row's pieces: of keys four bytes, of values one, `step` bytes from one another.
struct Pieces {
  uint8_t* at;
  int64_t step;
};

Pieces TilePieces(const KvBuffer& b, int head, int64_t row) {
  uint8_t* rows = b.data + head * b.stride * KvStoredRowBytes(b.type, b.head_dim);
  const int64_t first = KvTileOffset(b.side, b.head_dim, row, 0);
  return {rows + first, KvTileOffset(b.side, b.head_dim, row, PieceBytes(b.side)) - first};
}

// Copies a row piece by piece; `flip` changes bits on the way.
void CopyPieces(KvSide side, int64_t head_dim, const uint8_t* from, int64_t from_step, uint8_t* to,
                int64_t to_step, uint32_t flip) {
  if (side == KvSide::kValues) {
    for (int64_t i = 0; i < head_dim; ++i) to[i * to_step] = from[i * from_step];
    return;
  }
  for (int64_t i = 0; i < head_dim / 4; ++i) {
    uint32_t four;
    std::memcpy(&four, from + i * from_step, sizeof(four));
    four ^= flip;
    std::memcpy(to + i * to_step, &four, sizeof(four));
  }
}

uint8_t* PlainRow(const KvBuffer& b, int head, int64_t row) {
  return b.data + (head * b.stride + row) * KvRowBytes(b.type, b.head_dim);
}

}  // namespace

void KvBuffer::Put(int head, int64_t row, const void* bytes, float row_scale) const {
  if (type != KvType::kQ8) {
    std::memcpy(PlainRow(*this, head, row), bytes, static_cast<size_t>(KvRowBytes(type, head_dim)));
    return;
  }
  const Pieces to = TilePieces(*this, head, row);
  CopyPieces(side, head_dim, static_cast<const uint8_t*>(bytes), PieceBytes(side), to.at, to.step, kOffset);
  scale[head * stride + row] = row_scale;
}

void KvBuffer::Get(int head, int64_t row, void* bytes, float* row_scale) const {
  if (type != KvType::kQ8) {
    std::memcpy(bytes, PlainRow(*this, head, row), static_cast<size_t>(KvRowBytes(type, head_dim)));
    return;
  }
  const Pieces from = TilePieces(*this, head, row);
  CopyPieces(side, head_dim, from.at, from.step, static_cast<uint8_t*>(bytes), PieceBytes(side), kOffset);
  *row_scale = scale[head * stride + row];
}

int64_t KvBufferBytes(KvType type, int kv_heads, int head_dim, int64_t rows) {
  const int64_t scales = kv_heads * StoredRows(type, rows) * static_cast<int64_t>(sizeof(float));
  return DataBytes(type, kv_heads, head_dim, rows) + (type == KvType::kQ8 ? Pad64(scales) : 0);
}

KvBuffer MakeKvBuffer(KvType type, KvSide side, int kv_heads, int head_dim, int64_t rows, uint8_t* memory) {
  KvBuffer b{type, side, kv_heads, head_dim, rows, StoredRows(type, rows), memory, nullptr};
  if (type == KvType::kQ8) {
    b.scale = reinterpret_cast<float*>(memory + DataBytes(type, kv_heads, head_dim, rows));
  }
  return b;
}

void CopyRows(const KvBuffer& from, int64_t from_row, const KvBuffer& to, int64_t to_row, int64_t count) {
  if (count <= 0) return;
  BALLAST_CHECK(from.type == to.type && from.side == to.side && from.kv_heads == to.kv_heads &&
                from.head_dim == to.head_dim);
  BALLAST_CHECK(from_row + count <= from.rows && to_row + count <= to.rows);
  for (int h = 0; h < from.kv_heads; ++h) {
    if (from.type != KvType::kQ8) {
      std::memcpy(PlainRow(to, h, to_row), PlainRow(from, h, from_row),
                  static_cast<size_t>(count * KvRowBytes(from.type, from.head_dim)));
      continue;
    }
    for (int64_t r = 0; r < count; ++r) {
      const Pieces a = TilePieces(from, h, from_row + r), b = TilePieces(to, h, to_row + r);
      CopyPieces(from.side, from.head_dim, a.at, a.step, b.at, b.step, 0);
    }
    std::copy_n(from.scale + h * from.stride + from_row, count, to.scale + h * to.stride + to_row);
  }
}

}  // namespace ballast
