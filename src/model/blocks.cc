#include "model/blocks.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops.h"

namespace ballast {

bool PreparePositions(std::span<const Segment> segments, const RopeTable& rope, Workspace& ws,
                      ThreadPool& pool) {
  const int64_t half = rope.dims / 2;
  Reserve(ws.angles, ws.rows * 4 * half);
  Reserve(ws.position, ws.rows);
  Reserve(ws.start, ws.rows);
  Reserve(ws.in_cache, ws.rows);
  bool same = true;
  int64_t row = 0;
  for (const Segment& s : segments) {
    const Layout& law = s.cache->plan().layout;
    for (size_t i = 0; i < s.tokens.size(); ++i, ++row) {
      const int64_t t = s.cache->position() + static_cast<int64_t>(i);
      ws.position[row] = t;
      ws.in_cache[row] = law.InCache(t, law.Start(t, s.cache->floor()));
      same = same && ws.in_cache[row] == t;
    }
  }
  pool.For(ws.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* a = ws.angles.data() + r * 4 * half;
      rope.Angles(ws.position[r], a, a + half);
      if (ws.in_cache[r] == ws.position[r]) {
        std::memcpy(a + 2 * half, a, static_cast<size_t>(2 * half) * sizeof(float));
      } else {
        rope.Angles(ws.in_cache[r], a + 2 * half, a + 3 * half);
      }
    }
  });
  return same;
}

const float* GatherHidden(std::span<const int64_t> rows, int64_t embed, Workspace& ws) {
  const int64_t n = static_cast<int64_t>(rows.size());
  if (n == 0 || rows.back() - rows.front() == n - 1) {
    return ws.hidden.data() + (n == 0 ? 0 : rows.front() * embed);
  }
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(ws.normed.data() + i * embed, ws.hidden.data() + rows[i] * embed,
                static_cast<size_t>(embed) * sizeof(float));
  }
  return ws.normed.data();
}

void RotateQueriesAndKeys(const ModelConfig& config, const RopeTable& rope, bool same_positions,
                          Workspace& ws, ThreadPool& pool) {
  const int64_t half = rope.dims / 2;
  const int64_t q_dims = static_cast<int64_t>(config.heads) * config.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config.kv_heads) * config.head_dim;
  if (!same_positions) Reserve(ws.q_pinned, ws.rows * q_dims);
  pool.For(ws.rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* a = ws.angles.data() + r * 4 * half;
      float* q = ws.q.data() + r * q_dims;
      float* k = ws.k.data() + r * k_dims;
      if (!same_positions) {
        ApplyRope(rope, a + 2 * half, a + 3 * half, q, config.heads, config.head_dim,
                  ws.q_pinned.data() + r * q_dims);
      }
      ApplyRope(rope, a, a + half, q, config.heads, config.head_dim, q);
      ApplyRope(rope, a, a + half, k, config.kv_heads, config.head_dim, k);
    }
  });
}

namespace {

// Encodes row `r` of the step into row `to` of the key and value buffers.
void StoreRow(const KvBuffer& k, const KvBuffer& v, int64_t to, const float* key, const float* value) {
  for (int h = 0; h < k.kv_heads; ++h) {
    EncodeKvRows(k.type, key + static_cast<int64_t>(h) * k.head_dim, 1, k.head_dim, k.row(h, to),
                 k.scale_at(h, to));
    EncodeKvRows(v.type, value + static_cast<int64_t>(h) * v.head_dim, 1, v.head_dim, v.row(h, to),
                 v.scale_at(h, to));
  }
}

}  // namespace

void AttendThroughCache(const Segment& segment, int layer, int64_t row0, const AttentionShape& shape,
                        bool same_positions, Workspace& ws, ThreadPool& pool) {
  KvCache& cache = *segment.cache;
  const Layout& law = cache.layout(layer);
  const int64_t n = static_cast<int64_t>(segment.tokens.size());
  const int64_t begin = cache.position();
  const int64_t chunk_first = std::max(begin, law.pinned);  // stream position of chunk row 0
  const int64_t k_dims = static_cast<int64_t>(shape.kv_heads) * shape.head_dim;
  const int64_t q_dims = static_cast<int64_t>(shape.heads) * shape.head_dim;

  const int64_t buffer_bytes = KvBufferBytes(cache.type(), shape.kv_heads, shape.head_dim, n);
  Reserve(ws.chunk, 2 * buffer_bytes + 64);
  uint8_t* aligned = ws.chunk.data() + (64 - reinterpret_cast<uintptr_t>(ws.chunk.data()) % 64) % 64;
  const KvBuffer chunk_k = MakeKvBuffer(cache.type(), shape.kv_heads, shape.head_dim, n, aligned);
  const KvBuffer chunk_v =
      MakeKvBuffer(cache.type(), shape.kv_heads, shape.head_dim, n, aligned + buffer_bytes);

  pool.For(n, 16, [&](int64_t from, int64_t to, int) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t t = begin + i;
      const float* key = ws.k.data() + (row0 + i) * k_dims;
      const float* value = ws.v.data() + (row0 + i) * k_dims;
      if (cache.WritesInPlace(layer, t, n)) {
        const KvCache::Place place = cache.PlaceOf(layer, t);
        StoreRow(place.part->k, place.part->v, place.row, key, value);
      } else {
        StoreRow(chunk_k, chunk_v, t - chunk_first, key, value);
      }
    }
  });

  for (int64_t i = 0; i < n; ++i) ws.start[row0 + i] = cache.Start(layer, begin + i);
  const float* q = ws.q.data() + row0 * q_dims;
  const AttentionQueries queries{n, q, same_positions ? q : ws.q_pinned.data() + row0 * q_dims,
                                 ws.position.data() + row0, ws.start.data() + row0};
  const KvCache::Spans spans = cache.Visible(layer, n, chunk_k, chunk_v);
  float* mass = ws.sink_mass.data() + (static_cast<int64_t>(layer) * ws.rows + row0) * shape.heads;
  Attention(shape, queries, spans.view(), ws.attended.data() + row0 * q_dims, mass, ws.attention, pool);
  cache.Commit(layer, n, chunk_k, chunk_v);
}

void AddBias(std::span<const float> bias, int64_t rows, float* x) {
  if (bias.empty()) return;
  const int64_t n = static_cast<int64_t>(bias.size());
  for (int64_t r = 0; r < rows; ++r) AddInPlace(x + r * n, bias.data(), n);
}

}  // namespace ballast
