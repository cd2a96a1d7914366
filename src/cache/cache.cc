#include "cache/cache.h"

#include <algorithm>

namespace ballast {

Result<KvCache> KvCache::Create(const CachePlan& plan, const std::vector<LayerShape>& layers, KvType type) {
  KvCache cache;
  cache.plan_ = plan;
  std::vector<KvStore::LayerShape> shapes;
  for (const LayerShape& l : layers) {
    const Layout layout = l.local_window > 0 ? Layout{0, l.local_window} : plan.layout;
    cache.layouts_.push_back(layout);
    shapes.push_back({l.kv_heads, l.head_dim, layout.pinned, layout.window});
  }
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
  const auto add = [&spans](const KvBuffer& k, const KvBuffer& v, int64_t row, int64_t count, int64_t first,
                            bool pinned) {
    if (count > 0) spans.data[spans.count++] = KvSpan{k.View(row), v.View(row), count, first, pinned};
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
}

void KvCache::JumpTo(int64_t position) {
  BALLAST_CHECK(position_ >= plan_.layout.pinned && position > position_);
  position_ = position;
  floor_ = position;
}

}  // namespace ballast
