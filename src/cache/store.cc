#include "cache/store.h"

#include <string>
#include <utility>

namespace ballast {
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
    const int64_t bytes = part_bytes(l, pinned);
    Part part{MakeKvBuffer(part_type, KvSide::kKeys, l.kv_heads, l.head_dim, rows, at),
              MakeKvBuffer(part_type, KvSide::kValues, l.kv_heads, l.head_dim, rows, at + bytes)};
    at += 2 * bytes;
    return part;
  };
  for (const LayerShape& l : layers) {
    store.pinned_.push_back(place(l, true));
    store.ring_.push_back(place(l, false));
  }
  return store;
}

}  // namespace ballast
