#include "cache/cache.h"

#include <algorithm>
#include <cstring>

namespace ballast {

Result<KvCache> KvCache::Create(const CachePlan& plan, const std::vector<LayerShape>& layers, KvType type) {
  KvCache cache;
  cache.plan_ = plan;
  std::vector<KvStore::LayerShape> shapes;
  for (const LayerShape& l : layers) {
    const Layout layout = l.local_window > 0 ? Layout{0, l.local_window} : plan.layout;
    cache.layouts_.push_back(layout);
    cache.watched_.push_back(l.local_window > 0 ? 0 : plan.watched);
    shapes.push_back({l.kv_heads, l.head_dim, layout.pinned, layout.window});
  }
  cache.lost_.assign(layers.size(), 0);
  BALLAST_ASSIGN_OR_RETURN(cache.store_, KvStore::Create(shapes, type));
  return cache;
}

int64_t KvCache::start() const { return plan_.layout.Start(std::max<int64_t>(position_ - 1, 0), floor_); }

int64_t KvCache::live() const {
  const int64_t pinned = std::min(position_, plan_.layout.pinned);
  return pinned + std::max<int64_t>(position_ - start(), 0);
}

Status KvCache::CheckRoom(int64_t n) const {
  if (plan_.evicts || n <= plan_.layout.capacity() - position_) return Status();
  return Status::Expected(
      Code::kInput, "dense cache", "at most " + std::to_string(plan_.layout.capacity()) + " tokens",
      std::to_string(position_ + n), "raise --context, or use --policy sinks, which never fills up");
}

KvCache::Spans KvCache::Visible(int layer, int64_t n, const KvBuffer& chunk_k,
                                const KvBuffer& chunk_v) const {
  const Layout& law = layouts_[layer];
  Spans spans;
  const auto put = [&spans](const KvBuffer& k, const KvBuffer& v, int64_t row, int64_t count, int64_t first,
                            bool pinned, bool counted) {
    if (count <= 0) return;
    spans.data[spans.count++] = KvSpan{k.View(row), v.View(row), count, first, pinned, counted};
  };
  const int64_t watched = watched_[static_cast<size_t>(layer)];
  const auto add = [&](const KvBuffer& k, const KvBuffer& v, int64_t row, int64_t count, int64_t first,
                       bool pinned) {
    if (pinned) return put(k, v, row, count, first, true, true);
    const int64_t apart = std::clamp<int64_t>(watched - first, 0, std::max<int64_t>(0, count));
    put(k, v, row, apart, first, false, true);
    put(k, v, row + apart, count - apart, first + apart, false, false);
  };
  const int64_t end = position_ + n;
  const KvStore::Part& sinks = store_.pinned(layer);
  add(sinks.k, sinks.v, 0, std::min(law.pinned, end), 0, true);
  // A single token sits in the ring already; it evicted exactly what its own law evicts.
  const int64_t ring_end = n == 1 ? end : position_;
  const KvStore::Part& ring = store_.ring(layer);
  for (const Layout::Run& run : law.Runs(Start(layer, position_), ring_end)) {
    add(ring.k, ring.v, run.slot - law.pinned, run.count, run.first_position, false);
  }
  if (n > 1) {
    const int64_t first = std::max(position_, law.pinned);
    add(chunk_k, chunk_v, 0, end - first, first, false);
  }
  return spans;
}

void KvCache::Commit(int layer, int64_t n, const KvBuffer& chunk_k, const KvBuffer& chunk_v) {
  if (n == 1) return;
  const Layout& law = layouts_[layer];
  const int64_t end = position_ + n;
  const int64_t first = std::max(position_, law.pinned);
  const int64_t from = std::max(first, end - law.window);
  const KvStore::Part& ring = store_.ring(layer);
  for (const Layout::Run& run : law.Runs(from, end)) {
    CopyRows(chunk_k, run.first_position - first, ring.k, run.slot - law.pinned, run.count);
    CopyRows(chunk_v, run.first_position - first, ring.v, run.slot - law.pinned, run.count);
  }
}

void KvCache::DropBefore(int64_t x) { floor_ = std::max(floor_, std::min(x, position_)); }

void KvCache::Reset() {
  position_ = 0;
  floor_ = 0;
  lost_.assign(lost_.size(), 0);
}

void KvCache::JumpTo(int64_t position) {
  BALLAST_CHECK(position_ >= plan_.layout.pinned && position > position_);
  position_ = position;
  floor_ = position;
  lost_.assign(lost_.size(), position);
}

int64_t KvCache::FirstIntact(int layer) const {
  const Layout& law = layouts_[layer];
  return std::max({law.pinned, position_ - law.window, lost_[layer]});
}

bool KvCache::CanRollBack(int64_t position, int64_t floor) const {
  if (position < 0 || position > position_ || floor < 0 || floor > floor_) return false;
  for (size_t l = 0; l < layouts_.size(); ++l) {
    const int layer = static_cast<int>(l);
    const int64_t start = layouts_[l].Start(position - 1, floor);
    if (start < position && start < FirstIntact(layer)) return false;
  }
  return true;
}

void KvCache::RollBack(int64_t position, int64_t floor) {
  BALLAST_CHECK(CanRollBack(position, floor));
  for (size_t l = 0; l < lost_.size(); ++l) lost_[l] = std::min(position, FirstIntact(static_cast<int>(l)));
  position_ = position;
  floor_ = std::min(floor, position);
}

namespace {

// One buffer of an export: rows, each with its elements in order, then scales, packed.
int64_t PackedBytes(const KvBuffer& b) {
  return b.kv_heads * b.rows * (KvRowBytes(b.type, b.head_dim) + (b.scale == nullptr ? 0 : 4));
}

}  // namespace

int64_t KvCache::row_bytes() const {
  int64_t total = 0;
  for (size_t l = 0; l < layouts_.size(); ++l) {
    const int layer = static_cast<int>(l);
    for (const KvStore::Part* part : {&store_.pinned(layer), &store_.ring(layer)}) {
      total += PackedBytes(part->k) + PackedBytes(part->v);
    }
  }
  return total;
}

// Calls visit(buffer, head, row, offset of its bytes in the export, offset of its scale) for every row that
// is intact.
template <typename Visit>
void KvCache::ForEachRow(const Visit& visit) const {
  int64_t offset = 0;
  const auto rows = [&](const KvBuffer& b, int64_t first, int64_t count) {
    const int64_t bytes = KvRowBytes(b.type, b.head_dim), scales = offset + b.kv_heads * b.rows * bytes;
    for (int h = 0; h < b.kv_heads; ++h) {
      for (int64_t r = first; r < first + count; ++r) {
        const int64_t place = h * b.rows + r;
        visit(b, h, r, offset + place * bytes, scales + place * 4);
      }
    }
  };
  for (size_t l = 0; l < layouts_.size(); ++l) {
    const int layer = static_cast<int>(l);
    const Layout& law = layouts_[l];
    const KvStore::Part& pinned = store_.pinned(layer);
    for (const KvBuffer* b : {&pinned.k, &pinned.v}) {
      rows(*b, 0, std::min(position_, law.pinned));
      offset += PackedBytes(*b);
    }
    const KvStore::Part& ring = store_.ring(layer);
    for (const KvBuffer* b : {&ring.k, &ring.v}) {
      for (const Layout::Run& run : law.Runs(FirstIntact(layer), std::max(position_, law.pinned))) {
        rows(*b, run.slot - law.pinned, run.count);
      }
      offset += PackedBytes(*b);
    }
  }
}

void KvCache::ExportRows(uint8_t* out) const {
  ForEachRow([&](const KvBuffer& b, int head, int64_t row, int64_t bytes, int64_t scale) {
    float value = 0;
    b.Get(head, row, out + bytes, &value);
    if (b.scale != nullptr) std::memcpy(out + scale, &value, sizeof(value));
  });
}

Status KvCache::Import(const State& s, const uint8_t* rows) {
  const Layout& law = plan_.layout;
  const auto in_stream = [&](int64_t x) { return x >= 0 && x <= s.position; };
  KvCache next;  // judges the state by the law; has no memory
  next.layouts_ = layouts_;
  next.position_ = s.position;
  next.floor_ = s.floor;
  next.lost_ = s.lost;
  if (!in_stream(s.floor) || s.position > (int64_t{1} << 62) || s.lost.size() != layouts_.size() ||
      !std::all_of(s.lost.begin(), s.lost.end(), in_stream) || !next.CanRollBack(s.position, s.floor) ||
      (!plan_.evicts && s.position > law.capacity())) {
    return Status::Expected(Code::kInput, "cache state",
                            "one of a cache of " + std::to_string(law.pinned) + " + " +
                                std::to_string(law.window) + " tokens in " + std::to_string(layouts_.size()) +
                                " layers",
                            "position " + std::to_string(s.position) + ", floor " + std::to_string(s.floor));
  }
  position_ = s.position;
  floor_ = s.floor;
  lost_ = s.lost;
  ForEachRow([&](const KvBuffer& b, int head, int64_t row, int64_t bytes, int64_t scale) {
    float value = 0;
    if (b.scale != nullptr) std::memcpy(&value, rows + scale, sizeof(value));
    b.Put(head, row, rows + bytes, value);
  });
  return Status();
}

}  // namespace ballast
