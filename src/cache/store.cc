#include "cache/store.h"

#include <cstring>
#include <string>
#include <utility>

namespace ballast {
namespace {

int64_t Pad64(int64_t n) { return (n + 63) / 64 * 64; }

}  // namespace

int64_t KvBufferBytes(KvType type, int kv_heads, int head_dim, int64_t rows) {
  const int64_t all = kv_heads * rows;
  return Pad64(all * KvRowBytes(type, head_dim)) +
         (type == KvType::kQ8 ? Pad64(all * static_cast<int64_t>(sizeof(float))) : 0);
}

KvBuffer MakeKvBuffer(KvType type, int kv_heads, int head_dim, int64_t rows, uint8_t* memory) {
  KvBuffer b{type, kv_heads, head_dim, rows, memory, nullptr};
  if (type == KvType::kQ8) {
    b.scale = reinterpret_cast<float*>(memory + Pad64(kv_heads * rows * KvRowBytes(type, head_dim)));
  }
  return b;
}

void CopyRows(const KvBuffer& from, int64_t from_row, const KvBuffer& to, int64_t to_row, int64_t count) {
  if (count <= 0) return;
  BALLAST_CHECK(from.type == to.type && from.kv_heads == to.kv_heads && from.head_dim == to.head_dim);
  BALLAST_CHECK(from_row + count <= from.rows && to_row + count <= to.rows);
  const size_t bytes = static_cast<size_t>(count * KvRowBytes(from.type, from.head_dim));
  for (int h = 0; h < from.kv_heads; ++h) {
    std::memcpy(to.row(h, to_row), from.row(h, from_row), bytes);
    if (from.scale != nullptr) {
      std::memcpy(to.scale_at(h, to_row), from.scale_at(h, from_row),
                  static_cast<size_t>(count) * sizeof(float));
    }
  }
}

Result<KvStore> KvStore::Create(const std::vector<LayerShape>& layers, KvType type) {
  KvStore store;
  store.type_ = type;
  const auto refuse = [](const std::string& found) {
    return Status::Expected(Code::kUsage, "--context", "a KV cache that fits in memory", found,
                            "lower --context");
  };
  const KvType pinned_type = PinnedKvType(type);
  const auto part_bytes = [&](const LayerShape& l, bool pinned) {
    return pinned ? KvBufferBytes(pinned_type, l.kv_heads, l.head_dim, l.pinned)
                  : KvBufferBytes(type, l.kv_heads, l.head_dim, l.window);
  };
  int64_t total = 0;
  for (const LayerShape& l : layers) {
    // Shapes come from a checked model and a checked plan, but their product may still be absurd.
    int64_t worst = 0;
    if (__builtin_mul_overflow(l.pinned + l.window, static_cast<int64_t>(l.kv_heads) * l.head_dim * 8,
                               &worst) ||
        worst > (int64_t{1} << 46)) {
      return refuse(std::to_string(l.pinned + l.window) + " tokens");
    }
    total += 2 * (part_bytes(l, true) + part_bytes(l, false));
  }
  Result<Arena> memory = Arena::Allocate(static_cast<size_t>(total));
  if (!memory.ok()) return refuse(std::to_string(total) + " bytes");
  store.memory_ = std::move(memory).value();
  uint8_t* at = store.memory_.data();
  const auto place = [&](const LayerShape& l, bool pinned) {
    const KvType part_type = pinned ? pinned_type : type;
    const int64_t rows = pinned ? l.pinned : l.window;
    Part part{MakeKvBuffer(part_type, l.kv_heads, l.head_dim, rows, at),
              MakeKvBuffer(part_type, l.kv_heads, l.head_dim, rows, at + part_bytes(l, pinned))};
    at += 2 * part_bytes(l, pinned);
    return part;
  };
  for (const LayerShape& l : layers) {
    store.pinned_.push_back(place(l, true));
    store.ring_.push_back(place(l, false));
  }
  return store;
}

}  // namespace ballast
